"""An op's goals on a GPU: its own choice and the peers on every problem of every goal, cold, in the same rounds of one run.

A problem's ratio is the time of the fastest of the goal's peers over the time of the op's own choice (:attr:`harness.spec.Op.choose`);
more than 1 is faster than the peer. A peer whose output misses the op's bound counts all the same: leaving it out would flatter. Other
variants of the op may be timed beside the choice; what it takes longer than the fastest of them is its regret.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.benchmark.run import open_peers, record_timed
from harness.benchmark.session import Session
from harness.build.binding import open_variant
from harness.build.builder import BuildResult
from harness.spec import Choice, Goal, Launchable, Op, Peer, Problem, SpecError
from harness.timing.rounds import Timed, time_problem
from harness.timing.stats import TOO_SLOW, StopRule, find_ratio_interval
from harness.timing.timer import Mode, Timer, TimingPolicy
from harness.verify.reference import Expected

# Of one problem, for each contender: what is left of the noise is far below what a goal asks for.
_POLICY = TimingPolicy(stop=StopRule(budget_s=0.4, min_samples=20), warmup_cap_s=0.8)
_MEASURED = "met", "the least", "missed"


@dataclass(frozen=True)
class Ratio:
    """One problem of one goal. ``peer`` is the fastest; ``reason`` says why there is no ratio, or what to know of it.

    ``low`` and ``high`` bound the ratio with 95 % confidence. Errors are the largest of an output, as a share of the op's bound.
    """

    goal: str
    problem: str
    variant: str
    why: str
    own_us: float | None = None
    peer: str = ""
    peer_us: float | None = None
    reason: str = ""
    best: str = ""
    best_us: float | None = None
    low: float | None = None
    high: float | None = None
    own_error: float | None = None
    peer_error: float | None = None

    @property
    def regret(self) -> float | None:
        """What the choice takes longer than the fastest of the op's variants in this run, as a share; None where no other was timed."""
        return None if self.own_us is None or self.best_us is None else self.own_us / self.best_us - 1.0

    @property
    def ratio(self) -> float | None:
        """The peer's time over the own, None where one is missing."""
        return None if self.own_us is None or self.peer_us is None else self.peer_us / self.own_us

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return vars(self) | {"ratio": self.ratio, "regret": self.regret}


@dataclass(frozen=True)
class Row:
    """One goal: the geometric mean of its problems' ratios and the least of them; None where nothing was measured."""

    goal: Goal
    ratios: tuple[Ratio, ...]

    @property
    def measured(self) -> list[tuple[float, Ratio]]:
        """The problems that have a ratio, worst first."""
        return sorted(((r.ratio, r) for r in self.ratios if r.ratio is not None), key=lambda pair: pair[0])

    @property
    def geomean(self) -> float | None:
        """Geometric mean of the ratios."""
        found = self.measured
        return math.exp(sum(math.log(ratio) for ratio, _ in found) / len(found)) if found else None

    @property
    def verdict(self) -> str:
        """``met``, ``the least`` (the least that counts is met), ``missed``, or what is missing for any of them."""
        found, mean = self.measured, self.geomean
        if mean is None:
            return "not measured"
        if len(found) < len(self.ratios):
            return f"{len(self.ratios) - len(found)} of {len(self.ratios)} not measured"
        if found[0][0] < self.goal.worst:
            return "missed"
        return _MEASURED[0] if mean >= self.goal.aim else _MEASURED[1] if mean >= self.goal.least else _MEASURED[2]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        g = self.goal
        rows = [r.to_json() for r in self.ratios]
        return describe_goal(g) | {"geomean": self.geomean, "verdict": self.verdict, "problems": rows}


def describe_goal(goal: Goal) -> dict[str, Any]:
    """Return a goal as plain values, but its problems."""
    return {
        "goal": goal.name,
        "title": goal.title,
        "peers": list(goal.peers),
        "aim": goal.aim,
        "least": goal.least,
        "worst": goal.worst,
    }


def select_goals(op: Op, names: Sequence[str]) -> tuple[Goal, ...]:
    """Return the op's goals, or those named; raises :class:`SpecError` where there are none, or no way to choose a variant."""
    if not op.goals or op.choose is None:
        raise SpecError(f"op {op.name} has no goals: give compare one of --base NAME, --against REV, and --record ID twice")
    known = {g.name: g for g in op.goals}
    if unknown := [n for n in names if n not in known]:
        raise SpecError(f"op {op.name} has no goal {unknown[0]!r}; it has: {', '.join(known)}")
    return tuple(known[n] for n in names) if names else op.goals


def list_problems(goals: Sequence[Goal]) -> list[Problem]:
    """Return every problem of the goals once, in order."""
    return list({p.name: p for g in goals for p in g.problems}.values())


def choose_variants(op: Op, problems: Sequence[Problem]) -> dict[str, Choice]:
    """Return the op's choice by problem name."""
    assert op.choose is not None
    return {p.name: op.choose(p) for p in problems}


