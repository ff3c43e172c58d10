"""Promotion from recorded times: for a bucket without a measured entry, the kernel that the records favour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from contract.index import Index
from harness.benchmark.session import Session
from harness.freezing.decide.buckets import find_bucket
from harness.freezing.decide.entries import Placement, Writing, apply_writing, gather, list_medians
from harness.freezing.decide.promote import Decision, Request, group_problems, list_choices, serves
from harness.freezing.decide.recorded_times import RecordedMatch, Recording, list_variants
from harness.freezing.gates.candidate import Candidate
from harness.freezing.store.changes import change_index
from harness.freezing.store.index import read_frozen_op
from harness.spec import Problem


def promote_recorded(
    session: Session,
    frozen: Index,
    candidates: Sequence[Candidate],
    request: Request,
    recording: Recording,
    say: Callable[[str], None],
) -> list[Decision]:
    """Fill the buckets that have no measured entry, and add the recorded times of every kernel that then is in the set.

    Of a bucket's candidates that were timed on all of its recorded problems the one with the least geometric mean takes it. Where none was,
    because each problem was timed with another variant, it is the one that the op chooses on most of them.
    """
    forced = bool(request.force_reason)
    passed = {c.name: c for c in candidates if not c.find_refusals(forced=forced)}
    decisions = []
    for name, (bucket, problems) in group_problems(session, request).items():
        timed = [_match(p, recording) for p in problems if _is_recorded(session, recording, p, candidates)]
        incumbent = frozen.find_winner(bucket)
        old = incumbent["kernel"] if incumbent else ""
        if incumbent is not None and incumbent["status"] == "measured":
            decisions.append(Decision(name, "kept", old, "recorded times challenge no measured entry", old))
            continue
        winner, reason = _choose(session, passed, timed)
        if winner is None:
            decisions.append(Decision(name, "refused", "", reason, old))
            continue
        reason += f", on {len(timed)} of {len(problems)} problems, recorded on {recording.conditions['device']}"
        writing = Writing()
        place = Placement(bucket, "winner", reason, None, request.force_reason)
        own = [m for m in timed if not m.find_fault(winner.name)]
        gather(session, frozen, place, winner, own, recording.conditions, writing)
        decisions.append(Decision(name, "promoted", winner.manifest["kernel"], reason, old))
        say(f"{name}: {winner.manifest['kernel']}: {reason}")
        if not request.dry_run:
            frozen = apply_writing(session, frozen, writing)
    if not request.dry_run:
        _add_medians(session, frozen, passed, recording)
    return decisions


def _choose(session: Session, passed: dict[str, Candidate], timed: Sequence[RecordedMatch]) -> tuple[Candidate | None, str]:
    if not timed:
        return None, "no problem of the bucket is recorded"
    common = [n for n in passed if not any(m.find_fault(n) for m in timed)]
    if common:
        means = {n: math.exp(sum(math.log(m.times[n].median_us) for m in timed) / len(timed)) for n in common}
        best = min(common, key=lambda n: means[n])
        return passed[best], f"the least geometric mean of {len(common)} candidates, {means[best]:.4g} us"
    if session.loaded.op.choose is None:
        return None, "no candidate that passed the gates was timed on all recorded problems of the bucket"
    chosen = [list_choices(session.loaded.op, [m.problem])[0] for m in timed]
    counts = {n: chosen.count(n) for n in chosen if n in passed and any(not m.find_fault(n) for m in timed)}
    if not counts:
        return None, "no candidate that passed the gates was timed on a problem of the bucket"
    best = max(counts, key=lambda n: counts[n])
    return passed[best], f"the op's choice on {counts[best]} of its {len(timed)} recorded problems"


def _add_medians(session: Session, frozen: Index, passed: dict[str, Candidate], recording: Recording) -> None:
    """Add the times of the set's kernels on all recorded problems, other buckets' too."""
    inside = set(frozen.kernels)
    kernels = {n: str(c.manifest["kernel"]) for n, c in passed.items() if c.manifest["kernel"] in inside}
    known: list[dict[str, Any]] = frozen.medians
    have = {(m["problem"], m["kernel"]) for m in known}
    rows = []
    for problem in session.loaded.op.select_problems("bench"):
        match = _match(problem, recording)
        bucket = find_bucket(session.loaded.op, problem, session.target.real_arch)
        wanted = {n: k for n, k in kernels.items() if (problem.name, k) not in have and not match.find_fault(n)}
        rows += list_medians(session, bucket, [match], wanted, str(recording.conditions["device"]))
    if rows:
        frozen_dir, op = frozen.folder.parent, session.loaded.op.name
        message = f"{len(rows)} times of kernels in the set, recorded in {recording.conditions['recorded_in']}"
        change_index(frozen_dir, op, "measure", message, put=rows, expect=read_frozen_op(frozen_dir, op))


def _is_recorded(session: Session, recording: Recording, problem: Problem, candidates: Sequence[Candidate]) -> bool:
    """Return whether a recording speaks of a problem: it has times, and where all variants were to be timed, those of all that serve it."""
    times = recording.times.get(problem.name, {})
    variants = list_variants(session.loaded.op, recording)
    wanted = [c for c in candidates if recording.all_timed and c.name in variants and serves(session, c, problem)]
    return bool(times) and all(c.name in times for c in wanted)


def _match(problem: Problem, recording: Recording) -> RecordedMatch:
    return RecordedMatch(problem, recording.times.get(problem.name, {}))
