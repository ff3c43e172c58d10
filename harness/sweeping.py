"""What ``sweep`` does around the screen: results are recorded as they come, resumed, and the fastest are measured anew, in turns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.benchmark import TIMING_DISTRIBUTION
from harness.build import BuildResult
from harness.comparing import Compared, Side, compare_sides
from harness.session import Session
from harness.spec import Problem
from harness.sweep import Measured, SweepPoint
from harness.timing import Mode, Timer
from harness.verdicts import Criteria, Verdict

# Slower than the best by this much in the screen, a variant is no finalist.
_FINALIST_WITHIN = 1.1


class Progress:
    """How far a screen is: variants done, the best time of each problem, the rate, and when it will be done."""

    def __init__(self, total: int, clock: float | None = None) -> None:
        self.total = total
        self.done = 0
        self.best: dict[str, SweepPoint] = {}
        self._started = time.monotonic() if clock is None else clock

    def add(self, points: Sequence[SweepPoint], now: float | None = None) -> str:
        """Take a variant's points in; return a line for the user."""
        self.done += 1
        for point in points:
            known = self.best.get(point.problem)
            if point.status == "passed" and (known is None or point.median_us < known.median_us):
                self.best[point.problem] = point
        spent = max((time.monotonic() if now is None else now) - self._started, 1e-9)
        rate = self.done / spent
        best = ", ".join(f"{p.median_us:.4g} us" for p in self.best.values()) or "none yet"
        first = points[0]
        result = "" if first.status == "passed" else f" {first.status}: {first.reason}"
        return f"{first.variant}{result} | best {best} | {rate:.2f}/s, {(self.total - self.done) / rate:.0f} s left"


@dataclass(frozen=True)
class Winner:
    """What came of the finals on one problem. ``comparisons`` are the candidates against the incumbent."""

    problem: str
    incumbent: str
    winner: str
    comparisons: tuple[Compared, ...]


def record_points(session: Session, build: BuildResult, measured: Sequence[Measured]) -> None:
    """Insert a variant's points, with all samples."""
    for m in measured:
        p = m.point
        figures = {"mode": "cold", "median_us": p.median_us, "q1_us": p.q1_us, "q3_us": p.q3_us, "num_samples": p.num_samples}
        session.record(
            build,
            kind="sweep",
            variant=p.variant,
            problem=p.problem,
            status=p.status,
            reason=p.reason,
            figures=figures | {"clock_mhz": p.clock_mhz},
            samples=m.samples_us,
            clocks=m.clocks_mhz,
            clock_label=m.clock_label,
            inputs=TIMING_DISTRIBUTION,
        )


def find_recorded(session: Session, build: BuildResult, problems: Sequence[Problem]) -> list[SweepPoint] | None:
    """Return the points of this very build in this very environment from earlier runs, None unless there is one for each problem."""
    points = []
    for problem in problems:
        earlier = session.find_earlier("sweep", build, problem.name) if build.library is not None else None
        if earlier is None:
            return None
        f = earlier.figures
        figures = {k: f[k] for k in ("median_us", "q1_us", "q3_us", "num_samples", "clock_mhz")}
        points.append(
            SweepPoint(session.loaded.op.name, build.variant.name, problem.name, earlier.status, earlier.reason, build.code_hash, **figures)
        )
    return points


def hold_finals(
    session: Session, builds: Sequence[BuildResult], binding: Path, points: Sequence[SweepPoint], problem: Problem, num_finalists: int
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
    timer = Timer(session.device)
    try:
        rows = tuple(compare_sides(session, timer, sides[0], sides[1:], [problem], Mode.COLD, Criteria()))
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
