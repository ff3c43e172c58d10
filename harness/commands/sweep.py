"""Build a sample of an op's tunable space, prove each variant on small problems, time it briefly, and measure the fastest anew.

Compilers and the GPU work at the same time. Every result is recorded at once: an interrupted sweep goes on with --resume. The
fastest listed variant is the incumbent, and stays the winner unless a finalist is FASTER on fresh samples. On the emulated device
nothing is timed: variants are ranked by the time model.

\b
Examples:
  # 24 variants of each kernel; with no GPU, ranked by the time model
  python -m harness sweep transpose
  # go on after an interrupt
  python -m harness sweep transpose --resume
  # let Optuna look among more, and give up early on what is slow
  python -m harness sweep softmax --strategy tpe --per-kernel 60 --prune 2
  # every legal variant, on four GPUs of this machine
  python -m harness sweep transpose --strategy grid --gpus 4
  # points for the time model's validation
  python -m harness sweep softmax --per-kernel 100 --save softmax.json
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, TargetName
from harness.errors import ExitCode, UseError
from harness.sweep.strategies import StrategyName

if TYPE_CHECKING:
    from harness.benchmark.session import Session
    from harness.records.sweeps import SweepPoint
    from harness.sweep.finals import Winner

# So many of what was set aside are named.
_MAX_SET_ASIDE = 10

StrategyChoice = Annotated[
    StrategyName,
    typer.Option("--strategy", help="random: a sample of each kernel's space; grid: all of it; tpe, cmaes: Optuna learns from the results"),
]
PerKernel = Annotated[
    int, typer.Option("--per-kernel", min=1, metavar="N", help="variants of each kernel, the listed ones too; not of grid")
]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="tpe, cmaes: where the sampler starts")]
Samples = Annotated[int, typer.Option("--samples", min=5, metavar="N", help="cold launches that are timed of each in the screen")]
Prune = Annotated[
    float,
    typer.Option(
        "--prune", min=0.0, metavar="FACTOR", help="give a variant up after a few samples if it is this much slower than the best; 0: never"
    ),
]
Keep = Annotated[
    float, typer.Option("--keep", min=0.01, max=1.0, metavar="SHARE", help="random, grid: time only the first of the time model's order")
]
WithSpills = Annotated[bool, typer.Option("--with-spills", help="also time unlisted variants whose registers ptxas spills")]
Finalists = Annotated[int, typer.Option("--finalists", min=0, metavar="N", help="variants that are measured anew beside the incumbent")]
Resume = Annotated[bool, typer.Option("--resume", help="take what an earlier sweep recorded of the same builds, and measure the rest")]
Gpus = Annotated[int, typer.Option("--gpus", min=1, metavar="N", help="measure on this many GPUs of this machine, through Dask")]
Scheduler = Annotated[str | None, typer.Option("--scheduler", metavar="tcp://…", help="measure on the workers of this Dask scheduler")]
SavePath = Annotated[
    Path | None,
    typer.Option(
        "--save", metavar="FILE", help="write the points as JSON, for the time model; samples are then taken one by one", dir_okay=False
    ),
]


def run(
    op: OpName,
    problem: ProblemNames = None,
    strategy: StrategyChoice = StrategyName.RANDOM,
    per_kernel: PerKernel = 24,
    seed: Seed = 0,
    samples: Samples = 20,
    prune: Prune = 0.0,
    keep: Keep = 1.0,
    with_spills: WithSpills = False,
    finalists: Finalists = 5,
    resume: Resume = False,
    gpus: Gpus = 1,
    scheduler: Scheduler = None,
    save: SavePath = None,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    from harness.discover import find_op
    from harness.sweep.space import select_sweep_problems
    from harness.sweep.startup import Preparation
    from harness.terminal.console import claim_output, open_progress, print_json

    loaded = find_op(op)
    if scheduler is not None and not re.fullmatch(r"([a-z]+://)?[^\s/:]+:\d+|inproc://.+", scheduler):
        raise UseError(f"--scheduler {scheduler}: is no address; write tcp://HOST:PORT")
    if save is not None:
        claim_output(save, "--save")
    problems = select_sweep_problems(loaded.op, problem or [])
    with Preparation(loaded, problems, device, starts_processes=gpus == 1 and scheduler is None and not resume) as preparation:
        # Only now: the processes that measure import the same meanwhile.
        from harness.benchmark.session import Session
        from harness.records.sweeps import Sweep, save_sweep
        from harness.spec import SpecError
        from harness.sweep.finals import Expectations, hold_finals
        from harness.sweep.progress import GpuUse, Progress
        from harness.sweep.run import SweepPlan, SweepRun

        plan = SweepPlan(strategy, per_kernel, seed, samples, prune, keep, with_spills, resume, gpus, scheduler, is_exact=save is not None)
        with Session.start(loaded, f"sweep {op} --strategy {strategy}", device=device, target=target, jobs=jobs) as session:
            is_model = session.device.is_emulated
            if is_model and save is not None:
                raise SpecError("--save writes measured times, and on the emulated device nothing is timed")
            sweep = SweepRun(session, plan, problems, preparation)
            holds_finals = bool(finalists) and not is_model
            expectations = Expectations(loaded.op, problems if holds_finals else ())
            state, use = Progress(sweep.size), GpuUse()
            points: list[SweepPoint] = []
            builds = []
            winners: list[Winner] = []
            with open_progress(f"sweep {op}", sweep.size, quiet=json) as progress:
                for found in sweep.run():
                    own = [m.point for m in found.points]
                    use.add(own, found.usage)
                    points += own
                    builds.append(found.build)
                    progress.advance(("recorded before: " if found.is_earlier else "") + state.add(own))
            if save is not None:
                save_sweep(save, Sweep(_describe_sweep(session, samples), tuple(points)))
            for p in problems:
                if not json:
                    _print_screen(points, p.name, session.target.name if is_model else "")
                winner = hold_finals(session, builds, sweep.binding, points, p, finalists, expectations) if holds_finals else None
                if winner is not None:
                    winners.append(winner)
                    if not json:
                        _print_winner(winner)
            figures = use.to_figures()
            if figures:
                session.record(None, kind="sweep_use", variant="*", problem="*", status="passed", figures=figures)
                if not json:
                    print(use.describe())
    if json:
        print_json({"op": op, "points": [vars(p) for p in points], "winners": [w.to_json() for w in winners], "gpu_use": figures})
    else:
        _print_counts(points, is_model=is_model)
    return ExitCode.DONE if any(p.status == "passed" for p in points) else ExitCode.CHECK_FAILED


def _describe_sweep(session: Session, samples: int) -> dict[str, str]:
    from datetime import UTC, datetime

    from device.settings import find_project_root
    from harness.records.provenance import find_commit

    return {
        "device": session.device.properties.name,
        "target": session.target.name,
        "toolchain": session.toolchain.identity,
        "commit": find_commit(find_project_root()).sha,
        "date": datetime.now(UTC).date().isoformat(),
        "samples": str(samples),
    }


def _print_screen(points: list[SweepPoint], problem: str, model_of: str) -> None:
    timed = sorted((p for p in points if p.status == "passed" and p.problem == problem), key=lambda p: p.median_us)
    where = f"by the time model of {model_of}: nothing was timed, nothing was proved" if model_of else "in the screen"
    print(f"{problem}: fastest of {len(timed)} {where}")
    for p in timed[:5]:
        interval = f"  ({p.q1_us:.2f} to {p.q3_us:.2f})" if model_of else ""
        print(f"  {p.median_us:10.2f} us  {p.variant}{interval}")


def _print_winner(winner: Winner) -> None:
    for row in winner.comparisons:
        said = f"{row.outcome.verdict} {row.outcome.effect.describe()}" if row.outcome else row.reason
        print(f"  final: {row.candidate}: {said}")
    stays = " (the incumbent stays)" if winner.winner == winner.incumbent else f", faster than {winner.incumbent}"
    print(f"  winner: {winner.winner}{stays}")


def _print_counts(points: list[SweepPoint], *, is_model: bool) -> None:
    by_status = {status: [x for x in points if x.status == status] for status in ("passed", "failed", "set_aside", "unsupported")}
    for status, shown in (("failed", by_status["failed"]), ("set aside", by_status["set_aside"][:_MAX_SET_ASIDE])):
        for x in shown:
            print(f"{status}: {x.variant} on {x.problem}: {x.reason}")
    if (left := len(by_status["set_aside"]) - _MAX_SET_ASIDE) > 0:
        print(f"set aside: {left} more, with their reasons in the records")
    pruned = sum(x.is_pruned for x in points)
    counts = f"{len(by_status['passed'])} points {'modelled' if is_model else 'timed'}" + (
        f" ({pruned} of them given up early)" if pruned else ""
    )
    print(
        f"{counts}, {len(by_status['failed'])} failed, {len(by_status['set_aside'])} set aside, {len(by_status['unsupported'])} not served"
    )
