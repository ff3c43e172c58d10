"""The finals of a sweep: the fastest variants of the screen are measured again, in turns, against the fastest listed variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.benchmark.session import Session
from harness.build.builder import BuildResult
from harness.compare.variants import Compared, Side, compare_sides
from harness.records.sweeps import SweepPoint
from harness.spec import Problem
from harness.timing.ahead import ExpectedAhead
from harness.timing.batches import Mode
from harness.timing.gpu_lock import GpuLock
from harness.timing.timer import Timer
from harness.timing.verdicts import Criteria, Verdict

# Slower than the best by this much in the screen, a variant is no finalist.
_FINALIST_WITHIN = 1.1


@dataclass(frozen=True)
class Winner:
    """What came of the finals on one problem. ``comparisons`` are the candidates against the incumbent."""

    problem: str
    incumbent: str
    winner: str
    comparisons: tuple[Compared, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return vars(self) | {"comparisons": [c.to_json() for c in self.comparisons]}


def hold_finals(
    session: Session,
    builds: Sequence[BuildResult],
    binding: Path,
    points: Sequence[SweepPoint],
    problem: Problem,
    num_finalists: int,
    ahead: ExpectedAhead,
) -> Winner | None:
    """Measure the fastest of the screen anew against the fastest listed variant; None where nothing passed.

    The least of many noisy times is lower than the truth, so only these fresh samples decide; a tie keeps the incumbent.
    """
    by_name = {b.variant.name: b for b in builds}
    ranked = list(
        _drop_copies(sorted((p for p in points if p.status == "passed" and p.problem == problem.name), key=lambda p: p.median_us))
    )
    if not ranked:
        return None
    listed = {v.name for v in session.loaded.op.variants}
    incumbent = next((p for p in ranked if p.variant in listed), ranked[0])
    close = [p for p in ranked if p is not incumbent and p.median_us <= _FINALIST_WITHIN * ranked[0].median_us][:num_finalists]
    if not close:
        return Winner(problem.name, incumbent.variant, incumbent.variant, ())
    sides = [Side(p.variant, session.loaded.op, by_name[p.variant], binding) for p in (incumbent, *close)]
    expected = ahead.find(problem)
    with GpuLock(session.device.properties.uuid).hold():
        timer = Timer(session.device)
        try:
            rows = tuple(compare_sides(session, timer, sides[0], sides[1:], [problem], Mode.COLD, Criteria(), lambda _: expected))
        finally:
            timer.close()
    faster = [r for r in rows if r.outcome is not None and r.outcome.verdict is Verdict.FASTER]
    best = min(faster, key=lambda r: r.outcome.effect.change if r.outcome else 0.0, default=None)
    return Winner(problem.name, incumbent.variant, incumbent.variant if best is None else best.candidate, rows)


def _drop_copies(points: Sequence[SweepPoint]) -> Iterator[SweepPoint]:
    seen: set[str] = set()
    for point in points:
        if point.code_hash not in seen:
            seen.add(point.code_hash)
            yield point