def measure_goals(
    session: Session,
    builds: Mapping[str, BuildResult],
    binding: Path,
    goals: Sequence[Goal],
    choices: Mapping[str, Choice],
    rivals: Sequence[str],
    peers: Sequence[Peer],
    say: Callable[[str], None],
) -> Iterator[tuple[Problem, dict[str, Timed]]]:
    """Time each problem's choice, the variants ``rivals`` and the peers of its goals together; record it, and yield what was found.

    ``say`` is told of peers that are not there.
    """
    op = session.loaded.op
    opened = dict(open_peers([p for p in peers if any(p.name in g.peers for g in goals)], say))
    variants = {name: open_variant(op, binding, b.library, b.variant) for name, b in builds.items() if b.library is not None}
    timer = Timer(session.device, _POLICY)
    try:
        for problem in list_problems(goals):
            wanted = {n for g in goals if problem in g.problems for n in g.peers}
            own = choices[problem.name].variant.name
            own_names = dict.fromkeys([own, *rivals])
            entries = [(n, p) for n, p in opened.items() if n in wanted] + [(n, variants[n]) for n in own_names]
            found = time_all(session, timer, problem, entries, with_errors=True)
            for timed in found.values():
                record_timed(session, builds.get(timed.name), timed)
            yield problem, found
    finally:
        timer.close()


def time_all(
    session: Session,
    timer: Timer,
    problem: Problem,
    entries: Sequence[tuple[str, Launchable]],
    expected: Expected | None = None,
    **options: Any,
) -> dict[str, Timed]:
    """Time the entries on one problem, cold, and all of them once more where one that serves it got no time.

    ``expected`` and ``options`` are those of :func:`harness.timing.rounds.time_problem`.

    A host that stalls holds a stream too long for a sample, and without its peers a problem says nothing.
    """
    op, modes = session.loaded.op, (Mode.COLD,)
    for is_last in (False, True):
        timed = time_problem(session.device, timer, op, problem, entries, session.target, modes, expected, **options)
        found = {t.name: t for t in timed}
        if is_last or all(t.cold is not None or t.status in ("unsupported", TOO_SLOW) for t in found.values()):
            break
    return found


def make_rows(
    goals: Sequence[Goal], choices: Mapping[str, Choice], found: Mapping[str, Mapping[str, Timed]], variants: Collection[str]
) -> list[Row]:
    """Return a row per goal from what was timed, by problem and contender; ``variants`` are the op's own."""
    return [Row(g, tuple(_make_ratio(g, p.name, choices[p.name], found.get(p.name, {}), variants) for p in g.problems)) for g in goals]


def _make_ratio(goal: Goal, problem: str, choice: Choice, found: Mapping[str, Timed], variants: Collection[str]) -> Ratio:
    own = found.get(choice.variant.name)
    common = (goal.name, problem, choice.variant.name, choice.reason)
    if own is None or own.status != "passed" or own.cold is None:
        return Ratio(*common, reason="not timed" if own is None else own.reason or own.status)
    rivals = {n: t for n, t in found.items() if n not in goal.peers and t.status == "passed" and t.cold is not None and n in variants}
    best = min(rivals, key=lambda n: _get_us(rivals[n]), default="") if len(rivals) > 1 else ""
    mine = Ratio(*common, own_us=_get_us(own), best=best, best_us=_get_us(rivals[best]) if best else None, own_error=own.error)
    timed = {n: found[n] for n in goal.peers if n in found and found[n].cold is not None}
    if not timed:
        return replace(mine, reason="no peer was timed")
    fastest = min(timed, key=lambda n: _get_us(timed[n]))
    note = "" if timed[fastest].status == "passed" else f"{fastest} misses the op's bound"
    low, high = find_ratio_interval(_get_interval(timed[fastest]), _get_interval(own))
    error = timed[fastest].error
    return replace(mine, peer=fastest, peer_us=_get_us(timed[fastest]), reason=note, low=low, high=high, peer_error=error)


def _get_us(timed: Timed) -> float:
    return _get_interval(timed)[0]


def _get_interval(timed: Timed) -> tuple[float, float, float]:
    assert timed.cold is not None
    s = timed.cold.summary
    return s.median, s.low, s.high


def record_goals(session: Session, builds: Mapping[str, BuildResult], rows: Sequence[Row]) -> None:
    """Record every problem of every goal, so that pages show them beside all other results."""
    for row in rows:
        for ratio in row.ratios:
            session.record(
                builds.get(ratio.variant),
                kind="goal",
                variant=ratio.variant,
                problem=ratio.problem,
                status="failed" if ratio.own_us is None else "passed",
                reason=ratio.reason if ratio.ratio is None else "",
                figures=describe_goal(row.goal) | ratio.to_json() | {"mode": Mode.COLD.value, "median_us": ratio.own_us},
            )
