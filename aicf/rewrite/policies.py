"""Policies: functions of the log that propose rewrites. They keep nothing: the same log gives the same proposals."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aicf.rewrite.decisions import Policy, Proposal, strip_seed
from aicf.rewrite.log import REWRITE, ROLLBACK, Log, Observation, Rewritten, Shapes, Statistics
from aicf.rewrite.rules import Prune, Release, Rule, Separate, Widen

# Which rules a policy proposes: these, or what a function makes of the log.
Make = Rule | Sequence[Rule] | Callable[[Log], Sequence[Rule]]


def _propose(make: Make, log: Log, evidence: Mapping[str, Any]) -> list[Proposal]:
    made = make(log) if callable(make) else [make] if isinstance(make, Rule) else make
    return [Proposal(rule, evidence) for rule in made]


def double(owner: str, most: int, *, deviation: float = 0.1, is_released: bool = False) -> Callable[[Log], list[Rule]]:
    """Return what makes a layer twice as wide, up to ``most`` units, and separates the copies; no rule where it is that wide.

    With ``is_released`` the copies are trained at the full rate from then on (:class:`~aicf.rewrite.Release`).
    """

    def make(log: Log) -> list[Rule]:
        found = log.find_last(Shapes)
        width = 0 if found is None else found.shapes[f"{owner}.weight" if f"{owner}.weight" in found.shapes else owner][0]
        if not 0 < width < most:
            return []
        seed = log.entries[-1].step
        made: list[Rule] = [Widen(owner, min(2 * width, most), seed), Separate(owner, deviation, seed)]
        return [*made, Release(owner)] if is_released else made

    return make


def plateau(make: Make, *, steps: int = 200, least: float = 0.01, tries: int = 1) -> Policy:
    """Return a policy for losses that no longer fall: the mean of the last ``steps`` is less than ``least`` below that of those before.

    ``least`` is a part of the loss. Steps since the structure changed last count. A rule that was rolled back ``tries`` times is left.
    """

    def policy(log: Log) -> list[Proposal]:
        losses = [o.loss for o in log.find_settled(Observation, 2 * steps)]
        if len(losses) < 2 * steps:
            return []
        earlier, later = (math.fsum(part) / steps for part in (losses[:steps], losses[steps:]))
        if not earlier - later < least * abs(earlier):
            return []
        found = _propose(make, log, {"policy": "plateau", "earlier": earlier, "later": later, "least": least})
        return found if found and _count_rolled_back(log, found[0].rule) < tries else []

    return policy


def _count_rolled_back(log: Log, rule: Rule) -> int:
    """Return how often rewrites that began with this rule were rolled back; seeds do not matter."""
    wanted = strip_seed(rule.to_data())
    return sum(d.action == ROLLBACK and strip_seed(d.rule) == wanted for d in log.decisions)


def instability(make: Make, *, factor: float = 3.0, steps: int = 50) -> Policy:
    """Return a policy for a loss that is not finite, or whose mean over ``steps`` is ``factor`` times the median of as many before."""

    def policy(log: Log) -> list[Proposal]:
        losses = [o.loss for o in log.find_settled(Observation, 2 * steps)]
        recent, before = losses[-steps:], sorted(losses[-2 * steps : -steps])
        if not recent:
            return []
        mean = sum(recent) / len(recent)
        median = before[len(before) // 2] if len(before) == steps else None
        if math.isfinite(mean) and (median is None or not mean > factor * median):
            return []
        return _propose(make, log, {"policy": "instability", "mean": mean, "median": median, "factor": factor})

    return policy


def dead_units(*, windows: int = 3, least: int = 1, owners: Collection[str] | None = None) -> Policy:
    """Return a policy that removes units which were dead in ``windows`` windows in a row, where there are ``least`` or more.

    One unit of a layer stays. ``owners`` are the layers that are looked at, all by default.
    """

    def policy(log: Log) -> list[Proposal]:
        seen = log.find_settled(Statistics, windows)
        shapes = log.find_last(Shapes)
        if len(seen) < windows or shapes is None:
            return []
        found = []
        for owner in seen[0].dead if owners is None else owners:
            units = sorted(set.intersection(*(set(s.dead.get(owner, ())) for s in seen)))
            held = shapes.shapes.get(f"{owner}.weight", shapes.shapes.get(owner, (0,)))[0]
            units = units[: held - 1]
            if len(units) >= least:
                evidence = {"policy": "dead units", "windows": [s.step for s in seen], "num_units": len(units)}
                found.append(Proposal(Prune(owner, tuple(units)), evidence))
        return found

    return policy


def schedule(rules: Mapping[int, Make]) -> Policy:
    """Return a policy that proposes rules at the first window's end at or behind given steps, once each."""

    def policy(log: Log) -> list[Proposal]:
        done = {d.evidence.get("scheduled") for d in log.decisions if d.action == REWRITE}
        step = log.entries[-1].step
        due = [at for at in sorted(rules) if at <= step and at not in done]
        return [p for at in due for p in _propose(rules[at], log, {"policy": "schedule", "scheduled": at})]

    return policy


def budget(policy: Policy, *, steps: int | None = None, rewrites: int | None = None, num_bytes: int | None = None) -> Policy:
    """Return a policy that proposes nothing any more behind that many steps, rewrites, or bytes of the present structure."""

    def bounded(log: Log) -> Sequence[Proposal | Rule]:
        shapes = log.find_last(Shapes)
        used = (
            (log.entries[-1].step if len(log) else 0, steps),
            (len(log.find_all(Rewritten)), rewrites),
            (0 if shapes is None else shapes.num_bytes, num_bytes),
        )
        return [] if any(limit is not None and have >= limit for have, limit in used) else policy(log)

    return bounded


def first_of(*policies: Policy) -> Policy:
    """Return a policy that proposes what the first of these proposes that proposes anything."""

    def policy(log: Log) -> Sequence[Proposal | Rule]:
        return next((found for each in policies if (found := each(log))), [])

    return policy


def all_of(*policies: Policy) -> Policy:
    """Return a policy that proposes what any of these proposes."""
    return lambda log: [proposal for policy in policies for proposal in policy(log)]
