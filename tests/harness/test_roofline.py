"""Floor and model: units, limits, and the pipe that a load falls on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device.observer import LaunchCounters
from harness.model.roofline import find_floor, find_share_of_floor, model_launch, model_launches
from harness.spec import Cost
from harness.targets import find_target

H200 = find_target("h200")
COUNTS = st.dictionaries(
    st.sampled_from(["warp_instructions", "fp32", "integer", "global_load_sectors", "shared_load_wavefronts", "global_unique_bytes_read"]),
    st.integers(0, 10**12),
)


def make(counts: dict[str, int], blocks: int = H200.num_sms) -> LaunchCounters:
    return LaunchCounters("k", (blocks, 1, 1), (256, 1, 1), counts)


def test_floor_is_flops_or_bytes_over_the_peak() -> None:
    compute = find_floor(Cost(H200.peak_flops["fp32"], 1.0, 1.0), H200)
    assert compute.total_us == pytest.approx(1e6)
    assert compute.bound == "compute"
    assert compute.cached_us == compute.compute_us
    memory = find_floor(Cost(1.0, H200.dram_bytes_per_s, H200.dram_bytes_per_s), H200)
    assert memory.total_us == pytest.approx(2e6)
    assert memory.cold_us == pytest.approx(1e6)
    assert memory.bound == "memory"
    assert find_share_of_floor(memory, 4e6) == pytest.approx(0.5)


def test_unknown_flop_unit_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no peak rate for flop unit 'fp13'; it has: .*fp32"):
        find_floor(Cost(1.0, 1.0, 1.0, "fp13"), H200)


@pytest.mark.parametrize(
    ("name", "per_clock", "pipe"),
    [
        ("warp_instructions", 4.0, "issue"),
        ("fp32", 4.0, "fp32"),
        ("integer", 2.0, "integer"),
        ("special", 0.5, "special"),
        ("shared_load_wavefronts", 1.0, "shared"),
    ],
)
def test_each_pipe_takes_its_count_over_its_rate(name: str, per_clock: float, pipe: str) -> None:
    model = model_launch(make({name: 10**9}), H200)
    assert model.pipe == pipe
    assert model.total_us == pytest.approx(10**9 / per_clock / H200.num_sms / H200.clock_mhz)


def test_dram_takes_distinct_bytes_and_l2_every_sector() -> None:
    model = model_launch(make({"global_load_sectors": 10**9, "global_unique_bytes_read": 32 * 10**9}), H200)
    assert model.pipe == "dram"
    assert model.total_us == pytest.approx(1e6 * 32e9 / H200.dram_bytes_per_s)
    assert model_launch(make({"global_load_sectors": 10**9, "global_unique_bytes_read": 32}), H200).pipe == "l2"


@pytest.mark.parametrize(
    ("blocks", "tail"), [(H200.num_sms, 1.0), (H200.num_sms + 1, 2 * H200.num_sms / (H200.num_sms + 1)), (1, H200.num_sms)]
)
def test_the_fullest_sm_ends_last(blocks: int, tail: float) -> None:
    model = model_launch(make({"fp32": 10**6}, blocks), H200)
    assert model.tail == pytest.approx(tail)
    assert model.total_us == pytest.approx(tail * 10**6 / 4 / H200.num_sms / H200.clock_mhz)


@settings(max_examples=50, deadline=None)
@given(COUNTS, COUNTS, st.integers(1, 5000))
def test_more_work_never_takes_less_time(counts: dict[str, int], more: dict[str, int], blocks: int) -> None:
    together = {name: counts.get(name, 0) + more.get(name, 0) for name in {*counts, *more}}
    assert model_launch(make(together, blocks), H200).total_us >= model_launch(make(counts, blocks), H200).total_us >= 0


def test_launches_in_a_row_add_up_and_none_is_refused() -> None:
    one, two = make({"fp32": 10**8}), make({"integer": 10**9})
    both = model_launches([one, two], H200)
    assert both.total_us == pytest.approx(model_launch(one, H200).total_us + model_launch(two, H200).total_us)
    assert both.pipe == "integer"
    with pytest.raises(ValueError, match="nothing to model"):
        model_launches([], H200)
