"""Statistics of timing samples: pure and deterministic, with NumPy only.

The median is the figure and its bootstrap interval the uncertainty (Efron & Tibshirani, *An Introduction to the Bootstrap*, 1993,
chapter 13: percentile interval). Samples that follow each other are alike, because clock and temperature move slowly: whole blocks of
them are drawn (Künsch, *The Jackknife and the Bootstrap for General Stationary Observations*, Annals of Statistics 17(3), 1989), and
the blocks are as long as the samples' own correlation. Means are left out on purpose: one interrupted sample moves them.

Whether one thing is faster than another is decided in :mod:`harness.timing.verdicts`.
"""

from __future__ import annotations

import math
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
# A sample whose SM clock is below this share of the one the GPU is made for says how slow a slowed-down GPU is, and nothing else.
THROTTLED_BELOW = 0.75
# The spread has come to rest when it moved less than this over the latter half of the samples, looked at this many times.
_PLATEAU_CHANGE = 0.05
_NUM_PLATEAU_LOOKS = 8

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


def find_ratio_interval(over: tuple[float, float, float], under: tuple[float, float, float]) -> tuple[float, float]:
    """Return the interval of the ratio of two medians, each given with its own ``(median, low, high)``, all above zero.

    The reaches of their logarithms, independent of each other, add up as squares do.
    """
    below = math.hypot(math.log(over[0] / over[1]), math.log(under[2] / under[0]))
    above = math.hypot(math.log(over[2] / over[0]), math.log(under[0] / under[1]))
    ratio = over[0] / under[0]
    return ratio * math.exp(-below), ratio * math.exp(above)


class StopReason(StrEnum):
    """Which rule ended the sampling: the interval is narrow enough, the spread no longer changes, or time or count are used up.

    ``TOO_SLOW``: a few samples show that the subject is slower than was asked about.
    """

    SETTLED = "settled"
    PLATEAU = "plateau"
    BUDGET = "budget"
    MAX_SAMPLES = "max_samples"
    TOO_SLOW = "too_slow"


# The status of a contender of whom no more is known than that.
TOO_SLOW = "too slow"


@dataclass(frozen=True)
class StopRule:
    """When to stop sampling: enough samples and a median known to ``relative_interval``, or the time or the count is used up.

    ``min_samples`` are taken unless the budget ends first; ``floor_samples`` are taken whatever it costs, and suffice where their
    quartiles lie within ``steady_spread`` of the median. From ``plateau_samples`` on,
    a spread that no longer changes ends it too: more samples of the same noise say the same.
    """

    relative_interval: float = 0.003
    min_samples: int = 30
    floor_samples: int = 10
    plateau_samples: int = 1000
    max_samples: int = 5000
    budget_s: float = 3.0
    steady_spread: float = 0.0

    def decide(self, samples: Samples, elapsed_s: float) -> StopReason | None:
        """Return why to stop now, or None to go on."""
        count = len(samples)
        if self.steady_spread > 0.0 and count >= self.floor_samples:
            q1, median, q3 = np.quantile(samples, [0.25, 0.5, 0.75])
            if q3 - q1 <= self.steady_spread * median:
                return StopReason.SETTLED
        if count >= self.min_samples:
            # The interval takes milliseconds to find.
            if self.relative_interval > 0.0 and summarize(samples).relative_interval <= self.relative_interval:
                return StopReason.SETTLED
            if count >= self.max_samples:
                return StopReason.MAX_SAMPLES
            if count >= self.plateau_samples and has_steady_spread(samples):
                return StopReason.PLATEAU
        return StopReason.BUDGET if count >= self.floor_samples and elapsed_s >= self.budget_s else None


