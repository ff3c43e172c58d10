"""Statistics of samples, and the rule that ends sampling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stats import StopReason, StopRule, find_median_interval, summarize

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
