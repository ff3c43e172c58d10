"""Records as a pandas table, for charts and notebooks: one row per result, with all samples and with rates next to the times.

Columns
-------
what: ``kind`` (``verify``, ``bench``, ``compare``, ``sweep``, ``sweep_model``, ``sweep_use``, ``counters``, ``profile``,
    ``sanitizer``, ``goal``: an op's own choice beside its peers on one problem of a goal), ``op``,
    ``kernel``, ``variant``, ``problem``, ``tunables`` (dict of whole numbers by name, from the variant's name),
    ``is_peer`` (a library's own implementation).
outcome: ``status`` (``passed``, ``failed``, ``unsupported``), ``reason``.
times, microseconds a launch: ``mode`` (``cold``, ``hot``; "" where nothing was timed), ``median_us``, ``q1_us``, ``q3_us``, ``low_us`` and
    ``high_us`` (the 95 % interval of the median), ``num_samples``, ``num_throttled``, ``samples_us`` (float32 array, in the order taken),
    ``clocks_mhz`` (float32 array: the SM clock of each sample), ``clock_mhz`` (their median), ``clock_label``, ``inputs``.
rates, NaN where the op no longer lists the problem: ``flops`` and ``bytes_moved`` (of one launch, at the least), ``floor_us`` (the
    roofline), ``bound`` (``compute`` or ``memory``), ``tflops`` (10^12 flop/s), ``gbytes_s`` (10^9 bytes/s),
    ``share_of_floor`` (1: on the roofline),
    ``share_of_peer`` (rate over that of the fastest peer on the same problem, mode and run; NaN without one).
where: ``device_kind`` (``cuda``, ``emulated``), ``device``, ``device_uuid``, ``driver``, ``toolchain``, ``target``, ``host``.
which: ``source`` (``store``: the database; ``published``: a file in ``profiles/``), ``record``, ``run`` (ids there), ``uid``,
    ``run_uid``, ``created_at``, ``started_at`` (UTC), ``command``, ``commit``, ``dirty``, ``key`` (of the build), ``code_hash`` (of the
    machine code), ``flags``.
rest: ``figures``, the record's own figures as a dict.

``frame.attrs["source"]`` says in words where the rows are from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from device.settings import read_settings
from harness.discover import find_op
from harness.errors import RecordError, RecordUseError
from harness.model.roofline import find_floor
from harness.records.database import Records
from harness.records.engine import hide_password
from harness.records.published import list_goals, list_published, list_sweeps, open_published
from harness.records.rows import make_goal_rows, make_row, make_sweep_rows
from harness.spec import Op, SpecError
from harness.targets import find_target

SOURCES = ("auto", "store", "published")
_TIMED = ("bench", "compare", "sweep")


def load_frame(op: str, source: str = "auto", *, url: str | None = None) -> pd.DataFrame:
    """Return an op's results, in the order they were recorded; the columns are documented at the head of this module.

    ``source`` is ``store`` (the database at ``url``, else of ``AICF_RECORDS_URL``), ``published`` (the files in ``profiles/``), or
    ``auto``: the database, and the published records too where it has no times of a GPU.

    Raises :class:`RecordError` where there is nothing.
    """
    if source not in SOURCES:
        raise RecordUseError(f"source {source!r}: must be one of {', '.join(SOURCES)}")
    place = url or read_settings().records_url
    rows: list[dict[str, Any]] = []
    said = []
    has_times = False
    if source != "published":
        records = Records(place)
        try:
            rows += _read(records, op, "store")
        finally:
            records.close()
        has_times = any(r["kind"] in _TIMED and r["device_kind"] == "cuda" for r in rows)
        said += [f"{len(rows)} results in {hide_password(place)}"] if rows else []
    if source == "published" or (source == "auto" and not has_times):
        found = list(_read_published(op))
        rows += found
        said += [f"{len(found)} results published in profiles/"] if found else []
    if not rows:
        raise RecordError(f"no results of op {op} in {hide_password(place)} or in profiles/; run python -m harness bench {op} first")
    frame = _add_rates(pd.DataFrame(rows), find_op(op).op)
    frame.attrs["source"] = " and ".join(said)
    return frame


def _read_published(op: str) -> Iterator[dict[str, Any]]:
    if list_published(op):
        records = open_published(op)
        try:
            yield from _read(records, op, "published")
        finally:
            records.close()
    for path, sweep in list_sweeps(op):
        yield from make_sweep_rows(path.name, sweep)
    for path in list_goals(op):
        yield from make_goal_rows(path)


def _read(records: Records, op: str, source: str) -> list[dict[str, Any]]:
    return [make_row(r, source) for r in records.list_results(op=op)]


def _add_rates(frame: pd.DataFrame, op: Op) -> pd.DataFrame:
    """Add what the op's description says of each problem on each target, and the rates that follow."""
    pairs = frame[["problem", "target"]].drop_duplicates()
    known = pd.DataFrame([_describe(op, problem, target) for problem, target in pairs.itertuples(index=False)])
    frame = frame.merge(known, on=["problem", "target"], how="left")
    frame["tflops"] = frame.flops / frame.median_us * 1e-6
    frame["gbytes_s"] = frame.bytes_moved / frame.median_us * 1e-3
    frame["share_of_floor"] = frame.floor_us / frame.median_us
    right = frame[frame.is_peer & (frame.status == "passed")]
    best = right.groupby(["run_uid", "problem", "mode"])["median_us"].min()
    index = pd.MultiIndex.from_frame(frame[["run_uid", "problem", "mode"]])
    frame["share_of_peer"] = best.reindex(index).to_numpy(dtype=float, na_value=np.nan) / frame.median_us
    return frame


def _describe(op: Op, problem: str, target: str) -> Mapping[str, Any]:
    nothing = dict.fromkeys(("flops", "bytes_moved", "floor_us"), np.nan) | {"bound": ""}
    try:
        cost = op.cost(op.select_problems("", [problem])[0])
        floor = find_floor(cost, find_target(target))
    except (SpecError, ValueError):
        return {"problem": problem, "target": target} | nothing
    figures = {"flops": cost.flops, "bytes_moved": cost.bytes_moved, "floor_us": floor.total_us, "bound": floor.bound}
    return {"problem": problem, "target": target} | figures


def spread_tunables(frame: pd.DataFrame, names: Sequence[str] = ()) -> pd.DataFrame:
    """Return the rows with a column for each tunable (all of them, or those named); NaN where a kernel lacks it."""
    values = pd.DataFrame(list(frame["tunables"]), index=frame.index)
    return frame.join(values.reindex(columns=list(names)) if names else values)
