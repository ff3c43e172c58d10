"""Recorded timings as a Markdown page for ``profiles/``: where they were taken, and each variant's rate next to its best peer's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import RecordUseError
from harness.model.roofline import find_floor
from harness.records.provenance import Commit
from harness.records.tables import Result
from harness.spec import Op, Problem
from harness.targets import Target, find_target


def make_markdown(op: Op, results: Sequence[Result], mode: str = "cold") -> str:
    """Return a page for the ``bench`` results of one or several runs on one device and commit.

    A cell is the rate at the median time, in TFLOP/s where arithmetic bounds the problem and in GB/s of compulsory traffic where memory
    does, and its share of the fastest peer's rate on the same problem. Raises
    :class:`RecordError` when there are no timings, or when they come from different devices or commits.
    """
    timed = [r for r in results if r.kind == "bench" and r.figures.get("mode") == mode]
    if not timed:
        raise RecordUseError(f"no {mode} timings of op {op.name} among these results; they are made by bench on a GPU")
    where = {(r.run.environment.device_name, r.run.environment.device_uuid, r.run.commit, r.run.dirty) for r in timed}
    if len(where) > 1:
        raise RecordUseError("these runs are of different devices or commits; publish one at a time")
    times = {(r.variant, r.problem): float(r.figures["median_us"]) for r in timed if r.status == "passed"}
    peers = [v for v in dict.fromkeys(r.variant for r in timed) if v not in {x.name for x in op.variants}]
    problems = [p for p in op.problems if any(p.name == r.problem for r in timed)]
    target = find_target(timed[0].run.environment.target)
    rates = {p.name: _Rate.of(op, p, target) for p in problems}
    best = {p.name: min((times[v, p.name] for v in peers if (v, p.name) in times), default=None) for p in problems}
    lines = [
        _describe_place(timed[0], mode),
        "",
        f"| variant | {' | '.join(f'{p.name} ({rates[p.name].unit})' for p in problems)} |",
        "|---" + "|--:" * len(problems) + "|",
    ]
    for name in dict.fromkeys(r.variant for r in timed):
        cells = (_make_cell(times.get((name, p.name)), rates[p.name], best[p.name]) for p in problems)
        lines.append(f"| {name}{' (peer)' if name in peers else ''} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _describe_best(op, times, best), ""])


def _describe_place(result: Result, mode: str) -> str:
    environment, run = result.run.environment, result.run
    return (
        f"{environment.device_name}, {environment.toolchain}, {Commit(run.commit, run.dirty).describe()}, {run.started_at[:10]}. "
        f"Rates at the {mode} medians, and in brackets the share of the fastest peer's rate. An empty cell: the variant does not "
        "serve the problem."
    )


@dataclass(frozen=True)
class _Rate:
    """Work per microsecond times ``scale`` is a figure in ``unit``."""

    work: float
    scale: float
    unit: str
    digits: int

    @classmethod
    def of(cls, op: Op, problem: Problem, target: Target) -> _Rate:
        cost = op.cost(problem)
        if find_floor(cost, target).bound == "compute":
            return cls(cost.flops, 1e-6, "TFLOP/s", 2)
        return cls(cost.bytes_moved, 1e-3, "GB/s", 0)


def _make_cell(time_us: float | None, work: _Rate, best_us: float | None) -> str:
    if time_us is None:
        return ""
    rate = f"{work.work / time_us * work.scale:.{work.digits}f}"
    return rate if best_us is None else f"{rate} ({100 * best_us / time_us:.1f} %)"


def _describe_best(op: Op, times: Mapping[tuple[str, str], float], best: Mapping[str, float | None]) -> str:
    lines = []
    for problem, peer_us in best.items():
        own = {v.name: times[v.name, problem] for v in op.variants if (v.name, problem) in times}
        if not own:
            continue
        winner = min(own, key=lambda name: own[name])
        share = "" if peer_us is None else f", {100 * peer_us / own[winner]:.1f} % of the fastest peer"
        lines.append(f"- {problem}: {winner}, {own[winner]:.2f} us{share}")
    return "Fastest variant per problem:\n\n" + "\n".join(lines)
