"""What ``sweep`` does: builds what a strategy proposes, leaves out what is not worth the GPU's time, measures and records the rest.

Variants pass in this order: the constraints of ``op.py``; ptxas' resources; the records of earlier sweeps; the time model's ranking,
where it is asked for; the screen. The finals come after it (:mod:`harness.sweep.finals`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.benchmark.session import Session
from harness.build.builder import BuildResult, build_stream
from harness.build.compiler import Compiler
from harness.processes.feed import JobFeed
from harness.processes.pool import Lost, run_jobs
from harness.records.database import make_uid
from harness.records.sweeps import SweepPoint
from harness.records.tables import Result
from harness.spec import Problem, SpecError
from harness.sweep.cluster import open_cluster, run_jobs_on
from harness.sweep.points import Answer, Measured
from harness.sweep.proposals import Proposals, limit_lag
from harness.sweep.screening import Found, Measure, Steps, screen
from harness.sweep.startup import PER_GPU, Preparation
from harness.sweep.strategies import Score, Strategy, StrategyName, make_strategy
from harness.sweep.without_gpu import ModelWorker, rank_by_model
from harness.sweep.worker import QUEUED_SAMPLES, SweepJob, SweepSetup, SweepWorker
from harness.timing.rounds import TIMING_DISTRIBUTION

# Silence after which a variant counts as hung; the first job also starts the process and makes the inputs.
_TIMEOUT_S = 120.0
_FIGURES = ("median_us", "q1_us", "q3_us", "num_samples", "clock_mhz", "gpu", "mode", "is_pruned")


@dataclass(frozen=True)
class SweepPlan:
    """What is asked of a sweep. ``prune`` and ``keep`` as in :class:`SweepSetup` and :func:`rank_by_model`; 0 and 1 leave them out.

    ``num_gpus`` above 1, or a ``scheduler``'s address, measure through Dask. ``is_exact`` queues samples one by one. ``trials`` is how
    many variants are tried at most, of all kernels together; None: as many as ``per_kernel`` of each.
    """

    strategy: StrategyName = StrategyName.RANDOM
    per_kernel: int = 24
    seed: int = 0
    num_samples: int = 20
    prune: float = 0.0
    keep: float = 1.0
    with_spills: bool = False
    resume: bool = False
    num_gpus: int = 1
    scheduler: str | None = None
    is_exact: bool = False
    trials: int | None = None


class SweepRun:
    """One sweep of a session's op. Iterate :meth:`run`; ``size`` is how many variants there will be at most.

    ``preparation`` is of this op, and its builds have begun; it takes less time where it began before the session.
    """

    def __init__(self, session: Session, plan: SweepPlan, problems: tuple[Problem, ...], preparation: Preparation) -> None:
        self._session = session
        self._preparation = preparation
        self._plan = plan
        self._problems = problems
        op = session.loaded.op
        self._strategy: Strategy = make_strategy(op, plan.strategy, plan.per_kernel, plan.seed, plan.trials)
        if self._strategy.is_adaptive and plan.keep < 1:
            raise SpecError(f"--strategy {plan.strategy} chooses by what it measured: --keep goes with random and grid")
        if plan.keep < 1 and session.device.is_emulated:
            raise SpecError("on the emulated device every point is the model's already: --keep is for a GPU")
        self.size = self._strategy.size
        # Compilers and GPU have this many variants to work on before the first result must be known.
        lag = limit_lag(session.settings.jobs + PER_GPU * max(1, plan.num_gpus), self.size)
        self._proposals = Proposals(self._strategy, lag)
        self._listed = {v.name for v in op.variants}

    @property
    def binding(self) -> Path:
        """The op's binding; raises :class:`BuildError` where it does not compile."""
        return self._preparation.binding

    def _make_setup(self) -> SweepSetup:
        session, plan = self._session, self._plan
        names = tuple(p.name for p in self._problems)
        queued = 1 if plan.is_exact else QUEUED_SAMPLES
        return SweepSetup(session.loaded.folder, session.device_kind, names, plan.num_samples, session.target.name, plan.prune, queued)

    def run(self) -> Iterator[Found]:
        """Yield each variant's points as they come, recorded already."""
        choose = None
        if self._plan.keep < 1:
            choose = lambda builds: rank_by_model(self._make_setup(), self.binding, builds, self._plan.keep, self._session.settings.jobs)  # noqa: E731
        earlier = self._find_earlier if self._plan.resume else lambda build: None
        steps = Steps(earlier, self._find_obstacle, choose, self._tell, lambda: self.binding, self._proposals.close)
        with ExitStack() as stack:
            found = screen(self._open_measure(stack), self._session.loaded.op, self._problems, self._build, steps)
            for each in stack.enter_context(closing(found)):  # type: ignore[type-var]
                if not each.is_earlier:
                    record_points(self._session, each)
                yield each

    def _open_measure(self, stack: ExitStack) -> Measure:
        plan = self._plan
        is_emulated = self._session.device.is_emulated
        factory = ModelWorker if is_emulated else SweepWorker
        if plan.num_gpus == 1 and plan.scheduler is None:
            num_workers = self._session.settings.jobs if is_emulated else PER_GPU
            return lambda feed: run_jobs(
                factory,
                (self._make_setup(),),
                feed,
                num_workers=num_workers,
                timeout_s=_TIMEOUT_S,
                crew=self._preparation.crew,
                grace_s=0.0,  # they hold nothing that could be lost, and giving a GPU's context back takes a while
            )
        per_gpu = 1 if is_emulated else PER_GPU
        client = stack.enter_context(open_cluster(plan.scheduler, plan.num_gpus, per_gpu, is_emulated=is_emulated))
        key = make_uid()

        def measure(feed: JobFeed[SweepJob]) -> Iterator[tuple[SweepJob, Answer | Lost]]:
            return run_jobs_on(client, key, factory, (self._make_setup(),), feed, per_gpu=per_gpu, timeout_s=_TIMEOUT_S)

        return measure

    def _build(self, on_result: Callable[[BuildResult], None], compiler: Compiler) -> None:
        session = self._session
        jobs = session.settings.jobs
        build_stream(
            session.loaded,
            self._proposals,
            toolchain=session.toolchain,
            target=session.target,
            jobs=jobs,
            on_result=on_result,
            compiler=compiler,
        )

    def _find_obstacle(self, build: BuildResult) -> str:
        r = build.resources
        if r is None or not r.spill_bytes or self._plan.with_spills or self._is_listed(build.variant.name):
            return ""
        return f"spills {r.spill_bytes} bytes a thread"

    def _is_listed(self, name: str) -> bool:
        # What an op lists is measured in any case: it is what one has now.
        return name in self._listed

    def _find_earlier(self, build: BuildResult) -> tuple[Measured, ...] | None:
        return find_recorded(self._session, build, self._problems)

    def _tell(self, found: Found) -> None:
        self._proposals.tell(found.build.variant, find_score(found))