def find_median_interval(samples: Samples, confidence: float = 0.95, seed: int = _BOOTSTRAP_SEED) -> tuple[float, float]:
    """Return a confidence interval of the median of samples in the order in which they were taken.

    Percentile bootstrap of blocks with a fixed seed; for many samples the distribution-free interval between order statistics
    (n/2 ± z·√(τn)/2, normal approximation of the binomial; David & Nagaraja, *Order Statistics*, 2003, section 7.1), which the
    correlation time τ widens.
    """
    values = np.asarray(samples, dtype=np.float64)
    _require_finite(values)
    count = len(values)
    tau = find_correlation_time(values)
    if count > _MAX_BOOTSTRAP_SAMPLES:
        values = np.sort(values)
        reach = 0.5 * _find_normal_quantile(confidence) * np.sqrt(tau * count)
        low, high = int(np.floor(count / 2 - reach)), int(np.ceil(count / 2 + reach))
        return float(values[max(low, 0)]), float(values[min(high, count - 1)])
    medians = np.median(values[_draw_blocks(count, tau, seed)], axis=1)
    tail = (1 - confidence) / 2
    low_value, high_value = np.quantile(medians, [tail, 1 - tail])
    return float(low_value), float(high_value)


def _draw_blocks(count: int, tau: float, seed: int) -> NDArray[np.intp]:
    """Return [_NUM_RESAMPLES, count] indices, made of blocks of neighbours that wrap around the end."""
    length = min(round(tau), max(1, count // 4))
    rng = np.random.Generator(np.random.PCG64(seed))
    starts = rng.integers(0, count, (_NUM_RESAMPLES, -(-count // length)))
    indices = (starts[:, :, None] + np.arange(length)) % count
    return indices.reshape(_NUM_RESAMPLES, -1)[:, :count]


def find_correlation_time(values: Samples) -> float:
    """Return how many neighbouring samples count as one, at least 1.

    1 + 2 Σρ(k) over the autocorrelation of the ranks, summed in pairs of lags until a pair is no longer positive (Geyer, *Practical
    Markov Chain Monte Carlo*, Statistical Science 7(4), 1992: initial positive sequence). Ranks, so that one outlier changes little.
    """
    array = np.asarray(values, dtype=np.float64)
    count = len(array)
    _, ranks, sizes = np.unique(array, return_inverse=True, return_counts=True)
    # Equal values share the middle of their ranks.
    centred = (np.cumsum(sizes) - (sizes - 1) / 2)[ranks] - (count + 1) / 2
    padded = np.fft.rfft(centred, 2 * count)
    covariance = np.fft.irfft(padded * np.conj(padded))[:count]
    if count < 8 or covariance[0] <= 0:
        return 1.0
    rho = covariance / covariance[0]
    total = -1.0
    for lag in range(0, count // 2 - 1, 2):
        pair = float(rho[lag] + rho[lag + 1])
        if pair <= 0:
            break
        total += 2 * pair
    return max(1.0, total)


def has_steady_spread(samples: Samples) -> bool:
    """Return whether the relative interquartile range no longer changes as samples are added."""
    values = np.asarray(samples, dtype=np.float64)
    ends = np.linspace(len(values) // 2, len(values), _NUM_PLATEAU_LOOKS).astype(int)
    quartiles = np.array([np.quantile(values[:end], [0.25, 0.5, 0.75]) for end in ends])
    spreads = (quartiles[:, 2] - quartiles[:, 0]) / quartiles[:, 1]
    return bool(np.ptp(spreads) <= _PLATEAU_CHANGE * spreads[-1])


def windows_agree(before: Samples, after: Samples, tolerance: float) -> bool:
    """Return whether the medians of two windows differ by at most a share ``tolerance`` of the earlier: then warm-up is over."""
    first, second = float(np.median(before)), float(np.median(after))
    return abs(second - first) <= tolerance * abs(first)


def find_throttled(clocks_mhz: Samples, default_mhz: float) -> NDArray[np.bool_]:
    """Return True per sample that a slowed-down GPU took; an unknown clock (NaN) does not count against its sample."""
    return np.asarray(clocks_mhz, dtype=np.float64) < THROTTLED_BELOW * default_mhz


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
