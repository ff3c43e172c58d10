"""Verdicts on simulated runs whose truth is known: no difference must be seen where there is none, and one percent must be found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.timing.verdicts import (
    Criteria,
    Effect,
    Outcome,
    Verdict,
    choose_winner,
    correct_for_many,
    find_differences,
    find_effect,
    find_unpaired_effect,
    is_void,
    judge,
    judge_effect,
)
from tests.harness.noise import NOISES, Noise, make_rounds

CRITERIA = Criteria()


def run_trial(rng: np.random.Generator, noise: Noise, change: float) -> Outcome:
    """Look after each planned number of rounds, as the harness does, until there is something to say."""
    rounds = make_rounds(rng, noise, (50.0, 50.0 * (1 + change)), CRITERIA.looks[-1])
    for look in CRITERIA.looks:
        effect = find_effect(find_differences(rounds[:look, 0], rounds[:look, 1]), CRITERIA.look_error)
        outcome = judge(effect, None, CRITERIA.margin)
        if outcome.verdict is not Verdict.AMBIGUOUS:
            break
    return outcome


@pytest.mark.parametrize("name", NOISES)
def test_two_hundred_comparisons_of_a_kernel_with_itself_see_at_most_two_differences(name: str) -> None:
    rng = np.random.default_rng(11)
    verdicts = [run_trial(rng, NOISES[name], 0.0).verdict for _ in range(200)]
    assert sum(v in (Verdict.FASTER, Verdict.SLOWER) for v in verdicts) <= 2
    assert sum(v is Verdict.SAME for v in verdicts) >= 150


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("change", [0.01, -0.01])
def test_one_percent_is_found_nine_times_of_ten(name: str, change: float) -> None:
    rng = np.random.default_rng(12)
    verdicts = [run_trial(rng, NOISES[name], change).verdict for _ in range(60)]
    expected = Verdict.SLOWER if change > 0 else Verdict.FASTER
    assert sum(v is expected for v in verdicts) >= 54
    assert not any(v in (Verdict.FASTER, Verdict.SLOWER) and v is not expected for v in verdicts)


def test_samples_taken_one_after_the_other_would_see_differences_that_are_none() -> None:
    """The liar that interleaving is there for: first all of A, then all of B, on a drifting clock."""
    rng = np.random.default_rng(13)
    wrong = 0
    for _ in range(40):
        factors = NOISES["drifting"].make(rng, 400)
        effect = find_unpaired_effect(50 * factors[:200], 50 * factors[200:], 0.01)
        wrong += judge_effect(effect, 0.005) in (Verdict.FASTER, Verdict.SLOWER)
    assert wrong > 20


@pytest.mark.parametrize("name", ["white", "wandering", "two clocks at random"])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(name: str) -> None:
    rng = np.random.default_rng(14)
    hits = 0
    for _ in range(200):
        rounds = make_rounds(rng, NOISES[name], (50.0, 51.0), 60)
        effect = find_effect(find_differences(rounds[:, 0], rounds[:, 1]), 0.1)
        hits += effect.low <= 0.02 <= effect.high
    assert hits >= 168


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(6, 80), st.floats(-0.2, 0.2))
def test_exchanging_the_two_exchanges_the_verdict(seed: int, count: int, change: float) -> None:
    rounds = make_rounds(np.random.default_rng(seed), NOISES["white"], (50.0, 50.0 * (1 + change)), count)
    there = find_effect(find_differences(rounds[:, 0], rounds[:, 1]), 0.01)
    back = find_effect(find_differences(rounds[:, 1], rounds[:, 0]), 0.01)
    assert there.low <= there.change <= there.high
    assert (1 + there.change) * (1 + back.change) == pytest.approx(1.0)
    assert (1 + there.low) * (1 + back.high) == pytest.approx(1.0)
    assert there.p_value == pytest.approx(back.p_value)
    mirrored = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    found = judge_effect(there, 0.0)
    assert judge_effect(back, 0.0) is mirrored.get(found, found)


def _effect(change: float, reach: float, p_value: float = 1e-6) -> Effect:
    return Effect(change, change - reach, change + reach, p_value, 0.99, 48, 0.5, 1.0)


@pytest.mark.parametrize(
    ("change", "reach", "verdict"),
    [
        (0.010, 0.004, Verdict.SLOWER),
        (-0.010, 0.004, Verdict.FASTER),
        (0.010, 0.012, Verdict.AMBIGUOUS),
        (0.001, 0.003, Verdict.SAME),
        (0.003, 0.001, Verdict.SAME),
        (0.004, 0.002, Verdict.AMBIGUOUS),
        (0.0, 0.010, Verdict.AMBIGUOUS),
        (math.nan, 0.001, Verdict.AMBIGUOUS),
    ],
)
def test_verdict_follows_from_effect_and_margin(change: float, reach: float, verdict: Verdict) -> None:
    assert judge_effect(_effect(change, reach), 0.005) is verdict


def test_a_difference_in_time_that_cycles_deny_is_ambiguous() -> None:
    slower = _effect(0.02, 0.004)
    assert judge(slower, None, 0.005).verdict is Verdict.SLOWER
    assert judge(slower, _effect(0.018, 0.005), 0.005).verdict is Verdict.SLOWER
    assert judge(slower, _effect(0.010, 0.050), 0.005).verdict is Verdict.SLOWER, "a clock that is not well known denies nothing"
    denied = judge(slower, _effect(0.0005, 0.003), 0.005)
    assert denied.verdict is Verdict.AMBIGUOUS and "clock" in denied.note
    assert judge(slower, _effect(-0.02, 0.004), 0.005).verdict is Verdict.AMBIGUOUS


def test_the_correction_for_many_is_holms() -> None:
    assert correct_for_many([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct_for_many([0.9, 0.8]) == [1.0, 1.0]
    assert correct_for_many([]) == []


def test_the_best_of_many_equals_replaces_the_incumbent_hardly_ever() -> None:
    rng = np.random.default_rng(15)
    replaced = 0
    for _ in range(40):
        rounds = make_rounds(rng, Noise(white=0.02), (50.0,) * 12, 48)
        effects = {f"v{i}": find_effect(find_differences(rounds[:, 0], rounds[:, i]), 0.01) for i in range(1, 12)}
        replaced += choose_winner("v0", effects, CRITERIA) != "v0"
    assert replaced <= 1


def test_ties_keep_the_incumbent_and_a_faster_one_replaces_it() -> None:
    tied = {"a": _effect(-0.003, 0.001), "b": _effect(-0.02, 0.03, 0.2), "c": _effect(0.05, 0.01)}
    assert choose_winner("old", tied, CRITERIA) == "old"
    assert choose_winner("old", tied | {"d": _effect(-0.02, 0.005), "e": _effect(-0.03, 0.005)}, CRITERIA) == "e"


def test_a_control_that_differs_from_itself_voids_the_run() -> None:
    assert is_void(_effect(0.01, 0.002), 0.005)
    assert not is_void(_effect(0.001, 0.002), 0.005)
    assert not is_void(_effect(0.02, 0.05), 0.005)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        find_effect([0.1] * 5, 0.01)
    with pytest.raises(ValueError, match="same number"):
        find_differences(np.ones((3, 2)), np.ones((4, 2)))
    with pytest.raises(ValueError, match="above zero"):
        find_differences(np.ones((3, 2)), np.zeros((3, 2)))
    rounds = np.array([[1.0, 1.0], [np.nan, 1.0]])
    assert len(find_differences(rounds, np.ones((2, 2)))) == 1
