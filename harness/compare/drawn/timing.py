"""Timing drawn problems on a GPU: what users get, the op's own choice and the libraries, in the same rounds, cold, outputs judged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.benchmark.session import Session
from harness.compare.drawn.frozen_choice import FrozenChoice
from harness.compare.drawn.problems import DrawnProblem, describe_problem
from harness.compare.drawn.record import FROZEN, OWN, PEER, VARIANT, Contender, DrawnRow
from harness.compare.goals import time_all
from harness.spec import PEER_ERROR, Launchable
from harness.timing.ahead import expect_ahead
from harness.timing.rounds import Timed
from harness.timing.stats import StopRule
from harness.timing.timer import Timer, TimingPolicy

# Medians of many problems are averaged: each may be a little less certain than that of a goal.
POLICY = TimingPolicy(stop=StopRule(budget_s=0.15, min_samples=20), warmup_min_s=0.05, warmup_window_s=0.02, warmup_cap_s=0.3)
# Half of what a bench takes: what is left of the places' noise is little in a mean of dozens of problems.
_NUM_PLACES = 8
# Where all variants are timed, for the regret, most are far behind: a few samples show that.
_GIVE_UP_BEYOND = 1.3


@dataclass(frozen=True)
class Entrant:
    """One that is to be timed on a problem."""

    name: str
    role: str
    launchable: Launchable


@dataclass(frozen=True)
class Match:
    """A drawn problem with the framework's decision, who is judged, what the op itself chooses, and who is timed.

    ``judged`` is "" where the op is not frozen and chooses nothing: then the fastest variant that is right stands for it.
    """

    drawn: DrawnProblem
    choice: FrozenChoice
    judged: str
    judged_as: str
    own: str
    entrants: tuple[Entrant, ...]


def time_matches(
    session: Session, timer: Timer, matches: Sequence[Match], max_errors: Mapping[str, float], *, with_all: bool
) -> Iterator[tuple[DrawnRow, Mapping[str, Timed]]]:
    """Time each match, and yield its row with the timings. ``max_errors`` are those of the libraries, by name.

    ``with_all`` says that all variants are among them: then those far behind the fastest get few samples, and only what users get, the op's
    own choice and libraries are judged however slow they are.
    """
    op = session.loaded.op
    options = {"with_errors": True, "num_places": _NUM_PLACES, "give_up_beyond": _GIVE_UP_BEYOND if with_all else math.inf}
    expected = expect_ahead(op, (m.drawn.problem for m in matches))
    for match, known in zip(matches, expected, strict=True):
        entries = [(e.name, e.launchable) for e in match.entrants]
        judged = {match.judged, match.own, *(e.name for e in match.entrants if e.role == PEER)}
        timed = time_all(session, timer, match.drawn.problem, entries, known, always_judged=judged, **options)
        yield make_row(match, timed, max_errors), timed


def make_row(match: Match, timed: Mapping[str, Timed], max_errors: Mapping[str, float]) -> DrawnRow:
    """Return a match's row from what was timed."""
    roles = {e.name: e.role for e in match.entrants}
    contenders = tuple(replace(describe_timed(t, roles[name]), max_error=max_errors.get(name, PEER_ERROR)) for name, t in timed.items())
    row = DrawnRow(
        group=match.drawn.group.name,
        problem=match.drawn.problem.name,
        **describe_problem(match.drawn.problem),
        judged=match.judged,
        judged_as=match.judged_as,
        own=match.own,
        how=match.choice.how,
        contenders=contenders,
    )
    if match.judged or row.best is None:
        return row
    return DrawnRow(**{**vars(row), "judged": row.best.name})


def describe_timed(timed: Timed, role: str) -> Contender:
    """Return a timing as a contender."""
    if timed.cold is None:
        return Contender(timed.name, role, timed.status, reason=timed.reason)
    s = timed.cold.summary
    return Contender(timed.name, role, timed.status, s.median, s.low, s.high, timed.error, timed.reason)


def line_up(
    drawn: DrawnProblem,
    choice: FrozenChoice,
    own: str,
    sealed: Mapping[str, Launchable],
    sealed_as: Mapping[str, str],
    variants: Mapping[str, Launchable],
    peers: Mapping[str, Launchable],
    *,
    with_all: bool,
) -> Match:
    """Return who is timed on a problem: what users get first, then the op's own choice where that is other code, then libraries.

    ``sealed`` are opened frozen kernels by name and ``sealed_as`` the variants that they still are; ``variants`` and
    ``peers`` are opened too.
    ``with_all`` adds all frozen kernels that serve, and all variants, for the regret.
    """
    entrants: list[Entrant] = []
    if choice.kernel:
        entrants.append(Entrant(choice.kernel, FROZEN, sealed[choice.kernel]))
    if own and (not choice.kernel or sealed_as.get(choice.kernel) != own):
        entrants.append(Entrant(own, OWN, variants[own]))
    if with_all:
        entrants += [Entrant(k, FROZEN, sealed[k]) for k in choice.legal if k != choice.kernel]
    if with_all or not entrants:
        taken = {sealed_as.get(e.name, e.name) for e in entrants}
        entrants += [Entrant(v, VARIANT, launchable) for v, launchable in variants.items() if v not in taken]
    judged, judged_as = (choice.kernel, "the frozen decision") if choice.kernel else (own, "the op's own choice")
    entrants += [Entrant(n, PEER, peers[n]) for n in drawn.group.peers if n in peers]
    return Match(drawn, choice, judged, judged_as if judged else "the fastest of its variants", own, tuple(entrants))
