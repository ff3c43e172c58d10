"""Whether one kernel is faster than another: from interleaved samples to a verdict with its effect and its confidence. Pure.

Samples come in rounds, in which every contender is timed twice, the second time in reverse order (A B B A): what drifts evenly over
a round then cancels in the difference of the contenders. A round's *difference* is the logarithm of the candidate's time over the
incumbent's. Over all rounds the figure is the Hodges-Lehmann estimate, the median of the means of all pairs of differences, and its
interval that of Wilcoxon's signed-rank test (Hollander, Wolfe & Chicken, *Nonparametric Statistical Methods*, 2014, chapter 3). Both need
symmetry alone, so outliers and two-valued clocks do no harm. The test's variance is widened by the correlation time of the differences.

Looking at the samples again and again until they look significant would find a difference everywhere: looks are planned beforehand, and
the error that is allowed is shared among them. Several candidates against one incumbent are corrected by Holm's method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from harness.timing.stats import Samples, find_correlation_time, find_median_interval

_NORMAL = NormalDist()
# Walsh averages are quadratic in the number of rounds: more rounds than this are averaged over neighbours first.
_MAX_DIFFERENCES = 600


class Verdict(StrEnum):
    """What is said of a candidate against the incumbent."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"


@dataclass(frozen=True)
class Criteria:
    """What it takes to say something.

    ``margin`` is the relative difference below which two kernels count as the same; ``error`` the probability of a difference being
    seen where there is none, over all looks of one comparison; ``looks`` the numbers of rounds after which the samples are looked at.
    """

    margin: float = 0.005
    error: float = 0.01
    looks: tuple[int, ...] = (24, 48, 96, 192, 384)

    @property
    def look_error(self) -> float:
        """The error allowed at one look (Bonferroni)."""
        return self.error / len(self.looks)


@dataclass(frozen=True)
class Effect:
    """A candidate's time against the incumbent's: relative change (0.01: one percent slower) with its interval.

    ``p_value`` is the probability of a change at least this large if there were none; ``win_share`` the share of rounds in which the
    candidate was faster; ``confidence`` that of the interval; ``correlation_time`` how many rounds counted as one.
    """

    change: float
    low: float
    high: float
    p_value: float
    confidence: float
    num_rounds: int
    win_share: float
    correlation_time: float

    def describe(self) -> str:
        """Say the change in a few words."""
        return (
            f"{100 * self.change:+.2f} % [{100 * self.low:+.2f}, {100 * self.high:+.2f}] "
            f"at {100 * self.confidence:.1f} % confidence, p = {self.p_value:.2g}, {self.num_rounds} rounds"
        )


def format_p_value(p_value: float) -> str:
    """Return a p-value for tables: below what a look at the samples can tell, only that it is below."""
    return "< 0.0001" if p_value < 1e-4 else f"{p_value:.2g}"


@dataclass(frozen=True)
class Outcome:
    """An effect and what follows from it. ``cycles`` is the effect in SM cycles, None where the clock was not known."""

    verdict: Verdict
    effect: Effect
    cycles: Effect | None = None
    note: str = ""


def plan_round(count: int, index: int) -> list[int]:
    """Return the order in which ``count`` contenders are timed in one round: each twice, mirrored, and rotated from round to round."""
    order = [(index + i) % count for i in range(count)]
    return [*order, *reversed(order)]


def find_differences(incumbent: Samples, candidate: Samples) -> NDArray[np.float64]:
    """Return the rounds' log ratios from [rounds, 2] times (or cycles) of each; rounds with a value that is not known are left out."""
    first, second = (np.asarray(x, dtype=np.float64) for x in (incumbent, candidate))
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"rounds of {first.shape} and {second.shape} times: expected the same number of rounds and of times in each")
    if (first <= 0).any() or (second <= 0).any():
        raise ValueError("a time is not above zero")
    differences = np.log(second).mean(axis=1) - np.log(first).mean(axis=1)
    return np.asarray(differences[np.isfinite(differences)])


