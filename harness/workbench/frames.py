"""What verbs return, as pandas data frames: one row per variant, or per variant and problem.

``frame.attrs`` holds what is said of all rows: ``ok`` (nothing is wrong), ``where`` (device and run), and for some ``note`` or ``faults``.
Times are microseconds, rates and shares as in :mod:`harness.records.frames`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.compare.drawn.cliff_run import CliffsFound
from harness.compare.drawn.run import DrawnDone
from harness.compare.goals_run import GoalsMeasured
from harness.records.rows import parse_tunables
from harness.sweep.whole import SweepDone
from harness.verbs.bench import Benched
from harness.verbs.build import Built
from harness.verbs.compare import Comparison
from harness.verbs.crosscheck import Crosschecked
from harness.verbs.model import Ranked
from harness.verbs.profile import Profiled
from harness.verbs.promote import Promoted
from harness.verbs.verify import Verified
from harness.verify.findings import Status, VerifyResult
from harness.verify.tables import list_fault_lines


def make_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = (), **attrs: Any) -> pd.DataFrame:
    """Return rows as a frame; ``columns`` are there also where there is no row."""
    frame = pd.DataFrame(list(rows))
    frame = frame.reindex(columns=[*columns, *(c for c in frame.columns if c not in columns)])
    frame.attrs.update(attrs)
    return frame


def add_tunables(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the kernel of each variant and a column per tunable behind it, missing where the kernel has none."""
    if frame.empty:
        return frame
    values = pd.DataFrame([parse_tunables(name) for name in frame["variant"]], index=frame.index, dtype="Int64")
    values = values[[c for c in values.columns if c not in frame.columns]]
    place = frame.columns.get_loc("variant") + 1
    kernels = frame["variant"].str.split("/").str[0].rename("kernel")
    found = pd.concat([frame.iloc[:, :place], kernels, values, frame.iloc[:, place:]], axis=1)
    found.attrs.update(frame.attrs)
    return found


def frame_builds(built: Built) -> pd.DataFrame:
    """Return a row per variant: ``ok``, ``registers`` a thread, ``shared_bytes``, ``spill_bytes``, ``cached``, ``seconds``, ``error``."""
    rows = []
    for b in built.builds:
        r = b.resources
        figures = {"registers": r.registers, "shared_bytes": r.shared_bytes, "spill_bytes": r.spill_bytes} if r is not None else {}
        rows.append(
            {"variant": b.variant.name, "ok": not b.error, **figures, "cached": b.cached, "seconds": b.seconds, "error": b.error or ""}
        )
    return add_tunables(make_frame(rows, ("variant", "ok"), ok=not built.failed, target=built.target.name))


def frame_verdicts(verified: Verified) -> pd.DataFrame:
    """Return a row per variant: ``status``, problems passed and not served, the worst error over its bound and in ulp, ``reason``."""
    rows = [_describe_verdict(r) for r in verified.results]
    faults = [f"op {verified.op}: {f.describe()}" for f in verified.op_faults]
    faults += [line for r in verified.results for line in list_fault_lines(r)]
    attrs = {"ok": verified.ok, "faults": faults, "plan": verified.plan, "where": f"{verified.device_name}; {verified.where}"}
    return add_tunables(make_frame(rows, ("variant", "status"), **attrs))


def _describe_verdict(result: VerifyResult) -> dict[str, Any]:
    return {
        "variant": result.variant,
        "status": "passed" if result.ok else "failed",
        "num_passed": result.num_passed,
        "num_unsupported": sum(p.status is Status.UNSUPPORTED for p in result.problems),
        "max_error_ratio": result.max_error_ratio,
        "max_ulp": result.max_ulp,
        "num_launches": sum(p.num_launches for p in result.problems),
        "seconds": result.seconds,
        "reason": result.reason,
    }


