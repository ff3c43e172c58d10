"""A whole sweep: the screen, the finals of each problem, the file of points, and the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from device.settings import find_project_root
from harness.benchmark.session import Session
from harness.build.builder import BuildResult
from harness.records.provenance import find_commit
from harness.records.sweeps import Sweep, SweepPoint, save_sweep
from harness.spec import Problem, SpecError
from harness.sweep.finals import Winner, hold_finals
from harness.sweep.progress import GpuUse, Progress
from harness.sweep.run import SweepPlan, SweepRun
from harness.sweep.startup import Preparation
from harness.terminal.console import open_progress
from harness.timing.ahead import ExpectedAhead
from harness.timing.rounds import expect_timed

__all__ = ["SweepDone", "SweepPlan", "run_sweep"]

# So many of what was set aside are named.
_MAX_SET_ASIDE = 10


@dataclass(frozen=True)
class SweepDone:
    """All points, the winner of each problem's finals, and how busy the GPUs were; ``is_model`` where nothing was timed."""

    points: list[SweepPoint]
    winners: list[Winner]
    gpu_use: dict[str, Any]
    is_model: bool

    def to_json(self, op: str) -> dict[str, Any]:
        """Return plain values."""
        points, winners = [vars(p) for p in self.points], [w.to_json() for w in self.winners]
        return {"op": op, "points": points, "winners": winners, "gpu_use": self.gpu_use}

    def describe_counts(self) -> list[str]:
        """Say how many points came to what, and what is wrong with those that failed."""
        lines = []
        by_status = {status: [x for x in self.points if x.status == status] for status in ("passed", "failed", "set_aside", "unsupported")}
        for status, shown in (("failed", by_status["failed"]), ("set aside", by_status["set_aside"][:_MAX_SET_ASIDE])):
            lines += [f"{status}: {x.variant} on {x.problem}: {x.reason}" for x in shown]
        passed, failed, set_aside, unsupported = (len(points) for points in by_status.values())
        if set_aside > _MAX_SET_ASIDE:
            lines.append(f"set aside: {set_aside - _MAX_SET_ASIDE} more, with their reasons in the records")
        pruned = sum(x.is_pruned for x in self.points)
        given_up = f" ({pruned} of them given up early)" if pruned else ""
        timed = f"{passed} points {'modelled' if self.is_model else 'timed'}{given_up}"
        return [*lines, f"{timed}, {failed} failed, {set_aside} set aside, {unsupported} not served"]


def run_sweep(
    session: Session,
    plan: SweepPlan,
    problems: tuple[Problem, ...],
    preparation: Preparation,
    num_finalists: int,
    save: Path | None,
    *,
    quiet: bool,
    say: Callable[[str], None],
) -> SweepDone:
    """Screen variants, hold the finals on a GPU, and write the points to ``save``.

    ``say`` hears of each problem's fastest and winner as they are known; ``quiet`` shows no progress.
    Raises SpecError where the plan does not fit the device.
    """
    op, is_model = session.loaded.op, session.device.is_emulated
    if is_model and save is not None:
        raise SpecError("--save writes measured times, and on the emulated device nothing is timed")
    sweep, use = SweepRun(session, plan, problems, preparation), GpuUse()
    holds_finals = bool(num_finalists) and not is_model
    winners: list[Winner] = []
    with ExpectedAhead(op, problems if holds_finals else (), expect_timed, num_threads=1) as ahead:
        points, builds = _screen(sweep, op.name, use, quiet=quiet)
        if save is not None:
            save_sweep(save, Sweep(_describe_sweep(session, plan.num_samples), tuple(points)))
        for p in problems:
            _tell_screen(points, p.name, session.target.name if is_model else "", say)
            winner = hold_finals(session, builds, sweep.binding, points, p, num_finalists, ahead) if holds_finals else None
            if winner is not None:
                winners.append(winner)
                _tell_winner(winner, say)
    figures = use.to_figures()
    if figures:
        session.record(None, kind="sweep_use", variant="*", problem="*", status="passed", figures=figures)
        say(use.describe())
    return SweepDone(points, winners, figures, is_model)


def _screen(sweep: SweepRun, op: str, use: GpuUse, *, quiet: bool) -> tuple[list[SweepPoint], list[BuildResult]]:
    """Return all points and builds of the screen, and tell ``use`` what each took of a GPU."""
    state = Progress(sweep.size)
    points: list[SweepPoint] = []
    builds: list[BuildResult] = []
    with open_progress(f"sweep {op}", sweep.size, quiet=quiet) as progress:
        for found in sweep.run():
            own = [m.point for m in found.points]
            use.add(own, found.usage)
            points += own
            builds.append(found.build)
            progress.advance(("recorded before: " if found.is_earlier else "") + state.add(own))
    return points, builds


def _describe_sweep(session: Session, samples: int) -> dict[str, str]:
    return {
        "device": session.device.properties.name,
        "target": session.target.name,
        "toolchain": session.toolchain.identity,
        "commit": find_commit(find_project_root()).sha,
        "date": datetime.now(UTC).date().isoformat(),
        "samples": str(samples),
    }


def _tell_screen(points: list[SweepPoint], problem: str, model_of: str, say: Callable[[str], None]) -> None:
    timed = sorted((p for p in points if p.status == "passed" and p.problem == problem), key=lambda p: p.median_us)
    where = f"by the time model of {model_of}: nothing was timed, nothing was proved" if model_of else "in the screen"
    say(f"{problem}: fastest of {len(timed)} {where}")
    for p in timed[:5]:
        interval = f"  ({p.q1_us:.2f} to {p.q3_us:.2f})" if model_of else ""
        say(f"  {p.median_us:10.2f} us  {p.variant}{interval}")


def _tell_winner(winner: Winner, say: Callable[[str], None]) -> None:
    for row in winner.comparisons:
        said = f"{row.outcome.verdict} {row.outcome.effect.describe()}" if row.outcome else row.reason
        say(f"  final: {row.candidate}: {said}")
    stays = " (the incumbent stays)" if winner.winner == winner.incumbent else f", faster than {winner.incumbent}"
    say(f"  winner: {winner.winner}{stays}")
