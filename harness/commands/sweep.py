"""Build a sample of an op's tunable space, verify each variant on small problems, time it briefly, and measure the fastest again.

Compilers and the GPU work at the same time. Every result is recorded immediately: an interrupted sweep continues with --resume. The
fastest listed variant is the incumbent and remains the winner unless a finalist is FASTER on fresh samples. On the emulated device
nothing is timed: variants are ranked by the time model.

\b
Examples:
  # 24 variants of each kernel; without a GPU, ranked by the time model
  python -m harness sweep transpose
  # continue after an interrupt
  python -m harness sweep transpose --resume
  # let Optuna search a larger space, and abandon slow variants early
  python -m harness sweep softmax --strategy tpe --per-kernel 60 --prune 2
  # a hundred variants in all
  python -m harness sweep softmax --strategy tpe --trials 100
  # every legal variant, on four GPUs of this machine
  python -m harness sweep transpose --strategy grid --gpus 4
  # points for the time model's validation
  python -m harness sweep softmax --per-kernel 100 --save softmax.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, TargetName
from harness.errors import ExitCode
from harness.sweep.strategies import StrategyName
from harness.terminal.console import print_json
from harness.verbs.sweep import sweep

StrategyChoice = Annotated[
    StrategyName,
    typer.Option("--strategy", help="random: a sample of each kernel's space; grid: all of it; tpe, cmaes: Optuna learns from the results"),
]
PerKernel = Annotated[
    int, typer.Option("--per-kernel", min=1, metavar="N", help="variants of each kernel, including the listed ones; not for grid")
]
Trials = Annotated[
    int | None, typer.Option("--trials", min=1, metavar="N", help="variants in total, instead of --per-kernel; not for grid")
]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="tpe, cmaes: seed of the sampler")]
Samples = Annotated[int, typer.Option("--samples", min=5, metavar="N", help="cold launches timed per variant in the screen")]
Prune = Annotated[
    float,
    typer.Option(
        "--prune", min=0.0, metavar="FACTOR", help="abandon a variant after a few samples if it is this much slower than the best; 0: never"
    ),
]
Keep = Annotated[
    float, typer.Option("--keep", min=0.01, max=1.0, metavar="SHARE", help="random, grid: time only this share, the best by the time model")
]
WithSpills = Annotated[bool, typer.Option("--with-spills", help="also time unlisted variants whose registers ptxas spills")]
Finalists = Annotated[int, typer.Option("--finalists", min=0, metavar="N", help="variants that are measured again, against the incumbent")]
Resume = Annotated[bool, typer.Option("--resume", help="reuse what an earlier sweep recorded for the same builds, and measure the rest")]
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
    trials: Trials = None,
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
    done = sweep(
        op,
        problem,
        strategy,
        per_kernel,
        trials,
        seed,
        samples,
        prune,
        keep,
        with_spills,
        finalists,
        resume,
        gpus,
        scheduler,
        save,
        device,
        target,
        jobs,
        quiet=json,
        say=(lambda text: None) if json else print,
    )
    if json:
        print_json(done.to_json(op))
    else:
        print(*done.describe_counts(), sep="\n")
    return ExitCode.DONE if any(p.status == "passed" for p in done.points) else ExitCode.CHECK_FAILED
