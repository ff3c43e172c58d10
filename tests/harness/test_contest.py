"""Contests on simulated GPUs: verdicts that hold, controls that void a run, and clocks that explain a difference away."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from harness.compare.contest import Contest, run_contest
from harness.timing.batches import Batch, Mode, Subject
from harness.timing.stats import StopReason
from harness.timing.verdicts import Criteria, Verdict, plan_round
from tests.harness.noise import NOISES, Noise

CRITERIA = Criteria()
SUBJECT = Subject(Mode.COLD, lambda s: None, lambda s: None, 1, "events", 5.0, 50.0)


class SimulatedTimer:
    """Gives times of contenders on a noisy GPU; ``clocks`` makes the clock of each sample from (contender, how many samples before it)."""

    def __init__(self, times_us: Sequence[float], noise: Noise, seed: int = 1, clocks: Callable[[int, int], float] | None = None) -> None:
        self.times_us = times_us
        self.factors = noise.make(np.random.default_rng(seed), 2 * len(times_us) * CRITERIA.looks[-1])
        self.clocks = clocks or (lambda contender, index: 1980.0)
        self.taken = 0
        self.now_s = 0.0

    def warm_up(self, subjects: Sequence[Subject]) -> tuple[float, bool]:
        return 0.2, True

    def run_rounds(self, subjects: Sequence[Subject], num_rounds: int, first_round: int = 0) -> Batch:
        shape = (num_rounds, len(subjects), 2)
        times, clocks = np.empty(shape), np.empty(shape)
        for i in range(num_rounds):
            seen = [0] * len(subjects)
            for contender in plan_round(len(subjects), first_round + i):
                clock = self.clocks(contender, self.taken)
                times[i, contender, seen[contender]] = self.times_us[contender] * self.factors[self.taken] * 1980.0 / clock
                clocks[i, contender, seen[contender]] = clock
                seen[contender] += 1
                self.taken += 1
                self.now_s += 1e-6 * self.times_us[contender]
        return Batch(times, clocks)


def hold(timer: SimulatedTimer, budget_s: float = 20.0) -> Contest:
    count = len(timer.times_us)
    names = ("old", "control", *(f"new{i}" for i in range(count - 2)))
    return run_contest(timer, [SUBJECT] * count, names, CRITERIA, default_mhz=1980.0, budget_s=budget_s, clock=lambda: timer.now_s)


def test_a_faster_candidate_is_found_and_the_run_ends_at_once() -> None:
    contest = hold(SimulatedTimer((50.0, 50.0, 47.0), NOISES["white"]))
    (outcome,) = contest.outcomes
    assert outcome.verdict is Verdict.FASTER
    assert outcome.effect.change == pytest.approx(-0.06, abs=0.005)
    assert outcome.cycles is not None and outcome.cycles.change == pytest.approx(-0.06, abs=0.005)
    assert contest.stop_reason is StopReason.SETTLED and contest.times_us.shape == (24, 3, 2)
    figures = contest.to_figures(0)
    assert (figures["verdict"], figures["incumbent"], figures["num_rounds"]) == ("FASTER", "old", 24)
    assert figures["median_us"] == pytest.approx(47.0, rel=0.01)


@pytest.mark.parametrize("name", NOISES)
def test_candidates_that_are_copies_are_not_told_apart(name: str) -> None:
    verdicts = [o.verdict for seed in range(25) for o in hold(SimulatedTimer((50.0,) * 4, NOISES[name], seed)).outcomes]
    assert sum(v in (Verdict.FASTER, Verdict.SLOWER) for v in verdicts) <= 1
    assert sum(v is Verdict.SAME for v in verdicts) >= 35


def test_a_control_that_differs_voids_the_run() -> None:
    contest = hold(SimulatedTimer((50.0, 51.0, 45.0), NOISES["white"]))
    assert contest.is_void
    assert contest.outcomes[0].verdict is Verdict.AMBIGUOUS and "differs from itself" in contest.outcomes[0].note
    assert contest.stop_reason is StopReason.MAX_SAMPLES


def test_a_slow_gpu_is_not_taken_for_a_slow_kernel() -> None:
    """The candidate always meets a clock that is lower by 3 %: slower in time, the same in cycles."""
    contest = hold(SimulatedTimer((50.0, 50.0, 50.0), NOISES["white"], clocks=lambda who, _: 1920.0 if who == 2 else 1980.0))
    (outcome,) = contest.outcomes
    assert outcome.verdict is Verdict.AMBIGUOUS and "the clock differs" in outcome.note
    assert outcome.effect.change > 0.02


def test_rounds_of_a_throttled_gpu_are_set_aside() -> None:
    contest = hold(SimulatedTimer((50.0, 50.0, 48.0), NOISES["white"], clocks=lambda _, i: 1000.0 if 60 <= i < 73 else 1980.0))
    assert contest.num_throttled == 3
    assert len(contest.times_us) == 24, "they are kept"
    assert contest.outcomes[0].verdict is Verdict.FASTER
    slow = hold(SimulatedTimer((50.0, 50.0, 48.0), NOISES["white"], clocks=lambda _, i: 1000.0))
    assert slow.num_throttled == 0 and slow.outcomes[0].verdict is Verdict.FASTER, "where there is nothing else, they count"


def test_clocks_that_are_not_known_leave_the_verdict_to_times() -> None:
    timer = SimulatedTimer((50.0, 50.0, 48.0), NOISES["white"])
    run = timer.run_rounds
    timer.run_rounds = lambda s, n, first_round=0: Batch(run(s, n, first_round).times_us, np.full((n, 3, 2), np.nan))  # type: ignore[method-assign, misc, assignment]
    (outcome,) = hold(timer).outcomes
    assert outcome.verdict is Verdict.FASTER and outcome.cycles is None


def test_the_budget_ends_a_contest_that_decides_nothing() -> None:
    noisy = SimulatedTimer((50.0, 50.0, 50.15), Noise(white=0.2))
    contest = hold(noisy, budget_s=0.02)
    assert contest.stop_reason is StopReason.BUDGET
    assert contest.outcomes[0].verdict is Verdict.AMBIGUOUS
    assert len(contest.times_us) < CRITERIA.looks[-1]


def test_a_contest_needs_a_control() -> None:
    with pytest.raises(ValueError, match="a control"):
        run_contest(SimulatedTimer((50.0, 50.0), NOISES["white"]), [SUBJECT] * 2, ("a", "b"), CRITERIA)
