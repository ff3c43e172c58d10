"""Short launches are timed in many places: which place a launch takes, and what a slow place does to the median."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from harness.spec import Cost, Role
from harness.targets import find_target
from harness.timing.batches import Mode
from harness.timing.placement import NUM_PLACES, Placements
from harness.timing.rounds import check_output, time_problem
from harness.timing.timer import Subject, Timer, TimingPolicy
from harness.verify.inputs import make_inputs
from harness.verify.reference import Expected
from tests.harness.fake_device import FakeArray, FakeDevice, FakeInstruments
from tests.harness.toy_op import ToyKernel, honest, make_toy

OP = make_toy()
PROBLEM = OP.problems[0]


def make_kernel(device: FakeDevice, seen: list[int], slow: set[int] = frozenset()) -> ToyKernel:  # type: ignore[assignment]
    def body(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
        seen.append(Y.address)
        device.clock_us += 5.0 if list(dict.fromkeys(seen)).index(Y.address) in slow else 4.6
        honest(A=A, B=B, bias=bias, Y=Y, relu=relu)

    return ToyKernel(device, body)


def test_cold_launches_take_all_places_in_turn_and_hot_ones_stay_at_home() -> None:
    device, seen = FakeDevice(), []
    stream = device.create_stream()
    with Placements(device, OP, PROBLEM) as places:
        places.upload(make_inputs(OP, PROBLEM, "uniform"))
        kernel = make_kernel(device, seen)
        cold, hot = (places.choose(kernel, mode) for mode in (Mode.COLD, Mode.HOT))
        for _ in range(2 * NUM_PLACES):
            cold(stream)
        assert Counter(seen) == dict.fromkeys(set(seen), 2) and len(set(seen)) == NUM_PLACES
        home = places.arguments["Y"].address
        seen.clear()
        for _ in range(3):
            hot(stream)
        assert seen == [home] * 3
        assert places.read_outputs()["Y"].any()
        live = device.num_live
    assert device.num_live < live == NUM_PLACES * 4, "what kept the places apart is free again"


def test_a_slow_home_does_not_decide_the_median() -> None:
    device = FakeDevice()
    timer = Timer(device, replace(TimingPolicy(), warmup_cap_s=0.0), instruments=FakeInstruments(device))
    medians = {}
    for count in (1, NUM_PLACES):
        with Placements(device, OP, PROBLEM, count) as places:
            places.upload(make_inputs(OP, PROBLEM, "uniform"))
            launch = places.choose(make_kernel(device, [], slow={0, 5}), Mode.COLD)
            medians[count] = timer.measure_cold(launch).summary.median
    assert medians[1] == pytest.approx(5.0) and medians[NUM_PLACES] == pytest.approx(4.6)


def test_a_large_problem_has_one_place() -> None:
    device = FakeDevice()
    large = replace(OP, cost=lambda problem: Cost(1.0, 40e6, 40e6))
    with Placements(device, large, PROBLEM) as places:
        assert places.num_places == 1
        places.upload({n: np.asarray(v) for n, v in make_inputs(OP, PROBLEM, "uniform").items()})
        assert set(places.arguments) == {"A", "B", "bias", "Y", "relu"}


@pytest.mark.parametrize(
    ("role", "verdict"), [(Role.INOUT, ""), (Role.OUTPUT, "wrong after it was timed: 1 elements of Y were not written")]
)
def test_what_is_updated_in_place_may_keep_its_value(role: Role, verdict: str) -> None:
    """An update by less than half a unit in the last place leaves an element as it was; an output that was not written is wrong."""
    outputs = {"Y": np.ones(2, np.float32)}
    places = cast(
        Placements,
        SimpleNamespace(
            op=SimpleNamespace(tensors=[SimpleNamespace(name="Y", role=role)]),
            num_places=1,
            poison=lambda byte: None,
            read_outputs=lambda: outputs,
            find_unwritten=lambda found: {"Y": np.array([True, False])},
        ),
    )
    timer = cast(Timer, SimpleNamespace(run_batch=lambda subjects: None))
    expected = cast(Expected, SimpleNamespace(find_wrong=lambda found: "" if (found["Y"] == 1).all() else "values"))
    assert check_output(timer, places, [], expected) == verdict
    outputs["Y"] = np.zeros(2, np.float32)
    assert check_output(timer, places, [], expected) == (verdict or "wrong after it was timed: values")


class _IntegerPlaces:
    """One output of three integers, and the poison it was filled with last."""

    op = SimpleNamespace(tensors=[SimpleNamespace(name="Y", role=Role.OUTPUT)])
    num_places = 1

    def __init__(self) -> None:
        self.memory, self.byte = np.zeros(3, np.int64), 0

    def poison(self, byte: int) -> None:
        self.byte = byte
        self.memory.view(np.uint8).fill(byte)

    def read_outputs(self) -> dict[str, Any]:
        return {"Y": self.memory.copy()}

    def find_unwritten(self, outputs: dict[str, Any]) -> dict[str, Any]:
        return {"Y": (outputs["Y"].view(np.uint8).reshape(3, 8) == self.byte).all(axis=1)}


@pytest.mark.parametrize(("first", "verdict"), [(0, ""), (1, "wrong after it was timed: 1 elements of Y were not written")])
def test_an_integer_may_have_the_value_of_the_poison_unless_it_was_not_written(first: int, verdict: str) -> None:
    places = _IntegerPlaces()

    def launch(subjects: list[Subject]) -> None:
        places.memory[first:] = [-1, 2, -1][first:]

    timer = cast(Timer, SimpleNamespace(run_batch=launch))
    expected = cast(Expected, SimpleNamespace(find_wrong=lambda found: ""))
    assert check_output(timer, cast(Placements, places), [], expected) == verdict


@pytest.mark.parametrize("give_up_beyond", [1.3, math.inf])
def test_in_a_race_who_takes_many_times_as_long_is_launched_twice_and_not_timed(give_up_beyond: float) -> None:
    device, launches = FakeDevice(), Counter[str]()
    timer = Timer(device, replace(TimingPolicy(), warmup_cap_s=0.0), instruments=FakeInstruments(device))

    def make(name: str, us: float) -> ToyKernel:
        def body(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
            launches[name] += 1
            device.clock_us += us
            honest(A=A, B=B, bias=bias, Y=Y, relu=relu)

        return ToyKernel(device, body)

    entries = [(name, make(name, us)) for name, us in (("fast", 500.0), ("close", 900.0), ("hopeless", 40_000.0))]
    found = time_problem(
        device, timer, OP, PROBLEM, entries, find_target("h200"), (Mode.COLD,), num_places=1, give_up_beyond=give_up_beyond
    )
    status = {timed.name: timed.status for timed in found}
    is_race = math.isfinite(give_up_beyond)
    behind = "too slow" if is_race else "passed"
    assert status == {"fast": "passed", "close": behind, "hopeless": behind}
    assert (launches["hopeless"] == 2) == is_race and launches["close"] > 2


def test_in_a_race_the_fastest_that_is_right_says_who_need_not_be_judged() -> None:
    device = FakeDevice()
    timer = Timer(device, replace(TimingPolicy(), warmup_cap_s=0.0), instruments=FakeInstruments(device))

    def make(us: float, *, is_wrong: bool = False) -> ToyKernel:
        def body(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
            device.clock_us += us
            honest(A=A, B=B, bias=bias, Y=Y, relu=relu)
            if is_wrong:
                Y.host += 1

        return ToyKernel(device, body)

    kernels = {"liar": (100.0, True), "right": (500.0, False), "chosen": (900.0, True), "close": (600.0, True), "far": (950.0, True)}
    entries = [(name, make(us, is_wrong=wrong)) for name, (us, wrong) in kernels.items()]
    target = find_target("h200")
    found = list(
        time_problem(device, timer, OP, PROBLEM, entries, target, (Mode.COLD,), num_places=1, give_up_beyond=1.3, always_judged=["chosen"])
    )
    assert [t.name for t in found] == list(kernels)
    assert [t.status for t in found] == ["failed", "passed", "failed", "failed", "too slow"]
    assert all(t.cold is not None for t in found)
