"""What to do next, as a pure function of the log: propose rewrites, and judge those that are on trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aicf.rewrite.log import KEEP, REWRITE, ROLLBACK, Decision, Log, Observation, Refused, Rewritten, RolledBack, Statistics, normalise
from aicf.rewrite.rules.rule import Rule


@dataclass(frozen=True)
class Proposal:
    """A rewrite that a policy wants, and the evidence for it: values of JSON."""

    rule: Rule
    evidence: Mapping[str, Any] = field(default_factory=dict)


Policy = Callable[[Log], Sequence[Proposal | Rule]]


@dataclass(frozen=True)
class Judge:
    """Whether a rewrite is kept: judged when ``steps`` steps were made with it.

    The mean loss of the later half of them is compared with the one that the ``history`` steps before promise: a line through the
    logarithms of their losses (through the losses where one is not positive), which may fall and does not rise. It may be larger by
    ``tolerance`` times its magnitude; and a step may take ``cost`` times as long as before, where that is given.
    """

    steps: int = 200
    history: int = 200
    tolerance: float = 0.0
    cost: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1 or self.history < 2:
            raise ValueError(f"steps={self.steps}, history={self.history}: must be at least 1 and 2")

    def __call__(self, log: Log, start: int) -> tuple[bool, dict[str, Any]]:
        """Return whether what was rewritten at a step is kept, and the evidence."""
        line = log.losses
        before = [o for o in line if o.step <= start][-self.history :]
        after = [o for o in line if o.step > start]
        late = after[len(after) // 2 :]
        observed = sum(o.loss for o in late) / len(late)
        predicted = extrapolate(before, [o.step for o in late])
        windows = [entry for entry in log.present if isinstance(entry, Statistics)]
        times = [[s.seconds_per_step for s in windows if (s.step > start) == is_after] for is_after in (False, True)]
        evidence: dict[str, Any] = {"observed": observed, "predicted": predicted}
        is_kept = math.isfinite(observed) and (predicted is None or observed <= predicted + self.tolerance * abs(predicted))
        if all(times):
            ratio = min(times[1]) / min(times[0]) if min(times[0]) > 0.0 else math.inf
            evidence["cost"] = ratio
            is_kept = is_kept and (self.cost is None or ratio <= self.cost)
        return is_kept, evidence


def extrapolate(before: Sequence[Observation], steps: Sequence[int]) -> float | None:
    """Return the mean of a line through losses, at later steps; None where fewer than two losses are finite."""
    points = [(o.step, o.loss) for o in before if math.isfinite(o.loss)]
    if len(points) < 2:
        return None
    in_logarithms = all(loss > 0.0 for _, loss in points)
    values = [math.log(loss) if in_logarithms else loss for _, loss in points]
    middle, mean = math.fsum(t for t, _ in points) / len(points), math.fsum(values) / len(points)
    spread = math.fsum((t - middle) ** 2 for t, _ in points)
    slope = math.fsum((t - middle) * (v - mean) for (t, _), v in zip(points, values, strict=True)) / spread if spread else 0.0
    made = [mean + min(slope, 0.0) * (t - middle) for t in steps]
    return math.fsum(math.exp(v) if in_logarithms else v for v in made) / len(made)


def decide(log: Log, policy: Policy, judge: Judge | None) -> list[Decision]:
    """Return what is to be done at the end of a window, by the log alone: a verdict on the rewrites on trial, or new ones.

    What was refused is not decided again before something has changed.
    """
    last = log.find_last(Observation)
    if last is None:
        return []
    if judge is not None:
        trial = find_trial(log)
        if trial:
            if last.step - trial[0].step < judge.steps:
                return []
            is_kept, evidence = judge(log, trial[0].step)
            evidence["rules"] = [d.rule for d in trial]
            return [Decision(last.step, KEEP if is_kept else ROLLBACK, trial[0].rule, normalise(evidence))]
    found = [p if isinstance(p, Proposal) else Proposal(p) for p in policy(log)]
    refused = [strip_seed(each.rule) for each in log.find_settled(Refused, len(log))]
    return [
        Decision(last.step, REWRITE, normalise(p.rule.to_data()), normalise(p.evidence))
        for p in found
        if strip_seed(p.rule.to_data()) not in refused
    ]


def strip_seed(rule: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a rule's data without its seed: what two tries have in common."""
    return {key: value for key, value in normalise(rule or {}).items() if key != "seed"}


def find_trial(log: Log) -> list[Decision]:
    """Return the decisions that rewrites were made by, all at one step, and that nothing was said of since."""
    found: list[Decision] = []
    for i in range(len(log.events) - 1, -1, -1):
        entry = log.events[i]
        if isinstance(entry, RolledBack):
            break
        if not isinstance(entry, Decision):
            continue
        if entry.action != REWRITE or (found and entry.step != found[0].step):
            break
        if i + 1 < len(log.events) and isinstance(log.events[i + 1], Rewritten):
            found.append(entry)
    return found[::-1]


def replay_decisions(log: Log, policy: Policy, judge: Judge | None = None) -> list[Decision]:
    """Return the decisions that a log leads to: those that are in it, where policy and judge are those of the run."""
    found: list[Decision] = []
    known = Log()
    for entry in log:
        known.add(entry)
        if isinstance(entry, Statistics):
            found += decide(known, policy, judge)
    return found
