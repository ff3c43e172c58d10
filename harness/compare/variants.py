"""Comparison of variants: open both sides, hold a contest on each problem, and record every sample and verdict."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.benchmark.session import Session
from harness.build.binding import build_binding, open_variant
from harness.build.builder import BuildResult, build_op
from harness.build.revision import find_op_at
from harness.compare.contest import Contest, run_contest
from harness.errors import BuildError, RecordUseError
from harness.model.roofline import Floor, find_floor
from harness.nvtx_ranges import name_range
from harness.records.tables import Result, read_samples
from harness.spec import Launchable, Op, Problem
from harness.timing.gpu_lock import GpuLock
from harness.timing.placement import Placements
from harness.timing.results import check_floor
from harness.timing.rounds import check_output, expect_timed
from harness.timing.timer import Mode, Subject, Timer
from harness.timing.verdicts import Criteria, Effect, Outcome, Verdict, find_unpaired_effect, judge_effect
from harness.verify.reference import Expected

# Two runs, perhaps of two days: a drift between them is in the effect, so that less is not told apart.
_APART_MARGIN = 0.02


@dataclass(frozen=True)
class Side:
    """A build that takes part, by the name it is shown under; ``op`` and ``binding`` are of the revision that it was built from."""

    name: str
    op: Op
    build: BuildResult
    binding: Path

    def open(self, library: Path | None = None) -> Launchable:
        """Load it; ``library`` is another copy of the same file."""
        assert self.build.library is not None
        return open_variant(self.op, self.binding, library or self.build.library, self.build.variant)


@dataclass(frozen=True)
class Compared:
    """One candidate against the incumbent on one problem. ``outcome`` is None where there was none to be had, for ``reason``.

    ``is_given_up`` says that the incumbent serves the problem and the candidate does not.
    """

    problem: str
    mode: str
    incumbent: str
    candidate: str
    outcome: Outcome | None
    reason: str = ""
    incumbent_us: float | None = None
    candidate_us: float | None = None
    is_void: bool = False
    is_given_up: bool = False

    @property
    def is_regression(self) -> bool:
        """Whether a gate has to stop here: the candidate is slower, its times stand for nothing, or the run's control failed."""
        if self.outcome is None:
            return self.is_void or self.incumbent_us is not None  # timed, and wrong
        return self.is_void or self.outcome.verdict is Verdict.SLOWER

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"verdict": self.outcome.verdict.value if self.outcome else ""}


def open_other_sides(session: Session, revision: str, sides: Sequence[Side]) -> list[tuple[Side, list[Side]]]:
    """Build the same variants as they were at a revision; return each as the incumbent of its present self.

    Raises :class:`SpecError` or :class:`BuildError` where the revision lacks one, or it does not compile.
    """
    loaded, commit = find_op_at(session.loaded.op.name, revision)
    variants = [loaded.op.find_kernel(s.build.variant.kernel).bind(dict(s.build.variant.values)) for s in sides]
    builds = build_op(loaded, variants, toolchain=session.toolchain, target=session.target, jobs=session.settings.jobs)
    if failed := [b for b in builds if b.library is None]:
        raise BuildError(f"{failed[0].variant.name} does not compile at {revision}:\n{failed[0].error}")
    binding = build_binding(loaded, session.toolchain)
    return [(Side(f"{s.name}@{commit[:10]}", loaded.op, b, binding), [s]) for s, b in zip(sides, builds, strict=True)]


