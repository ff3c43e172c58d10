"""Statistics of timing samples: pure, deterministic, in NumPy alone.

The median is the figure and its bootstrap interval the uncertainty (Efron & Tibshirani, *An Introduction to the Bootstrap*, 1993,
chapter 13: percentile interval). Means are left out on purpose: one interrupted sample moves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_BOOTSTRAP_SEED = 0x5EED
_NUM_RESAMPLES = 1000
# Beyond this many samples the order-statistic interval is used: resampling costs more and says the same.
_MAX_BOOTSTRAP_SAMPLES = 512

Samples = Sequence[float] | NDArray[np.floating]


@dataclass(frozen=True)
class Summary:
    """What is said about a set of samples, in their own unit. ``low`` and ``high`` bound the median with 95 % confidence."""

    num_samples: int
    median: float
    q1: float
    q3: float
    minimum: float
    maximum: float
    low: float
    high: float

    @property
    def relative_iqr(self) -> float:
        """Interquartile range as a share of the median."""
        return (self.q3 - self.q1) / self.median

    @property
    def relative_interval(self) -> float:
        """Width of the median's interval as a share of the median."""
        return (self.high - self.low) / self.median


class StopReason(StrEnum):
    """Which rule ended the sampling."""

    SETTLED = "settled"
    BUDGET = "budget"
    MAX_SAMPLES = "max_samples"


@dataclass(frozen=True)
class StopRule:
    """When to stop sampling: enough samples and a median known to ``relative_interval``, or the time or the count is used up.

    ``min_samples`` are taken unless the budget ends first; ``floor_samples`` are taken whatever it costs.
    """

    relative_interval: float = 0.005
    min_samples: int = 30
    floor_samples: int = 10
    max_samples: int = 5000
    budget_s: float = 3.0

    def decide(self, samples: Samples, elapsed_s: float) -> StopReason | None:
        """Return why to stop now, or None to go on."""
        count = len(samples)
        if count >= self.min_samples:
            if summarize(samples).relative_interval <= self.relative_interval:
                return StopReason.SETTLED
            if count >= self.max_samples:
                return StopReason.MAX_SAMPLES
        return StopReason.BUDGET if count >= self.floor_samples and elapsed_s >= self.budget_s else None


def find_median_interval(samples: Samples, confidence: float = 0.95, seed: int = _BOOTSTRAP_SEED) -> tuple[float, float]:
    """Return a confidence interval of the median.

    Percentile bootstrap with a fixed seed; for many samples the distribution-free interval between order statistics
    (n/2 ± z·√n/2, normal approximation of the binomial; David & Nagaraja, *Order Statistics*, 2003, section 7.1).
    """
    values = np.sort(np.asarray(samples, dtype=np.float64))
    _require_finite(values)
    count = len(values)
    if count > _MAX_BOOTSTRAP_SAMPLES:
        reach = 0.5 * _find_normal_quantile(confidence) * np.sqrt(count)
        low, high = int(np.floor(count / 2 - reach)), int(np.ceil(count / 2 + reach))
        return float(values[max(low, 0)]), float(values[min(high, count - 1)])
    rng = np.random.Generator(np.random.PCG64(seed))
    medians = np.median(values[rng.integers(0, count, (_NUM_RESAMPLES, count))], axis=1)
    tail = (1 - confidence) / 2
    low_value, high_value = np.quantile(medians, [tail, 1 - tail])
    return float(low_value), float(high_value)


def summarize(samples: Samples) -> Summary:
    """Return the figures of a non-empty set of finite samples; raises ValueError otherwise."""
    values = np.asarray(samples, dtype=np.float64)
    _require_finite(values)
    q1, median, q3 = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
    low, high = find_median_interval(values)
    return Summary(len(values), median, q1, q3, float(values.min()), float(values.max()), low, high)


def _require_finite(values: NDArray[np.float64]) -> None:
    if values.size == 0:
        raise ValueError("no samples to summarize")
    if not np.isfinite(values).all():
        raise ValueError(f"{np.count_nonzero(~np.isfinite(values))} of {values.size} samples are not finite")


def _find_normal_quantile(confidence: float) -> float:
    """Return z with P(|N(0,1)| <= z) = confidence."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)
