"""A sweep's points without a GPU: each variant's time by the model, from samples of its blocks on the emulated device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from device import open_device
from device.interface import UnavailableError
from device.toolchain import find_toolchain
from harness.build.binding import open_variant
from harness.build.builder import BuildResult, describe_build
from harness.build.disassemble import read_sass
from harness.build.sass import SassKernel
from harness.discover import load_op
from harness.model.features import Features, collect_features
from harness.model.time_model import load_machine, predict
from harness.processes.feed import JobFeed
from harness.processes.pool import Lost, run_jobs
from harness.records.sweeps import SweepPoint
from harness.spec import Launchable, Problem
from harness.sweep.points import Answer, Measured
from harness.sweep.space import select_sweep_problems
from harness.sweep.worker import SweepJob, SweepSetup
from harness.targets import find_target

Entry = tuple[BuildResult, Launchable, Mapping[str, SassKernel]]

MODEL_MODE = "model"
_TIMEOUT_S = 300.0


class ModelWorker:
    """Models variants in a process of its own, on one host thread; nothing is timed and nothing is proved."""

    def __init__(self, setup: SweepSetup) -> None:
        self.spent = False
        self._device = open_device("emulated")
        if self._device.observer is not None:
            self._device.observer.set_option("workers", "1")
            self._device.observer.set_option("target", setup.target)
        self._op = load_op(setup.op_folder)
        self._target = find_target(setup.target)
        self._machine = load_machine(setup.target)
        self._toolchain = find_toolchain()
        self._problems = select_sweep_problems(self._op, setup.problem_names)
        self._collectors: dict[str, Iterator[tuple[BuildResult, Features | str]]] = {}
        self._entry: Entry

    def run(self, job: SweepJob, report: Callable[[str], None]) -> Answer:
        """Return a modelled point per problem; the quartiles are the bounds of the model's interval."""
        launchable = open_variant(self._op, job.binding, job.library, job.variant)
        try:
            sass = {kernel.name: kernel for kernel in read_sass(job.library, self._toolchain)}
        except UnavailableError:
            sass = {}  # without the disassembler the model takes PTX's counts for the machine code's
        entry = (describe_build(job.variant, job.library), launchable, sass)
        points = []
        for problem in self._problems:

            def make(status: str, reason: str = "", problem_name: str = problem.name, **figures: float) -> Measured:
                name = job.variant.name
                point = SweepPoint(self._op.name, name, problem_name, status, reason[:300], job.code_hash, mode=MODEL_MODE, **figures)  # type: ignore[arg-type]
                return Measured(point)

            try:
                found = self._collect(problem, entry)
            except RuntimeError as error:
                points.append(make("failed", str(error)))
                continue
            if isinstance(found, Features):
                p = predict(found, self._target, self._machine)
                points.append(make("passed", median_us=p.time_us, q1_us=p.low_us, q3_us=p.high_us))
            else:
                points.append(make("unsupported", found))
            report(f"{problem.name}: modelled")
        return Answer(tuple(points))

    def _collect(self, problem: Problem, entry: Entry) -> Features | str:
        """Return the features of a variant; the problem's tensors stay in memory from one to the next."""
        self._entry = entry
        try:
            return next(self._collectors.setdefault(problem.name, self._open_collector(problem)))[1]
        except BaseException:
            # A generator that raised has ended.
            self._collectors.pop(problem.name)
            raise

    def _open_collector(self, problem: Problem) -> Iterator[tuple[BuildResult, Features | str]]:
        entries = iter(lambda: self._entry, None)
        return collect_features(self._device, self._op, problem, entries, self._target)


def rank_by_model(
    setup: SweepSetup, binding: Path, builds: Sequence[BuildResult], keep: float, num_workers: int
) -> tuple[list[BuildResult], list[tuple[BuildResult, str]]]:
    """Return the builds worth measuring, the best by the model first, and the others with the reason.

    Of each problem the share ``keep`` of those that serve it is kept, at least one, and whatever the model cannot judge.
    """
    by_code = {b.code_hash: b for b in builds}
    jobs = [SweepJob(b.variant, b.library, binding, b.code_hash) for b in builds if b.library is not None]
    times: dict[str, dict[str, float]] = {}
    unknown = []
    feed = JobFeed(jobs, is_closed=True)
    for job, answer in run_jobs(ModelWorker, (setup,), feed, num_workers=num_workers, timeout_s=_TIMEOUT_S):
        if isinstance(answer, Lost) or any(m.point.status == "failed" for m in answer.points):
            unknown.append(job.code_hash)
            continue
        for m in answer.points:
            if m.point.status == "passed":
                times.setdefault(m.point.problem, {})[job.code_hash] = m.point.median_us
    places: dict[str, float] = dict.fromkeys(unknown, 0.0)
    for found in times.values():
        for place, code_hash in enumerate(sorted(found, key=lambda c: found[c])):
            places[code_hash] = min(places.get(code_hash, 1.0), place / len(found))
    order = sorted(places, key=lambda c: places[c])
    kept = [by_code[c] for c in order if places[c] < keep or places[c] == 0.0]
    behind = f"behind the first {keep:.0%} by the model"
    others = [(by_code[c], behind) for c in order if places[c] >= keep and places[c] > 0.0]
    return kept, [*others, *((b, "serves none of the problems") for c, b in by_code.items() if c not in places)]