def compare_sides(
    session: Session,
    timer: Timer,
    incumbent: Side,
    candidates: Sequence[Side],
    problems: Sequence[Problem],
    mode: Mode,
    criteria: Criteria,
    expect: Callable[[Problem], Expected] | None = None,
) -> Iterator[Compared]:
    """Hold one contest per problem, record it, and yield each candidate's result.

    A candidate with the incumbent's machine code is the same without being timed. ``expect`` gives what :func:`expect_timed` would
    compute, where that is known already.
    """
    different = [c for c in candidates if c.build.code_hash != incumbent.build.code_hash]
    same = [c for c in candidates if c.build.code_hash == incumbent.build.code_hash]
    with tempfile.TemporaryDirectory() as folder:
        # A copy is loaded as a library of its own: the same machine code at another address.
        copy = Path(folder) / "control.so"
        assert incumbent.build.library is not None
        shutil.copyfile(incumbent.build.library, copy)
        opened = [incumbent.open(), incumbent.open(copy), *(c.open() for c in different)]
        for problem in problems:
            for side in same:
                yield Compared(problem.name, mode, incumbent.name, side.name, _make_identical(), "the same machine code: not timed")
            if different:
                yield from _compare_on(session, timer, [incumbent, *different], opened, problem, mode, criteria, expect)


def _make_identical() -> Outcome:
    return Outcome(Verdict.SAME, Effect(0.0, 0.0, 0.0, 1.0, 1.0, 0, 0.0, 1.0))


def _compare_on(
    session: Session,
    timer: Timer,
    sides: Sequence[Side],
    opened: Sequence[Launchable],
    problem: Problem,
    mode: Mode,
    criteria: Criteria,
    expect: Callable[[Problem], Expected] | None,
) -> Iterator[Compared]:
    held = hold_contest(session, timer, sides, opened, problem, mode, criteria, expect=expect)
    incumbent = sides[0]
    for name, reason in held.not_served.items():
        is_given_up = not held.is_incumbent_refused
        yield Compared(problem.name, mode, incumbent.name, name, None, f"not served: {reason}", is_given_up=is_given_up)
    if held.contest is None:
        return
    contest = held.contest
    medians = np.median(contest.times_us, axis=(0, 2))
    for i, name in enumerate(contest.names[2:]):
        fault = held.faults[0] or held.faults[i + 2]
        yield Compared(
            problem.name,
            mode,
            incumbent.name,
            name,
            None if fault else contest.outcomes[i],
            fault or contest.outcomes[i].note,
            float(medians[0]),
            float(medians[i + 2]),
            contest.is_void,
        )


@dataclass(frozen=True)
class Held:
    """A contest on one problem: who was not served and why, the contest (None without a pair to compare), faults and records by contender.

    Contenders are the incumbent, the control, and the candidates that are served, in their order.
    """

    problem: Problem
    mode: Mode
    not_served: Mapping[str, str]
    contest: Contest | None = None
    faults: tuple[str, ...] = ()
    record_ids: tuple[int, ...] = ()
    is_incumbent_refused: bool = False


def hold_contest(
    session: Session,
    timer: Timer,
    sides: Sequence[Side],
    opened: Sequence[Launchable],
    problem: Problem,
    mode: Mode,
    criteria: Criteria,
    budget_s: float = 20.0,
    expect: Callable[[Problem], Expected] | None = None,
) -> Held:
    """Hold a contest on one problem and record it.

    ``sides`` are the incumbent and the candidates; ``opened`` are these with the control between them.
    """
    op = session.loaded.op
    incumbent, candidates = sides[0], sides[1:]
    expected = expect_timed(op, problem) if expect is None else expect(problem)
    floor = find_floor(op.cost(problem), session.target)
    with Placements(session.device, op, problem) as case:
        line_up = [incumbent, *sides]  # the control is the incumbent's
        reasons = {s.name: o.supports(**case.arguments) for s, o in zip(line_up, opened, strict=True)}
        serving = [i for i, s in enumerate(line_up) if not reasons[s.name]]
        refused = {s.name: reasons[s.name] or reasons[incumbent.name] for s in candidates}
        not_served = {name: reason for name, reason in refused.items() if reason}
        if reasons[incumbent.name] or len(serving) < 3:
            return Held(problem, mode, not_served, is_incumbent_refused=bool(reasons[incumbent.name]))
        case.upload(expected.inputs)
        launchables = [opened[i] for i in serving]
        case.prepare(*launchables)
        contenders = [line_up[i] for i in serving]
        names = [incumbent.name, f"{incumbent.name} (control)", *(s.name for s in contenders[2:])]
        properties = session.device.properties
        with GpuLock(properties.uuid).hold():
            subjects = [
                timer.prepare(case.choose(each, mode), mode, name_range(op.name, side.name, problem.name, mode))
                for each, side in zip(launchables, contenders, strict=True)
            ]
            contest = run_contest(timer, subjects, names, criteria, default_mhz=properties.clock_khz / 1000, budget_s=budget_s)
        faults = tuple(_find_fault(timer, case, s, contest, i, floor, mode, expected) for i, s in enumerate(subjects))
    ids = _record(session, problem, mode, contest, contenders, faults)
    return Held(problem, mode, not_served, contest, faults, ids)