def find_score(found: Found) -> Score:
    """Return what a strategy is told of a variant."""
    points = [m.point for m in found.points]
    logs = [float(np.log(p.median_us)) for p in points if p.status == "passed"]
    return Score(float(np.mean(logs)) if logs else None, any(p.is_pruned for p in points))


def find_kind(session: Session) -> str:
    """Return the kind of a session's points in the records: ``sweep``, or ``sweep_model`` where nothing is timed."""
    return "sweep_model" if session.device.is_emulated else "sweep"


def record_points(session: Session, found: Found) -> None:
    """Insert a variant's points, with all samples and the GPU that they are of."""
    for m in found.points:
        p = m.point
        session.record(
            found.build,
            kind=find_kind(session),
            variant=p.variant,
            problem=p.problem,
            status=p.status,
            reason=p.reason,
            figures={name: getattr(p, name) for name in _FIGURES} | {"host_hash": found.build.host_hash},
            samples=m.samples_us,
            clocks=m.clocks_mhz,
            clock_label=m.clock_label,
            inputs=TIMING_DISTRIBUTION,
        )


def find_recorded(session: Session, build: BuildResult, problems: tuple[Problem, ...]) -> tuple[Measured, ...] | None:
    """Return the points of this build, or of the same machine code launched alike, in this very environment from earlier sweeps.

    None unless there is one for each problem. What a plan set aside is weighed again by the next.
    """
    points, kind = [], find_kind(session)
    for problem in problems:
        earlier = session.find_earlier(kind, build, problem.name) or session.find_same_launch(kind, build, problem.name)
        if earlier is None or earlier.status == "set_aside":
            return None
        points.append(Measured(_read_point(session, build, earlier)))
    return tuple(points)


def _read_point(session: Session, build: BuildResult, earlier: Result) -> SweepPoint:
    figures = {name: earlier.figures[name] for name in _FIGURES if name in earlier.figures}
    name, op = build.variant.name, session.loaded.op.name
    return SweepPoint(op, name, earlier.problem, earlier.status, earlier.reason, build.code_hash, **figures)
