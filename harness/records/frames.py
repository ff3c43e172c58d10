"""Records as a pandas table, for pictures and notebooks: one row a result, with all samples and with rates beside the times.

Columns
-------
what: ``kind`` (``verify``, ``bench``, ``compare``, ``sweep``, ``sweep_model``, ``sweep_use``, ``counters``, ``profile``,
    ``sanitizer``), ``op``, ``kernel``, ``variant``, ``problem``, ``tunables`` (dict of whole numbers by name, from the variant's name),
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

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from device.settings import read_settings
from harness.discover import find_op
from harness.errors import RecordError
from harness.model.roofline import find_floor
from harness.records.database import Records
from harness.records.engine import hide_password
from harness.records.published import list_published, list_sweeps, open_published
from harness.records.tables import Result, read_clocks, read_samples
from harness.spec import Op, SpecError
from harness.sweep.points import Sweep
from harness.targets import find_target

SOURCES = ("auto", "store", "published")
_TIMES = ("median_us", "q1_us", "q3_us")
_TUNABLE = re.compile(r"([a-z]+)(\d+)")
_TIMED = ("bench", "compare", "sweep")


def load_frame(op: str, source: str = "auto", *, url: str | None = None) -> pd.DataFrame:
    """Return an op's results, in the order they were recorded; the columns are documented at the head of this module.

    ``source`` is ``store`` (the database at ``url``, else of ``AICF_RECORDS_URL``), ``published`` (the files in ``profiles/``), or
    ``auto``: the database, and the published records too where it has no times of a GPU.

    Raises :class:`RecordError` where there is nothing.
    """
    if source not in SOURCES:
        raise RecordError(f"source {source!r}: must be one of {', '.join(SOURCES)}")
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
        raise RecordError(f"no results of op {op} in {hide_password(place)} or in profiles/; python -m harness bench {op} makes some")
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
        yield from _read_sweep(path.name, sweep)


def _read(records: Records, op: str, source: str) -> list[dict[str, Any]]:
    return [_make_row(r, source) for r in records.list_results(op=op)]


def _make_row(r: Result, source: str) -> dict[str, Any]:
    run, place, f = r.run, r.run.environment, r.figures
    return {
        "source": source,
        "record": r.id,
        "run": r.run_id,
        "uid": r.uid,
        "run_uid": run.uid,
        "created_at": _read_time(r.created_at),
        "started_at": _read_time(run.started_at),
        "command": run.command,
        "commit": run.commit,
        "dirty": run.dirty,
        "device_kind": r.device_kind,
        "device": place.device_name,
        "device_uuid": str(f.get("gpu") or place.device_uuid),  # a sweep may measure on several
        "driver": place.driver_version,
        "toolchain": place.toolchain,
        "target": place.target,
        "host": place.host,
        "kind": r.kind,
        "op": r.op,
        **_name_variant(r.variant),
        "is_peer": r.kind == "bench" and not r.key,
        "problem": r.problem,
        "status": r.status,
        "reason": r.reason,
        "mode": str(f.get("mode", "")),
        **{name: _read_number(f.get(name)) for name in _TIMES},
        "low_us": _read_number(f.get("median_low_us")),
        "high_us": _read_number(f.get("median_high_us")),
        "num_samples": int(f.get("num_samples") or len(read_samples(r))),
        "num_throttled": int(f.get("num_throttled") or 0),
        "samples_us": read_samples(r),
        "clocks_mhz": read_clocks(r),
        "clock_mhz": _read_number(f.get("clock_mhz")),
        "clock_label": r.clock_label,
        "inputs": r.inputs,
        "key": r.key,
        "code_hash": r.code_hash,
        "flags": r.flags,
        "figures": dict(f),
    }


def _read_sweep(name: str, sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield the points of a sweep as rows like those of records; what a point does not say is empty."""
    about = sweep.about
    date = _read_time(about["date"])
    for i, p in enumerate(sweep.points):
        yield {
            "source": "published",
            "record": -1,
            "run": -1,
            "uid": f"{name}:{i}",
            "run_uid": name,
            "created_at": date,
            "started_at": date,
            "command": f"sweep {p.op}",
            "commit": about["commit"],
            "dirty": False,
            "device_kind": "cuda",
            "device": about["device"],
            "device_uuid": "",
            "driver": 0,
            "toolchain": about["toolchain"],
            "target": about["target"],
            "host": "",
            "kind": "sweep",
            "op": p.op,
            **_name_variant(p.variant),
            "is_peer": False,
            "problem": p.problem,
            "status": p.status,
            "reason": p.reason,
            "mode": "cold",
            **{f: getattr(p, f) if p.status == "passed" else np.nan for f in _TIMES},
            "low_us": np.nan,
            "high_us": np.nan,
            "num_samples": p.num_samples,
            "num_throttled": 0,
            "samples_us": np.empty(0, np.float32),
            "clocks_mhz": np.empty(0, np.float32),
            "clock_mhz": _read_number(p.clock_mhz),
            "clock_label": "",
            "inputs": "",
            "key": "",
            "code_hash": p.code_hash,
            "flags": "",
            "figures": {},
        }


def _name_variant(variant: str) -> dict[str, Any]:
    kernel, _, bound = variant.partition("/")
    return {"kernel": kernel, "variant": variant, "tunables": {k: int(v) for k, v in _TUNABLE.findall(bound)}}


def _read_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _read_number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else np.nan


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
