"""A contest: an incumbent, a second copy of it as the control, and candidates, timed in the same rounds until a verdict is possible.

The control is the same machine code loaded once more. Where it comes out faster or slower than the incumbent, what the run measures is
not the kernels, and all its verdicts are void.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.timing.batches import Batch, Subject
from harness.timing.stats import StopReason, find_throttled
from harness.timing.verdicts import Criteria, Effect, Outcome, Verdict, correct_for_many, find_differences, find_effect, is_void, judge

_DECIDED = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)
# A device's default clock when none is known: nothing counts as throttled.
_NO_CLOCK = 0.0
# Cycles need a clock in nearly every round.
_MIN_CLOCKS = 0.9


class RoundTimer(Protocol):
    """What a contest needs of :class:`harness.timing.timer.Timer`."""

    def warm_up(self, subjects: Sequence[Subject]) -> tuple[float, bool]:
        """Run until two windows agree."""
        ...

    def run_rounds(self, subjects: Sequence[Subject], num_rounds: int, first_round: int = 0) -> Batch:
        """Time subjects in rounds; returns [rounds, subjects, 2] times and clocks."""
        ...


@dataclass(frozen=True)
class Contest:
    """What a contest gave. ``names`` are the incumbent, the control and the candidates; ``outcomes`` those of the candidates, in order.

    ``times_us`` and ``clocks_mhz`` are [rounds, names, 2], every sample as it was taken; ``num_throttled`` rounds were set aside. Less than
    ``margin``, a share of the time, counted as the same.
    """

    names: tuple[str, ...]
    times_us: NDArray[np.float64]
    clocks_mhz: NDArray[np.float64]
    outcomes: tuple[Outcome, ...]
    control: Effect
    is_void: bool
    num_throttled: int
    stop_reason: StopReason
    warmup_s: float = 0.0
    settled: bool = True
    margin: float = Criteria.margin

    def to_figures(self, index: int) -> dict[str, Any]:
        """Return what is recorded of candidate ``index`` as plain values."""
        outcome = self.outcomes[index]
        return {
            "verdict": outcome.verdict.value,
            "note": outcome.note,
            "effect": asdict(outcome.effect),
            "cycles": None if outcome.cycles is None else asdict(outcome.cycles),
            "control": asdict(self.control),
            "is_void": self.is_void,
            "margin": self.margin,
            "incumbent": self.names[0],
            "median_us": float(np.median(self.times_us[:, index + 2])),
            "incumbent_median_us": float(np.median(self.times_us[:, 0])),
            "num_rounds": len(self.times_us),
            "num_throttled": self.num_throttled,
            "stop_reason": self.stop_reason.value,
            "warmup_s": self.warmup_s,
            "settled": self.settled,
        }


def judge_rounds(times_us: NDArray[np.float64], clocks_mhz: NDArray[np.float64], criteria: Criteria) -> tuple[list[Outcome], Effect]:
    """Return the candidates' outcomes and the control's effect from [rounds, incumbent and control and candidates, 2] times and clocks.

    A difference must stand up to Holm's correction for the number of candidates.
    """
    cycles = times_us * clocks_mhz
    error = criteria.look_error
    effects = [find_effect(find_differences(times_us[:, 0], times_us[:, i]), error) for i in range(1, times_us.shape[1])]
    control, candidates = effects[0], effects[1:]
    corrected = correct_for_many([e.p_value for e in candidates])
    outcomes = []
    for i, (effect, p_value) in enumerate(zip(candidates, corrected, strict=True), start=2):
        in_cycles = find_differences(cycles[:, 0], cycles[:, i])
        known = len(in_cycles) >= max(6, _MIN_CLOCKS * len(times_us))
        outcome = judge(effect, find_effect(in_cycles, error) if known else None, criteria.margin)
        if outcome.verdict in (Verdict.FASTER, Verdict.SLOWER) and p_value > error:
            note = f"{outcome.verdict} alone, but not as one of {len(candidates)}: corrected p = {p_value:.2g}"
            outcome = replace(outcome, verdict=Verdict.AMBIGUOUS, note=note)
        outcomes.append(outcome)
    return outcomes, control


def run_contest(
    timer: RoundTimer,
    subjects: Sequence[Subject],
    names: Sequence[str],
    criteria: Criteria,
    *,
    default_mhz: float = _NO_CLOCK,
    budget_s: float = 20.0,
    clock: Callable[[], float] = time.monotonic,
) -> Contest:
    """Time incumbent, control and candidates until every candidate's verdict stands at a planned look, or looks or budget are used up."""
    if len(subjects) < 3 or len(subjects) != len(names):
        raise ValueError(f"{len(subjects)} subjects: a contest needs an incumbent, a control and at least one candidate, each with a name")
    warmup_s, settled = timer.warm_up(subjects)
    started = clock()
    batches: list[Batch] = []
    taken = 0
    for look in criteria.looks:
        step = timer.run_rounds(subjects, look - taken, taken)
        batches.append(step)
        taken = look
        times, clocks = (np.concatenate([getattr(b, name) for b in batches]) for name in ("times_us", "clocks_mhz"))
        kept = _find_kept(clocks, default_mhz)
        outcomes, control = judge_rounds(times[kept], clocks[kept], criteria)
        void = is_void(control, criteria.margin)
        if not void and all(o.verdict in _DECIDED for o in outcomes):
            reason = StopReason.SETTLED
            break
        # The next look takes about as long again as all before it.
        reason = StopReason.MAX_SAMPLES if look == criteria.looks[-1] else StopReason.BUDGET
        if 2 * (clock() - started) > budget_s:
            break
    if void:
        note = f"void: the incumbent differs from itself by {control.describe()}"
        outcomes = [replace(o, verdict=Verdict.AMBIGUOUS, note=note) for o in outcomes]
    num_throttled = int(np.count_nonzero(~kept))
    return Contest(tuple(names), times, clocks, tuple(outcomes), control, void, num_throttled, reason, warmup_s, settled, criteria.margin)


def _find_kept(clocks_mhz: NDArray[np.float64], default_mhz: float) -> NDArray[np.bool_]:
    """Return True per round without a slowed-down sample; all of them where hardly any is left."""
    slow = find_throttled(clocks_mhz.ravel(), default_mhz).reshape(len(clocks_mhz), -1)
    kept = np.asarray(~slow.any(axis=1))
    return kept if np.count_nonzero(kept) >= 6 else np.ones(len(kept), np.bool_)