def _find_fault(
    timer: Timer, case: Placements, subject: Subject, contest: Contest, index: int, floor: Floor, mode: Mode, expected: Expected
) -> str:
    floor_us = floor.cold_us if mode is Mode.COLD else floor.cached_us
    try:
        check_floor(float(np.median(contest.times_us[:, index])), floor_us, mode)
    except RuntimeError as error:
        return f"{contest.names[index]}: {error}"
    wrong = check_output(timer, case, [subject], expected)
    return f"{contest.names[index]}: {wrong}" if wrong else ""


def _record(
    session: Session, problem: Problem, mode: Mode, contest: Contest, sides: Sequence[Side], faults: Sequence[str]
) -> tuple[int, ...]:
    """Insert a result per contender, with all its samples: rounds in order, two of each. Returns their ids."""
    ids = []
    for i, side in enumerate(sides):
        role = ("incumbent", "control")[i] if i < 2 else "candidate"
        figures: dict[str, Any] = {"role": role, "mode": mode.value, "median_us": float(np.median(contest.times_us[:, i]))}
        if role == "candidate":
            figures |= contest.to_figures(i - 2)
        row = session.record(
            side.build,
            kind="compare",
            variant=side.build.variant.name,
            problem=problem.name,
            status="failed" if faults[i] else "passed",
            reason=faults[i],
            figures=figures | {"name": side.name},
            samples=contest.times_us[:, i].reshape(-1).astype(np.float32),
        )
        ids.append(row)
    return tuple(ids)


def compare_records(incumbent: Result, candidate: Result, criteria: Criteria) -> Compared:
    """Compare the samples of two records that hold times; raises :class:`RecordError` where they cannot be compared."""
    sides = (incumbent, candidate)
    for result in sides:
        if result.samples is None or result.device_kind != "cuda" or result.status != "passed":
            raise RecordUseError(f"record {result.id} ({result.kind}, {result.status}) holds no times of a GPU")
    modes, problems = ({r.figures.get("mode") for r in sides}, {(r.op, r.problem) for r in sides})
    if len(modes) > 1 or len(problems) > 1:
        raise RecordUseError(f"records {incumbent.id} and {candidate.id} are of different problems or modes: {problems} {modes}")
    labels = {r.figures.get("clock_label", "fixed-power") for r in sides}
    if len(labels) > 1:
        raise RecordUseError(f"records {incumbent.id} and {candidate.id} were taken at {' and '.join(sorted(labels))}: not comparable")
    times = [read_samples(r).astype(np.float64) for r in sides]
    effect = find_unpaired_effect(times[0], times[1], criteria.error)
    outcome = Outcome(judge_effect(effect, max(criteria.margin, _APART_MARGIN)), effect)
    devices = [r.run.environment.device_name for r in sides]
    note = "measured apart: a drift between the two runs is in the effect"
    if devices[0] != devices[1] or incumbent.run.environment.device_uuid != candidate.run.environment.device_uuid:
        note += f"; on two devices ({devices[0]}, {devices[1]})"
    names = [f"{r.variant} (record {r.id})" for r in sides]
    medians = [float(np.median(t)) for t in times]
    return Compared(incumbent.problem, str(modes.pop()), names[0], names[1], outcome, note, medians[0], medians[1])