def find_effect(differences: Samples, error: float) -> Effect:
    """Return the effect with an interval that misses the truth with probability ``error``. Raises ValueError below six differences."""
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 6:
        raise ValueError(f"{len(values)} rounds are too few to compare: at least 6")
    num_rounds, wins = len(values), float(np.mean(values < 0))
    tau = find_correlation_time(values)
    if len(values) > _MAX_DIFFERENCES:
        width = math.ceil(len(values) / _MAX_DIFFERENCES)
        values = values[: len(values) // width * width].reshape(-1, width).mean(axis=1)
        tau = max(1.0, tau / width)
    count = len(values)
    rows, columns = np.triu_indices(count)
    walsh = np.sort((values[rows] + values[columns]) / 2)
    centre, spread = count * (count + 1) / 4, math.sqrt(tau * count * (count + 1) * (2 * count + 1) / 24)
    reach = _NORMAL.inv_cdf(1 - error / 2) * spread
    first = max(0, math.floor(centre - reach))
    low, high = walsh[first], walsh[len(walsh) - 1 - first]
    # Averages of exactly zero speak for neither side.
    statistic = float(np.sum(walsh > 0) + 0.5 * np.sum(walsh == 0))
    p_value = 2 * (1 - _NORMAL.cdf(max(0.0, abs(statistic - centre) - 0.5) / spread))
    change, low, high = (math.expm1(float(x)) for x in (np.median(walsh), low, high))
    return Effect(change, low, high, min(1.0, p_value), 1 - error, num_rounds, wins, tau)


def find_unpaired_effect(incumbent: Samples, candidate: Samples, error: float) -> Effect:
    """Return the effect between samples that were taken apart, as two records were: the difference of the medians of their logarithms.

    The interval is the sum of both medians' own, so it is wider than it need be; a drift between the two runs is in the effect.
    """
    logs = [np.log(np.asarray(x, dtype=np.float64)) for x in (incumbent, candidate)]
    medians = [float(np.median(x)) for x in logs]
    intervals = [find_median_interval(x, confidence=1 - error) for x in logs]
    change = medians[1] - medians[0]
    reach = math.hypot(*(max(high - m, m - low) for m, (low, high) in zip(medians, intervals, strict=True)))
    quantile = _NORMAL.inv_cdf(1 - error / 2)
    p_value = 2 * (1 - _NORMAL.cdf(quantile * abs(change) / reach)) if reach > 0 else float(change == 0)
    wins = float(np.mean(logs[1][:, None] < logs[0][None, :])) if max(map(len, logs)) <= 2000 else float("nan")
    tau = max(find_correlation_time(x) for x in logs)
    low, high = math.expm1(change - reach), math.expm1(change + reach)
    return Effect(math.expm1(change), low, high, p_value, 1 - error, min(map(len, logs)), wins, tau)


def judge_effect(effect: Effect, margin: float) -> Verdict:
    """Return the verdict on one effect.

    FASTER and SLOWER need an interval that excludes no change, and a change of at least the margin; SAME an interval within the margin.
    """
    if effect.high < 0 and effect.change <= -margin:
        return Verdict.FASTER
    if effect.low > 0 and effect.change >= margin:
        return Verdict.SLOWER
    return Verdict.SAME if -margin < effect.low and effect.high < margin else Verdict.AMBIGUOUS


def judge(times: Effect, cycles: Effect | None, margin: float) -> Outcome:
    """Return the outcome of an effect in time and in SM cycles: they must not contradict each other.

    A difference in time that cycles deny is one of the clock and not of the kernel.
    """
    verdict = judge_effect(times, margin)
    if cycles is None or verdict not in (Verdict.FASTER, Verdict.SLOWER):
        return Outcome(verdict, times, cycles)
    # Clocks are known less precisely than times: what they leave open does not contradict.
    if judge_effect(cycles, margin) in (verdict, Verdict.AMBIGUOUS):
        return Outcome(verdict, times, cycles)
    return Outcome(Verdict.AMBIGUOUS, times, cycles, f"{verdict} in time, but {cycles.describe()} in SM cycles: the clock differs")


def correct_for_many(p_values: Sequence[float]) -> list[float]:
    """Return the p-values as they are to be read when the least of several is picked.

    Holm, *A Simple Sequentially Rejective Multiple Test Procedure*, Scandinavian Journal of Statistics 6(2), 1979.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def choose_winner(incumbent: str, effects: Mapping[str, Effect], criteria: Criteria) -> str:
    """Return the fastest of the candidates that are FASTER than the incumbent after the correction, or the incumbent: ties keep it."""
    names = list(effects)
    corrected = dict(zip(names, correct_for_many([effects[n].p_value for n in names]), strict=True))
    faster = [n for n in names if corrected[n] <= criteria.error and judge_effect(effects[n], criteria.margin) is Verdict.FASTER]
    return min(faster, key=lambda n: effects[n].change, default=incumbent)


def is_void(control: Effect, margin: float) -> bool:
    """Return whether a control, the incumbent against itself, came out different: then the run says nothing."""
    return judge_effect(control, margin) in (Verdict.FASTER, Verdict.SLOWER)
