"""Strategies of a sweep: only what the constraints allow, nothing twice, better than chance, and the same again from the same results."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from hashlib import sha256

import pytest

from harness.spec import Constraint, Kernel, Tunable, Variant
from harness.sweep.proposals import Proposals, limit_lag
from harness.sweep.space import list_space
from harness.sweep.strategies import ListStrategy, OptunaStrategy, Score, Space, StrategyName, make_strategy
from tests.harness.toy_op import make_toy

POWERS = tuple(2**i for i in range(8))
# A sixth of the grid is allowed; the best lies away from its corners and from what is listed.
TILED = Kernel(
    "tiled",
    "an idea",
    (Tunable("bm", POWERS, "rows"), Tunable("bn", POWERS, "columns"), Tunable("stages", (1, 2, 3, 4), "ring")),
    (
        Constraint("fits", "bm * bn * stages must fit", lambda t: 64 <= t["bm"] * t["bn"] * t["stages"] <= 2048),
        Constraint("even", "bm and stages", lambda t: t["bm"] % t["stages"] == 0),
    ),
    ({"bm": 64, "bn": 1, "stages": 1},),
)
SLOW = Kernel("slow", "another", (Tunable("n", tuple(range(1, 31)), "how many"),), (), ({"n": 1},))
OP = make_toy(kernels=(TILED, SLOW))
SPACE = set(list_space(TILED)) | set(list_space(SLOW))


def find_time(variant: Variant) -> float:
    t = dict(variant.values)
    if variant.kernel == "slow":
        return 1000.0 + t["n"]
    return 50.0 * (1 + abs(math.log2(t["bm"] / 16)) + 0.7 * abs(math.log2(t["bn"] / 32)) + 0.2 * abs(t["stages"] - 2))


def search(name: StrategyName, seed: int, per_kernel: int = 40, time: Callable[[Variant], float | None] = find_time) -> list[Variant]:
    strategy = make_strategy(OP, name, per_kernel, seed)
    tried = []
    while (variant := strategy.propose()) is not None:
        tried.append(variant)
        found = time(variant)
        strategy.tell(variant, Score(None if found is None else math.log(found)))
    return tried


@pytest.mark.parametrize("name", [StrategyName.TPE, StrategyName.CMAES])
def test_a_sampler_tries_what_is_allowed_once_and_beats_chance(name: StrategyName) -> None:
    best = min(map(find_time, SPACE))
    found, chance = [], []
    for seed in range(4):
        tried = search(name, seed)
        assert set(tried) <= SPACE and len(set(tried)) == len(tried)
        assert tried[0].name == "tiled/bm64_bn1_stages1", "listed variants come first"
        assert len([v for v in tried if v.kernel == "slow"]) == 8, "far behind: given up after the least number of trials"
        found.append(min(map(find_time, tried)) / best)
        order = sorted(list_space(TILED), key=lambda v: sha256(f"{seed} {v.name}".encode()).digest())[: len(tried)]
        chance.append(min(map(find_time, order)) / best)
    assert max(found) <= 1.25
    assert sum(found) < sum(chance)


@pytest.mark.parametrize("name", [StrategyName.TPE, StrategyName.CMAES])
def test_the_same_seed_and_results_give_the_same_order(name: StrategyName) -> None:
    assert search(name, 3) == search(name, 3)
    assert search(name, 3) != search(name, 4)


def test_variants_without_a_time_and_exhausted_spaces_end_a_search() -> None:
    tried = search(StrategyName.TPE, 0, per_kernel=1000, time=lambda v: None if dict(v.values).get("stages") == 2 else find_time(v))
    assert len([v for v in tried if v.kernel == "tiled"]) == len(set(list_space(TILED)))
    assert search(StrategyName.TPE, 0, per_kernel=12, time=lambda v: None)


def test_a_wish_is_moved_to_the_nearest_variant_that_is_free() -> None:
    space = Space(TILED)
    first = space.take_nearest([4.0, 5.0, 1.0])
    assert first.name == "tiled/bm16_bn32_stages2"
    second = space.take_nearest([4.0, 5.0, 1.0])
    assert second != first and space.num_free == len(space.variants) - 2
    assert space.take_nearest([7.0, 7.0, 3.0]) in SPACE, "the corner itself is not allowed"


def test_pruned_trials_count_as_bad_ones() -> None:
    strategy = OptunaStrategy(OP, StrategyName.TPE, 30, 1)
    tried = []
    while (variant := strategy.propose()) is not None:
        tried.append(variant)
        time = find_time(variant)
        strategy.tell(variant, Score(math.log(time), is_pruned=time > 150.0))
    assert min(map(find_time, tried)) <= 65.0


class Recorder(ListStrategy):
    """Notes how many results were told before each proposal."""

    is_adaptive = True

    def __init__(self, variants: list[Variant]) -> None:
        super().__init__(variants)
        self.told: list[Variant] = []
        self.seen: list[list[Variant]] = []

    def propose(self) -> Variant | None:
        self.seen.append(list(self.told))
        return super().propose()

    def tell(self, variant: Variant, score: Score) -> None:
        self.told.append(variant)


def test_a_proposal_waits_for_the_results_it_depends_on_and_for_no_others() -> None:
    variants = list(list_space(SLOW))[:6]
    strategy = Recorder(variants)
    proposals = Proposals(strategy, lag=2)
    found: list[Variant] = []
    thread = threading.Thread(target=lambda: found.extend(proposals))
    thread.start()
    for variant in (variants[1], variants[0], variants[3], variants[2], variants[4], variants[5]):
        proposals.tell(variant, Score(0.0))
    thread.join(10)
    assert found == variants
    assert strategy.seen == [variants[: max(0, k - 1)] for k in range(7)]


def test_with_more_compilers_than_variants_a_sampler_still_learns() -> None:
    assert limit_lag(58, 50) == 12 and limit_lag(6, 50) == 6 and limit_lag(58, 8) == 4

    def find_times(lag: int) -> list[float]:
        """Return the times of what is proposed where each result comes back as late as it may."""
        proposals = Proposals(make_strategy(OP, StrategyName.TPE, 40, 0), lag)
        waiting: list[Variant] = []
        times = []
        for variant in proposals:
            times.append(find_time(variant))
            waiting.append(variant)
            if len(waiting) == lag:
                first = waiting.pop(0)
                proposals.tell(first, Score(math.log(find_time(first))))
        return times

    learnt, blind = find_times(limit_lag(200, 80)), find_times(200)
    assert sorted(learnt)[len(learnt) // 2] < sorted(blind)[len(blind) // 2]
    assert sum(t > 1000.0 for t in learnt) < sum(t > 1000.0 for t in blind)


def test_closing_ends_the_wait() -> None:
    proposals = Proposals(Recorder(list(list_space(SLOW))), lag=1)
    found: list[Variant] = []
    thread = threading.Thread(target=lambda: found.extend(proposals))
    thread.start()
    proposals.close()
    thread.join(10)
    assert not thread.is_alive() and len(found) <= 1
