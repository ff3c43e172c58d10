"""``promote``: variants that are faster than what is frozen, through the gates and into the frozen set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contract.index import Index
from contract.layout import find_frozen_dir
from harness.benchmark.ready import Ready, make_ready
from harness.benchmark.session import Session
from harness.build.revision import find_op_at
from harness.compare.drawn.record import find_record
from harness.discover import LoadedOp
from harness.freezing.decide.contests import ContestRunner
from harness.freezing.decide.library import LibraryAdoption, adopt_library
from harness.freezing.decide.population import find_needed, promote_population
from harness.freezing.decide.promote import Decision, Request, group_problems, list_choices, list_incumbents, promote
from harness.freezing.decide.promote_recorded import promote_recorded
from harness.freezing.decide.recorded_times import Recording, find_untimed_code, list_variants, read_population, read_recording
from harness.freezing.gates.candidate import Candidate, Gate
from harness.freezing.gates.checks import pass_gates, seal_candidates
from harness.freezing.store.verify import require_sound
from harness.spec import Problem, SpecError, Variant
from harness.timing.ahead import ExpectedAhead
from harness.timing.timer import Timer
from harness.timing.verdicts import Criteria
from harness.verbs.naming import Names, OpLike, list_names, take_op
from harness.verify.plan import THOROUGH


@dataclass(frozen=True)
class Promoted:
    """What each candidate's gates said, and what was decided of each bucket; nothing was written in a dry run.

    ``adoption`` is what came of a library, where one was asked for.
    """

    op: str
    dry_run: bool
    candidates: list[Candidate]
    decisions: list[Decision]
    adoption: LibraryAdoption | None = None

    @property
    def changed(self) -> list[Decision]:
        """The buckets that have another kernel now, or would have."""
        return [d for d in self.decisions if d.outcome in ("promoted", "provisional", "dropped")]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        gates = {c.name: [g.to_json() for g in c.gates] for c in self.candidates}
        found = {"op": self.op, "dry_run": self.dry_run, "gates": gates, "decisions": [d.to_json() for d in self.decisions]}
        return found if self.adoption is None else found | {"library": self.adoption.to_json()}


def promote_op(
    op: OpLike,
    variant: Names = None,
    bucket: Names = None,
    fallback: bool = False,
    dry_run: bool = False,
    force_reason: str = "",
    margin: float = 1.0,
    confidence: float = 99.0,
    budget: float = 20.0,
    recorded: Path | None = None,
    at: str | None = None,
    population: Path | None = None,
    library: str | None = None,
    device: str | None = None,
    target: str | None = None,
    jobs: int | None = None,
    *,
    quiet: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Promoted:
    """Take variants through the gates, hold the contests, and freeze what won. ``say`` hears of each gate and decision.

    With ``library`` calls may get that one where a record of ``compare --drawn`` (``recorded``; by default the newest one here, or the
    published one) has it faster than the frozen kernels, which stay as they are.

    Raises SpecError for names or options that do not fit, FrozenError where the frozen set is not sound.
    """
    if library is not None:
        given_too = {"--variant": variant, "--bucket": bucket, "--fallback": fallback, "--population": population, "--at": at}
        if strange := [option for option, value in given_too.items() if value]:
            raise SpecError(f"--library goes without {strange[0]}: nothing is built, and kernels stay as they are")
        return _adopt_library(op, library, recorded, say, dry_run=dry_run)
    if at and not recorded:
        raise SpecError("--at goes with --recorded: what is measured now is the op as it is now")
    if population and (given := [o for o, v in (("--recorded", recorded), ("--bucket", bucket), ("--fallback", fallback)) if v]):
        raise SpecError(f"--population goes without {given[0]}: it names the file, and its kernels have a place of their own")
    loaded, commit = _find_op(take_op(op), at)
    name, named, buckets = loaded.op.name, list_names(variant), list_names(bucket)
    recording, drawn = _read_times(loaded, commit, recorded, population)
    criteria = Criteria(margin=margin / 100, error=1 - confidence / 100)
    words = " ".join([f"promote {name}", *(f"--variant {v}" for v in named), *(f"--bucket {b}" for b in buckets)])
    options = {"--recorded": recorded, "--at": at, "--population": population}
    command = " ".join([words, *(["--fallback"] if fallback else []), *(f"{o} {v}" for o, v in options.items() if v)])
    request = Request(tuple(buckets), fallback, dry_run, force_reason, criteria, command, own_choices=not named)
    frozen = require_sound(find_frozen_dir(), name)
    with Session.start(loaded, command, device=device, target=target, jobs=jobs) as session:
        # A bucket that there is not is said before anything is built.
        groups = group_problems(session, request).values()
        problems = loaded.op.select_problems("bench") if fallback else [p for _, members in groups for p in members]
        names = named or (list_variants(loaded.op, recording) if recording else list_choices(loaded.op, problems))
        variants = loaded.op.select_variants(names)
        if drawn and recording:
            variants = _list_needed(session, frozen, recording, variants, request)
        ready = make_ready(session, variants, quiet=quiet, effort=THOROUGH, committed_only=True)
        candidates = _judge_candidates(session, frozen, ready, recording, commit, say)
        decisions = _decide(session, frozen, candidates, request, recording, drawn, budget, say)
    return Promoted(name, dry_run, candidates, decisions)


def _adopt_library(op: OpLike, library: str, recorded: Path | None, say: Callable[[str], None], *, dry_run: bool) -> Promoted:
    """Let calls of an op get a library of others where a record of drawn problems has it faster than the frozen kernels."""
    name = take_op(op).op.name
    frozen = require_sound(find_frozen_dir(), name)
    done = adopt_library(frozen, library, Path(recorded) if recorded else find_record(name), dry_run=dry_run)
    say(library)
    for gate in done.gates:
        say(f"  {gate.describe()}")
    said = {g.name: g for g in done.gates}
    shut = next((g for g in done.gates if not g.passed), said.get("faster"))
    place = f"{done.row['arch']}/library" if done.row else "library"
    reason = "" if shut is None else f"{shut.name}: {shut.detail}"
    outcome = "promoted" if done.is_passed else "refused"
    return Promoted(name, dry_run, [], [Decision(place, outcome, library if done.is_passed else "", reason, "")], done)


def _find_op(loaded: LoadedOp, revision: str | None) -> tuple[LoadedOp, str]:
    """Return an op and "", or the op as it was at a revision, with today's buckets, and that revision's commit."""
    if not revision:
        return loaded, ""
    earlier, commit = find_op_at(loaded.op.name, revision)
    return replace(earlier, op=replace(earlier.op, axes=loaded.op.axes)), commit


def _read_times(
    loaded: LoadedOp, commit: str, recorded: Path | None, population: Path | None
) -> tuple[Recording | None, Mapping[str, Problem]]:
    """Return the times of the file that decides, None where contests do, and the drawn problems that they are of."""
    if population:
        return read_population(loaded.op, Path(population))
    recording = read_recording(Path(recorded)) if recorded else None
    if recording and commit:
        recording = replace(recording, conditions=dict(recording.conditions) | {"sources_at": commit})
    return recording, {}


def _list_needed(
    session: Session, frozen: Index, recording: Recording, variants: Sequence[Variant], request: Request
) -> tuple[Variant, ...]:
    """Return which of the variants drawn problems need: only they are built and proved."""
    by_name = {v.name: v for v in variants}
    picks, _ = find_needed(frozen, session.target.real_arch, recording, list(by_name), forced=bool(request.force_reason))
    return tuple(by_name[pick.name] for pick in picks if pick.name in by_name)


def _judge_candidates(
    session: Session, frozen: Index, ready: Ready, recording: Recording | None, commit: str, say: Callable[[str], None]
) -> list[Candidate]:
    """Take every variant through the gates, and say what each came to."""
    candidates = [Candidate(b, ready.binding) for b in ready.builds]
    for candidate, verdict in zip(candidates, ready.judged, strict=True):
        say(f"{candidate.name}")
        pass_gates(session, frozen, candidate, verdict, lambda gate: say(f"  {gate.describe()}"), sources_at=commit)
    seal_candidates(session, candidates, lambda c, gate: say(f"{c.name}\n  {gate.describe()}"))
    if recording:
        for candidate, fault in zip(candidates, find_untimed_code(session, recording, ready.builds).values(), strict=True):
            candidate.gates.append(Gate("recorded", not fault, fault or "the machine code that was timed"))
            say(f"{candidate.name}\n  {candidate.gates[-1].describe()}")
    return candidates


def _decide(
    session: Session,
    frozen: Index,
    candidates: list[Candidate],
    request: Request,
    recording: Recording | None,
    drawn: Mapping[str, Problem],
    budget_s: float,
    say: Callable[[str], None],
) -> list[Decision]:
    """Decide by recorded times, of drawn problems or of the op's own, by contests on a GPU, or on the emulated device without any time."""
    if recording and drawn:
        return promote_population(session, frozen, candidates, request, recording, drawn, say)
    if recording:
        return promote_recorded(session, frozen, candidates, request, recording, say)
    if session.device.is_emulated:
        return promote(session, frozen, candidates, request, None, say)
    timer = Timer(session.device)
    problems = [p for _, problems in group_problems(session, request).values() for p in problems]
    try:
        with (
            ExpectedAhead(session.loaded.op, problems) as expected,
            ContestRunner(session, frozen, timer, request.criteria, budget_s=budget_s, expect=expected.find) as runner,
        ):
            runner.build_incumbents(list_incumbents(session, frozen, request))
            return promote(session, frozen, candidates, request, runner.hold, say)
    finally:
        timer.close()
