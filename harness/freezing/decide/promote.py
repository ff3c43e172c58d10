"""Promotion: candidates pass the gates, hold contests with each bucket's incumbent, and winners are sealed into the frozen set.

On the emulated device there are no times: there a kernel can only become a bucket's ``provisional`` entry, which any measured one replaces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.axes import name_bucket
from contract.index import Index, Row
from contract.kernels import read_kernel
from harness.benchmark.session import Session
from harness.build.builder import BuildResult
from harness.errors import FrozenUseError
from harness.freezing.decide.buckets import find_bucket, make_fallback_bucket
from harness.freezing.decide.contests import Match
from harness.freezing.decide.entries import Placement, Writing, apply_writing, describe_conditions, gather
from harness.freezing.decide.ruling import Ruling, choose
from harness.freezing.gates.candidate import Candidate, Gate
from harness.spec import Op, Problem
from harness.timing.verdicts import Criteria

# Below this a faster kernel counts as the same; and the probability that a kernel takes a bucket from its own copy.
PROMOTION = Criteria(margin=0.01, error=0.01)


# Measures candidates on problems against an incumbent's entry, or against each other where there is none.
Hold = Callable[[Sequence[Problem], Row | None, Sequence[tuple[BuildResult, Path]]], Sequence[Match]]


@dataclass(frozen=True)
class Request:
    """What is asked for: buckets by name (all that have a problem of suite ``bench`` where none is given), and how.

    With ``own_choices`` a bucket's candidates are those variants alone that the op chooses for its problems.
    """

    buckets: tuple[str, ...] = ()
    fallback: bool = False
    dry_run: bool = False
    force_reason: str = ""
    criteria: Criteria = PROMOTION
    command: str = ""
    own_choices: bool = False


@dataclass(frozen=True)
class Decision:
    """What became of a bucket: ``outcome`` is ``promoted``, ``provisional``, ``kept`` or ``refused``."""

    bucket: str
    outcome: str
    kernel: str
    reason: str
    incumbent: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(vars(self))


def group_problems(session: Session, request: Request) -> dict[str, tuple[dict[str, str], list[Problem]]]:
    """Return the buckets that are asked for by name, each with its problems of suite ``bench``; raises :class:`FrozenError` for others."""
    op, arch = session.loaded.op, session.target.real_arch
    if request.fallback:
        bucket = make_fallback_bucket(op, arch)
        return {name_bucket(bucket): (bucket, [])}
    groups: dict[str, tuple[dict[str, str], list[Problem]]] = {}
    for problem in op.select_problems("bench"):
        bucket = find_bucket(op, problem, arch)
        groups.setdefault(name_bucket(bucket), (bucket, []))[1].append(problem)
    if unknown := [b for b in request.buckets if b not in groups]:
        raise FrozenUseError(f"{op.name} has no bench problem in bucket {unknown[0]}; buckets with one are:\n  " + "\n  ".join(groups))
    return {name: group for name, group in groups.items() if not request.buckets or name in request.buckets}


def promote(
    session: Session,
    frozen: Index,
    candidates: Sequence[Candidate],
    request: Request,
    hold: Hold | None,
    say: Callable[[str], None],
) -> list[Decision]:
    """Decide bucket by bucket and, unless it is a dry run, write what was decided.

    ``candidates`` have been through the gates; ``hold`` measures them against an incumbent, and is None on the emulated device.
    """
    passed = [c for c in candidates if not c.find_refusals(forced=bool(request.force_reason))]
    refused = [f"{c.name}: {g.name}: {g.detail}" for c in candidates for g in c.find_refusals(forced=bool(request.force_reason))[:1]]
    decisions = []
    for name, (bucket, problems) in group_problems(session, request).items():
        # Measured kernels serve every listed problem of their bucket; a provisional one may serve some.
        every = any if hold is None else all
        serving = [c for c in passed if request.fallback or every(serves(session, c, p) for p in problems)]
        if request.own_choices:
            chosen = list_choices(session.loaded.op, problems)
            serving = [c for c in serving if c.name in chosen]
        if not serving:
            reason = "; ".join(refused) if refused else "no candidate serves the problems of this bucket"
            decisions.append(Decision(name, "refused", "", reason))
            continue
        writing = Writing()
        decisions.append(_decide(session, frozen, bucket, problems, serving, request, hold, writing))
        say(f"{name}: {decisions[-1].outcome}: {decisions[-1].reason}")
        if writing.rows and not request.dry_run:
            frozen = apply_writing(session, frozen, writing)
    return decisions


def list_incumbents(session: Session, frozen: Index, request: Request) -> list[Row]:
    """Return the measured entries that candidates will be measured against."""
    found = [frozen.find_winner(bucket) for bucket, _ in group_problems(session, request).values()]
    return [entry for entry in found if entry and entry["status"] == "measured" and not request.fallback]


def list_choices(op: Op, problems: Sequence[Problem]) -> list[str]:
    """Return the variants that an op chooses for problems, each once; raises :class:`FrozenError` where it makes no choice."""
    if op.choose is None:
        raise FrozenUseError(f"op {op.name} has no choice of its own (choose in op.py): name the candidates with --variant")
    return list(dict.fromkeys(op.choose(p).variant.name for p in problems))


def serves(session: Session, candidate: Candidate, problem: Problem) -> bool:
    """Return whether a candidate's domain holds for a problem; without one it serves no bucket."""
    op, variant = session.loaded.op, candidate.build.variant
    return op.find_kernel(variant.kernel).domain is not None and op.meets_domain(variant, problem)


