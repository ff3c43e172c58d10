"""Whether a challenger takes a bucket, from its contests with the incumbent on the bucket's problems. Pure.

It does if it is FASTER on at least one of the problems and SLOWER on none. The error that is allowed is shared among the problems, so that
a kernel against its own copy takes a bucket with at most that probability, however many problems the bucket has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.timing.verdicts import Criteria, Outcome, Verdict


@dataclass(frozen=True)
class Ruling:
    """Who takes a bucket: the winner's name (None: the incumbent keeps it), why, and the mean change of its times (-0.02: 2 % faster)."""

    winner: str | None
    reason: str
    change: float = 0.0


def share_error(criteria: Criteria, num_problems: int) -> Criteria:
    """Return the criteria of one contest among several that decide together (Bonferroni)."""
    return replace(criteria, error=criteria.error / max(num_problems, 1))


def judge_challenger(outcomes: Mapping[str, Outcome | str], criteria: Criteria) -> Ruling:
    """Judge one challenger from its outcome on each problem; a text in place of one says why there is none, and keeps the incumbent."""
    for problem, outcome in outcomes.items():
        if isinstance(outcome, str):
            return Ruling(None, f"{problem}: {outcome}")
    found = {p: o for p, o in outcomes.items() if not isinstance(o, str)}
    if not found:
        return Ruling(None, "no problem of the bucket was measured")
    change = math.expm1(sum(math.log1p(o.effect.change) for o in found.values()) / len(found))
    slower = [p for p, o in found.items() if o.verdict is Verdict.SLOWER or _may_be_slower(o, criteria)]
    faster = [p for p, o in found.items() if o.verdict is Verdict.FASTER]
    if not faster:
        nearest = min(found, key=lambda p: found[p].effect.change)
        return Ruling(None, f"not FASTER anywhere; the best is {nearest}: {found[nearest].effect.describe()}", change)
    if slower:
        word = found[slower[0]].verdict
        text = f"FASTER on {len(faster)} of {len(found)} problems, but {word} on {slower[0]}: {found[slower[0]].effect.describe()}"
        return Ruling(None, f"{text}; a bucket whose problems disagree should be divided: see the op's axes", change)
    best = min(faster, key=lambda p: found[p].effect.change)
    return Ruling("", f"FASTER on {len(faster)} of {len(found)} problems, SLOWER on none; {best}: {found[best].effect.describe()}", change)


def _may_be_slower(outcome: Outcome, criteria: Criteria) -> bool:
    return outcome.verdict is Verdict.AMBIGUOUS and outcome.effect.change > criteria.margin


def choose(challengers: Mapping[str, Mapping[str, Outcome | str]], criteria: Criteria) -> Ruling:
    """Return the choice among several challengers: of those that would take the bucket, the one with the least mean time."""
    choices = {name: judge_challenger(outcomes, criteria) for name, outcomes in challengers.items()}
    winning = {name: c for name, c in choices.items() if c.winner is not None}
    if winning:
        name = min(winning, key=lambda n: winning[n].change)
        return replace(winning[name], winner=name)
    return Ruling(None, "; ".join(f"{name}: {c.reason}" for name, c in choices.items()))
