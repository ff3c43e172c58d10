"""``sweep``: a sample of an op's tunable space, searched on GPUs, or ranked by the time model.

This module imports little: the processes that measure start while the rest is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UseError
from harness.spec import SpecError
from harness.sweep.space import select_sweep_problems
from harness.sweep.startup import Preparation
from harness.sweep.strategies import StrategyName
from harness.terminal.console import claim_output
from harness.verbs.naming import Names, OpLike, list_names, take_op

if TYPE_CHECKING:
    from harness.sweep.whole import SweepDone


def sweep(
    op: OpLike,
    problem: Names = None,
    strategy: StrategyName | str = StrategyName.RANDOM,
    per_kernel: int = 24,
    trials: int | None = None,
    seed: int = 0,
    samples: int = 20,
    prune: float = 0.0,
    keep: float = 1.0,
    with_spills: bool = False,
    finalists: int = 5,
    resume: bool = False,
    gpus: int = 1,
    scheduler: str | None = None,
    save: Path | None = None,
    device: str | None = None,
    target: str | None = None,
    jobs: int | None = None,
    *,
    quiet: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> SweepDone:
    """Search the space; every point is recorded at once, and ``resume`` takes what was recorded. ``say`` hears of the fastest.

    Raises SpecError for a plan that does not fit the op or the device, UseError for an address that is none.
    """
    loaded = take_op(op)
    chosen = find_strategy(strategy)
    if scheduler is not None and not re.fullmatch(r"([a-z]+://)?[^\s/:]+:\d+|inproc://.+", scheduler):
        raise UseError(f"--scheduler {scheduler}: is not an address; write tcp://HOST:PORT")
    if save is not None:
        save = Path(save)
        claim_output(save, "--save")
    problems = select_sweep_problems(loaded.op, list_names(problem))
    with Preparation(loaded, problems, device, starts_processes=gpus == 1 and scheduler is None and not resume) as preparation:
        from harness.benchmark.session import Session  # only now: the processes that measure import the same meanwhile
        from harness.sweep.whole import SweepPlan, run_sweep

        is_exact = save is not None
        plan = SweepPlan(chosen, per_kernel, seed, samples, prune, keep, with_spills, resume, gpus, scheduler, is_exact, trials)
        with Session.start(loaded, f"sweep {loaded.op.name} --strategy {chosen}", device=device, target=target, jobs=jobs) as session:
            return run_sweep(session, plan, problems, preparation, finalists, save, quiet=quiet, say=say)


def find_strategy(name: StrategyName | str) -> StrategyName:
    """Return the strategy of that name; raises SpecError with those that there are."""
    if name not in list(StrategyName):
        raise SpecError(f"--strategy {name}: must be one of {', '.join(StrategyName)}")
    return StrategyName(name)