def _decide(
    session: Session,
    frozen: Index,
    bucket: dict[str, str],
    problems: Sequence[Problem],
    serving: Sequence[Candidate],
    request: Request,
    hold: Hold | None,
    writing: Writing,
) -> Decision:
    name = name_bucket(bucket)
    incumbent = None if request.fallback else frozen.find_winner(bucket)
    old = incumbent["kernel"] if incumbent else ""
    matches: Sequence[Match] = ()
    if request.fallback:
        winner, reason = serving[0], "a fallback serves what nothing else does: it is not compared"
    elif hold is None:
        winner, reason = serving[0], "provisional: the emulated device has no times"
        if incumbent and incumbent["status"] == "measured":
            return Decision(name, "refused", "", "the emulated device has no times, and the bucket's entry was measured on a GPU", old)
        if old == winner.manifest["kernel"]:
            return Decision(name, "kept", old, "it has the bucket already", old)
    else:
        provisional = incumbent is not None and incumbent["status"] == "provisional"
        rival = None if provisional else incumbent
        if rival is not None:
            manifest = read_kernel(frozen.folder, old).manifest
            code, variant = manifest["build"]["machine_code"], manifest["variant"]
            # Sources may differ and come to the same machine code: a contest of a kernel with itself would say nothing. Only a stated
            # reason replaces it: what was mended may be code of the host.
            is_other = request.force_reason != ""
            serving = [c for c in serving if c.manifest["kernel"] != old and (is_other or c.manifest["build"]["machine_code"] != code)]
            if is_other:  # what is mended replaces itself, whichever other candidates there are
                serving = [c for c in serving if c.name == variant] or serving
            if not serving:
                return Decision(name, "kept", old, "it has the bucket already", old)
        matches = hold(problems, rival, [(c.build, c.binding) for c in serving])
        choice = _choose(matches, problems, serving, rival, request)
        if choice.winner is None:
            gate = Gate("faster", False, choice.reason)
            if not request.force_reason:
                return Decision(name, "kept" if old else "refused", old, gate.detail, old)
            choice = Ruling(serving[0].name, f"forced ({request.force_reason}) although {choice.reason}")
        winner, reason = next(c for c in serving if c.name == choice.winner), choice.reason
    place = Placement(bucket, "fallback" if request.fallback else "winner", reason, incumbent, request.force_reason)
    conditions = describe_conditions(session, request.command) | {"margin": request.criteria.margin, "error": request.criteria.error}
    gather(session, frozen, place, winner, matches, conditions, writing)
    outcome = "promoted" if hold is not None or request.fallback else "provisional"
    return Decision(name, outcome, winner.manifest["kernel"], reason, old)


def _choose(
    matches: Sequence[Match], problems: Sequence[Problem], serving: Sequence[Candidate], rival: Row | None, request: Request
) -> Ruling:
    """Choose among the candidates: against the incumbent, or in an empty bucket, where nothing is at stake, by the least mean time."""
    measured = {m.problem.name for m in matches}
    if left_out := [p.name for p in problems if p.name not in measured]:
        return Ruling(None, f"{left_out[0]}: no contest was held")
    if rival is not None:
        challengers = {c.name: {m.problem.name: m.find_outcome(c.name) for m in matches} for c in serving}
        return choose(challengers, request.criteria)
    faults = [f"{c.name}: {m.problem.name}: {m.find_fault(c.name)}" for c in serving for m in matches if m.find_fault(c.name)]
    means = {c.name: _find_mean_us(matches, c.name) for c in serving if not any(m.find_fault(c.name) for m in matches)}
    if not means:
        return Ruling(None, "; ".join(faults))
    best = min(means, key=lambda name: means[name])
    return Ruling(best, f"the bucket had no measured entry; the least geometric mean of {len(means)} candidates, {means[best]:.4g} us")


def _find_mean_us(matches: Sequence[Match], name: str) -> float:
    """Return the geometric mean of a candidate's medians over the problems."""
    medians = [m.find_median_us(name) for m in matches]
    return math.exp(sum(math.log(x) for x in medians if x is not None) / len(medians))
