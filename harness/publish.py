"""Recorded timings as a Markdown page for ``profiles/``: where they were taken, and each variant's rate beside its best peer's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.errors import RecordError
from harness.record_tables import Result
from harness.spec import Op


def make_markdown(op: Op, results: Sequence[Result], mode: str = "cold") -> str:
    """Return a page for the ``bench`` results of one or several runs on one device and commit.

    A cell is the rate at the median time in TFLOP/s, and its share of the fastest peer's rate on the same problem. Raises
    :class:`RecordError` when there are no timings, or when they come from different devices or commits.
    """
    timed = [r for r in results if r.kind == "bench" and r.figures.get("mode") == mode]
    if not timed:
        raise RecordError(f"no {mode} timings of op {op.name} among these results; they are made by bench on a GPU")
    where = {(r.run.environment.device_name, r.run.environment.device_uuid, r.run.commit, r.run.dirty) for r in timed}
    if len(where) > 1:
        raise RecordError("these runs are of different devices or commits; publish one at a time")
    times = {(r.variant, r.problem): float(r.figures["median_us"]) for r in timed if r.status == "passed"}
    peers = [v for v in dict.fromkeys(r.variant for r in timed) if v not in {x.name for x in op.variants}]
    problems = [p for p in op.problems if any(p.name == r.problem for r in timed)]
    flops = {p.name: op.cost(p).flops for p in problems}
    best = {p.name: min((times[v, p.name] for v in peers if (v, p.name) in times), default=None) for p in problems}
    lines = [
        _describe_place(timed[0], mode),
        "",
        f"| variant | {' | '.join(p.name for p in problems)} |",
        "|---" + "|--:" * len(problems) + "|",
    ]
    for name in dict.fromkeys(r.variant for r in timed):
        cells = (_make_cell(times.get((name, p.name)), flops[p.name], best[p.name]) for p in problems)
        lines.append(f"| {name}{' (peer)' if name in peers else ''} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _describe_best(op, times, best), ""])


def _describe_place(result: Result, mode: str) -> str:
    environment, run = result.run.environment, result.run
    dirty = " with changes" if run.dirty else ""
    return (
        f"{environment.device_name}, {environment.toolchain}, commit {run.commit[:12] or 'unknown'}{dirty}, {run.started_at[:10]}. "
        f"{mode.capitalize()} medians: TFLOP/s, and in brackets the share of the fastest peer's rate. An empty cell: the variant does not "
        "serve the problem."
    )


def _make_cell(time_us: float | None, flops: float, best_us: float | None) -> str:
    if time_us is None:
        return ""
    rate = f"{flops / time_us * 1e-6:.2f}"
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