def frame_bench(benched: Benched) -> pd.DataFrame:
    """Return a row per problem and variant or peer, the fastest first; ``us`` ranks them: the cold median, else the model."""
    rows = []
    for r in sorted(benched.rows, key=lambda r: ([p.name for p in benched.problems].index(r.problem), r.order_us)):
        low, high = r.interval_us or (None, None)
        row = r.to_json()
        statics, cold, hot = row.pop("statics"), row.pop("cold"), row.pop("hot")
        del row["op"], row["model_interval_us"]
        row |= {"us": r.order_us, "low_us": low, "high_us": high, "is_model": r.cold is None and not r.is_peer}
        row |= {f"{mode}_us": figures["median_us"] if figures else None for mode, figures in (("cold", cold), ("hot", hot))}
        rows.append(row | statics)
    attrs = {"ok": benched.ok, "note": benched.note, "where": f"{benched.device_name}; {benched.where}"}
    lead = ("problem", "variant", "us", "low_us", "high_us", "is_model", "verified", "reason")
    return add_tunables(make_frame(rows, lead, **attrs, faults=[f.describe() for f in benched.op_faults]))


def frame_sweep(done: SweepDone) -> pd.DataFrame:
    """Return a row per problem and variant, the fastest first: ``status``, ``us``, ``low_us``, ``high_us``, ``is_model``, ``reason``.

    The bounds are quartiles of the samples, or of the model's interval. ``attrs["winners"]`` are those of the finals by problem.
    """
    rows = []
    for p in done.points:
        us = {"us": p.median_us, "low_us": p.q1_us, "high_us": p.q3_us} if p.status == "passed" else {}
        known = {"problem": p.problem, "variant": p.variant, "status": p.status, **us, "is_model": done.is_model}
        rows.append(known | {"is_pruned": p.is_pruned, "num_samples": p.num_samples, "gpu": p.gpu, "reason": p.reason})
    lead = ("problem", "variant", "status", "us", "low_us", "high_us", "is_model")
    attrs = {"ok": not any(p.status == "failed" for p in done.points), "winners": {w.problem: w.winner for w in done.winners}}
    found = add_tunables(make_frame(rows, lead, **attrs, gpu_use=done.gpu_use))
    return found.sort_values(["problem", "us"], kind="stable", ignore_index=True)


def frame_model(ranked: Ranked) -> pd.DataFrame:
    """Return a row per problem and variant, the fastest first: ``time_us`` with ``low_us`` and ``high_us``, and what bounds it."""
    attrs = {"ok": True, "where": f"model of {ranked.target}, fitted to {ranked.record}: no time was measured"}
    return add_tunables(make_frame(ranked.list_rows(), ("problem", "variant", "time_us", "low_us", "high_us"), **attrs))


def frame_comparison(found: Comparison) -> pd.DataFrame:
    """Return a row per candidate and problem, per goal, per drawn problem, or per cliff, with the fields of their JSON."""
    if isinstance(found, DrawnDone):
        where = found.run.where if found.run is not None else f"model of {found.target}: no time was measured"
        return make_frame(found.list_rows(), ("problem",), ok=not found.is_failed, where=where)
    if isinstance(found, CliffsFound):
        return make_frame((c.to_json() for c in found.cliffs), ok=True, where=found.where)
    if isinstance(found, GoalsMeasured):
        return make_frame((r.to_json() for r in found.rows), ok=not found.is_failed, where=found.where, left_out=found.left_out)
    return make_frame((r.to_json() for r in found.rows), ("problem",), ok=not found.is_failed, where=found.where)


def frame_profiles(done: Profiled) -> pd.DataFrame:
    """Return a row per variant and problem: ``summary``, ``checks``, ``timeline``, and what was ``skipped`` or ``broken``."""
    rows = (p.to_json() for p in done.profiles)
    return add_tunables(make_frame(rows, ("variant", "problem"), ok=not done.is_failed, where=done.where, skipped=done.skipped))


def frame_promotion(done: Promoted) -> pd.DataFrame:
    """Return a row per bucket with the fields of its JSON; ``attrs["gates"]`` are those of each candidate."""
    facts = done.to_json()
    return make_frame(facts["decisions"], ("bucket",), ok=bool(done.changed), gates=facts["gates"], dry_run=done.dry_run)


def frame_agreement(done: Crosschecked) -> pd.DataFrame:
    """Return a row per variant: how many outputs and elements have the same bits, and the largest distance in ulp."""
    rows = ({**vars(r), "bit_exact": r.bit_exact} for r in done.rows)
    return make_frame(rows, ("variant",), ok=True, left=done.left, right=done.right)
