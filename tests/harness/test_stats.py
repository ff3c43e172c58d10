"""Statistics of samples, and the rule that ends sampling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.timing.stats import (
    StopReason,
    StopRule,
    find_correlation_time,
    find_median_interval,
    find_throttled,
    has_steady_spread,
    summarize,
    windows_agree,
)

SAMPLES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=80)


@settings(max_examples=60, deadline=None)
@given(SAMPLES)
def test_figures_are_ordered_and_inside_the_samples(samples: list[float]) -> None:
    s = summarize(samples)
    assert s.minimum <= s.q1 <= s.median <= s.q3 <= s.maximum
    assert s.minimum <= s.low <= s.high <= s.maximum
    assert s.num_samples == len(samples)
    assert summarize(samples) == s


@settings(max_examples=30, deadline=None)
@given(SAMPLES, st.floats(0.5, 8.0))
def test_figures_scale_with_the_unit(samples: list[float], factor: float) -> None:
    s, scaled = summarize(samples), summarize([factor * x for x in samples])
    assert scaled.median == pytest.approx(factor * s.median)
    assert scaled.relative_interval == pytest.approx(s.relative_interval, abs=1e-9)


@pytest.mark.parametrize("count", [40, 4000])
def test_interval_covers_the_true_median_about_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(100):
        low, high = find_median_interval(rng.exponential(1.0, count))
        hits += low <= np.log(2) <= high
    assert hits >= 88


def test_interval_narrows_with_the_number_of_samples() -> None:
    rng = np.random.default_rng(3)
    widths = [summarize(100 + rng.standard_normal(n)).relative_interval for n in (30, 300, 3000)]
    assert widths[0] > widths[1] > widths[2]


@pytest.mark.parametrize(("samples", "message"), [([], "no samples"), ([1.0, float("nan")], "1 of 2 samples are not finite")])
def test_bad_samples_are_refused(samples: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        summarize(samples)


def test_stop_rule_names_its_reason() -> None:
    rule = StopRule(relative_interval=0.01, min_samples=10, max_samples=100, budget_s=2.0)
    rng = np.random.default_rng(0)
    noisy = list(10 + 5 * rng.standard_normal(100).clip(-1.9, 1.9))
    assert rule.decide([5.0] * 9, elapsed_s=1.0) is None
    assert rule.decide([5.0] * 9, elapsed_s=99.0) is None
    slow = StopRule(min_samples=30, floor_samples=10, budget_s=2.0)
    assert slow.decide([5.0] * 9, elapsed_s=99.0) is None
    assert slow.decide([5.0] * 10, elapsed_s=1.9) is None
    assert slow.decide([5.0] * 10, elapsed_s=2.0) is StopReason.BUDGET
    assert rule.decide([5.0] * 10, elapsed_s=0.0) is StopReason.SETTLED
    assert rule.decide(noisy[:20], elapsed_s=1.0) is None
    assert rule.decide(noisy[:20], elapsed_s=2.0) is StopReason.BUDGET
    assert rule.decide(noisy, elapsed_s=1.0) is StopReason.MAX_SAMPLES


def test_neighbours_that_are_alike_count_as_fewer() -> None:
    rng = np.random.default_rng(5)
    assert find_correlation_time(rng.standard_normal(500)) < 1.6
    held = np.repeat(rng.standard_normal(50), 10)
    assert 6 < find_correlation_time(held) < 16
    assert find_correlation_time([1.0] * 50) == 1.0
    assert find_correlation_time([1.0, 2.0]) == 1.0


def test_the_interval_of_a_wandering_clock_is_as_wide_as_it_must_be() -> None:
    """With samples drawn one by one instead of in blocks, the interval would miss the median most of the time."""
    rng = np.random.default_rng(6)
    hits = 0
    for _ in range(60):
        walk = np.zeros(200)
        for i in range(1, 200):
            walk[i] = 0.9 * walk[i - 1] + rng.standard_normal()
        low, high = find_median_interval(100 + walk)
        hits += low <= 100 <= high
    assert hits >= 46


def test_a_spread_that_no_longer_changes_ends_the_sampling() -> None:
    rng = np.random.default_rng(8)
    rule = StopRule(relative_interval=1e-6, plateau_samples=1000)
    steady = list(100 + 10 * rng.standard_normal(3000))
    assert rule.decide(steady[:900], elapsed_s=0.1) is None
    assert rule.decide(steady, elapsed_s=0.1) is StopReason.PLATEAU
    growing = [100 + 0.01 * i * x for i, x in enumerate(rng.standard_normal(3000))]
    assert not has_steady_spread(growing)
    assert has_steady_spread([5.0] * 100)


def test_windows_agree_within_the_tolerance() -> None:
    assert windows_agree([100.0, 101.0, 99.0], [100.4], 0.005)
    assert not windows_agree([100.0], [100.6], 0.005)
    assert not windows_agree([100.0], [float("nan")], 0.005)


def test_samples_of_a_slowed_down_gpu_are_found_and_unknown_clocks_are_not() -> None:
    assert find_throttled([1980.0, 1400.0, float("nan"), 1485.0], 1980.0).tolist() == [False, True, False, False]
