"""``sweep``: time a wide sample of an op's tunable space on a GPU, and the fastest of them anew."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands.options import DeviceName, Jobs, OpName, ProblemNames, TargetName
from harness.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.build import BuildResult
    from harness.sweep import SweepPoint


class Strategy(StrEnum):
    """Which variants are swept."""

    RANDOM = "random"
    GRID = "grid"


StrategyName = Annotated[Strategy, typer.Option("--strategy", help="random: a sample of each kernel's space; grid: all of it")]
PerKernel = Annotated[int, typer.Option("--per-kernel", min=1, metavar="N", help="random: variants of each kernel, the listed ones too")]
Samples = Annotated[int, typer.Option("--samples", min=5, metavar="N", help="cold launches that are timed of each in the screen")]
Finalists = Annotated[int, typer.Option("--finalists", min=0, metavar="N", help="variants that are measured anew beside the incumbent")]
Resume = Annotated[bool, typer.Option("--resume", help="take what an earlier sweep recorded of the same builds, and measure the rest")]
SavePath = Annotated[
    Path | None, typer.Option("--save", metavar="FILE", help="write the points as JSON, for the time model", dir_okay=False)
]


def run(
    op: OpName,
    problem: ProblemNames = None,
    strategy: StrategyName = Strategy.RANDOM,
    per_kernel: PerKernel = 24,
    samples: Samples = 20,
    finalists: Finalists = 5,
    resume: Resume = False,
    save: SavePath = None,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
) -> ExitCode:
    """Build a sample of an op's tunable space, prove each variant on small problems, time it briefly, and measure the fastest anew.

    Compilers and the GPU work at the same time. Every result is recorded at once: an interrupted sweep goes on with --resume. The
    fastest listed variant is the incumbent, and stays the winner unless a finalist is FASTER on fresh samples.

    \b
    Examples:
      python -m harness sweep transpose
      python -m harness sweep softmax --per-kernel 100 --save softmax.json
      python -m harness sweep transpose --strategy grid --resume
    """
    from datetime import UTC, datetime

    from device import UnavailableError
    from device.settings import find_project_root
    from harness.build import build_binding, build_op
    from harness.compiler import Compiler
    from harness.console import open_progress
    from harness.discover import find_op
    from harness.provenance import find_commit
    from harness.session import Session
    from harness.space import list_space, sample_space, select_sweep_problems
    from harness.sweep import Sweep, SweepSetup, SweepWorker, save_sweep, screen
    from harness.sweeping import Progress, find_recorded, hold_finals, record_points

    loaded = find_op(op)
    problems = select_sweep_problems(loaded.op, problem or [])
    if strategy is Strategy.GRID:
        variants = tuple(v for kernel in loaded.op.kernels for v in list_space(kernel))
    else:
        variants = sample_space(loaded.op, per_kernel)
    points: list[SweepPoint] = []
    builds: list[BuildResult] = []
    with Session.start(loaded, f"sweep {op} --strategy {strategy}", device=device, target=target, jobs=jobs) as session:
        if session.device.is_emulated:
            raise UnavailableError(
                f"a sweep measures times, which need a GPU; `python -m harness model {op}` ranks the same variants without one"
            )
        binding = build_binding(loaded, session.toolchain)
        setup = SweepSetup(loaded.folder, binding, session.device_kind, tuple(p.name for p in problems), samples)
        state = Progress(len(variants))

        def build_all(on_result: Callable[[BuildResult], None], compiler: Compiler) -> None:
            build_op(
                loaded,
                variants,
                toolchain=session.toolchain,
                target=session.target,
                jobs=session.settings.jobs,
                on_result=on_result,
                compiler=compiler,
            )

        def is_known(build: BuildResult) -> bool:
            earlier = find_recorded(session, build, problems) if resume else None
            if earlier is not None:
                points.extend(earlier)
                builds.append(build)
                progress.advance(f"recorded before: {state.add(earlier)}")
            return earlier is not None

        with open_progress(f"sweep {op}", len(variants)) as progress:
            for build, measured in screen(SweepWorker, setup, loaded.op, build_all, is_known):
                record_points(session, build, measured)
                found = [m.point for m in measured]
                points += found
                builds.append(build)
                progress.advance(state.add(found))
        about = {
            "device": session.device.properties.name,
            "target": session.target.name,
            "toolchain": session.toolchain.identity,
            "commit": find_commit(find_project_root()).sha,
            "date": datetime.now(UTC).date().isoformat(),
            "samples": str(samples),
        }
        if save is not None:
            save_sweep(save, Sweep(about, tuple(points)))
        for p in problems:
            _print_screen(points, p.name)
            winner = hold_finals(session, builds, binding, points, p, finalists) if finalists else None
            if winner is not None:
                for row in winner.comparisons:
                    said = f"{row.outcome.verdict} {row.outcome.effect.describe()}" if row.outcome else row.reason
                    print(f"  final: {row.candidate}: {said}")
                stays = " (the incumbent stays)" if winner.winner == winner.incumbent else f", faster than {winner.incumbent}"
                print(f"  winner: {winner.winner}{stays}")
    timed = [x for x in points if x.status == "passed"]
    failed = [x for x in points if x.status == "failed"]
    for x in failed:
        print(f"failed: {x.variant} on {x.problem}: {x.reason}")
    print(f"{len(timed)} points timed, {len(failed)} failed, {len(points) - len(timed) - len(failed)} not served")
    return ExitCode.DONE if timed else ExitCode.CHECK_FAILED


def _print_screen(points: list[SweepPoint], problem: str) -> None:
    timed = sorted((p for p in points if p.status == "passed" and p.problem == problem), key=lambda p: p.median_us)
    print(f"{problem}: fastest of {len(timed)} in the screen")
    for p in timed[:5]:
        print(f"  {p.median_us:10.2f} us  {p.variant}")
