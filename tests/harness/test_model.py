"""The time model's arithmetic: terms that follow from counts, norms, and the constants' file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.model.features import Features, LaunchFeatures
from harness.model.time_model import (
    LATENCIES,
    PARAMETERS,
    THROUGHPUTS,
    combine,
    find_missed_bytes,
    find_partial_share,
    find_reread_bytes,
    find_terms,
    load_machine,
    predict,
)
from harness.spec import SpecError
from harness.targets import find_target

TARGET = find_target("h200")
RATES = load_machine("h200").rates
# 1320 blocks of 8 warps, two of them run; each block executes 4000 warp instructions, a half of them fp32.
COUNTS = {
    "warp_instructions": 8000,
    "fp32": 4000,
    "global_loads": 64,
    "global_load_sectors": 256,
    "l1_load_miss_sectors": 256,
    "global_block_bytes_read": 8192,
    "global_stores": 64,
    "global_store_sectors": 256,
    "global_store_bytes": 8192,
    "shared_load_wavefronts": 2000,
    "barriers": 32,
}
LAUNCH = LaunchFeatures("k", 1320, 256, 1024, 32, 2, 2, COUNTS)
FEATURES = Features("op", "k/x1", "p", 1e6, 5e6, 5e6, (LAUNCH,))
ONES = {**dict.fromkeys(PARAMETERS, 1.0), "overhead_us": 0.0}


def test_terms_of_an_sm_are_counts_over_rates_on_the_fullest_sm() -> None:
    terms = find_terms(FEATURES, TARGET, RATES)
    clock = RATES["clock_mhz"]
    assert terms["fp32"] == pytest.approx(10 * 2000 / 4 / clock)
    assert terms["issue"] == pytest.approx(10 * 4000 / 4 / clock)
    assert terms["shared"] == pytest.approx(10 * 1000 / clock)
    uneven = replace(FEATURES, launches=(replace(LAUNCH, num_blocks=1321),))
    assert find_terms(uneven, TARGET, RATES)["fp32"] == pytest.approx(11 * 2000 / 4 / clock)


def test_bandwidths_and_blocks_are_of_the_whole_chip() -> None:
    terms = find_terms(FEATURES, TARGET, RATES)
    assert terms["dram"] == pytest.approx(1e6 * 1e7 / RATES["dram_bytes_per_s"])
    assert terms["l2_read"] == terms["l2_write"] == pytest.approx(1e6 * 1320 * 4096 / RATES["l2_bytes_per_s"])
    assert terms["blocks"] == pytest.approx(1320 / RATES["blocks_per_us"])


def test_latencies_count_rounds_of_resident_blocks() -> None:
    terms = find_terms(FEATURES, TARGET, RATES)
    assert terms["barrier"] == pytest.approx(5 * 2 / RATES["clock_mhz"])  # 16 a block over 8 warps, in 1320 / (132 * 2) rounds
    alone = find_terms(replace(FEATURES, launches=(replace(LAUNCH, num_blocks=2),)), TARGET, RATES)
    assert alone["barrier"] == pytest.approx(2 / RATES["clock_mhz"])
    assert terms["near"] == 0.0 and terms["far"] > 0.0


def test_more_warps_in_flight_hide_more_latency() -> None:
    slow, fast = (find_terms(replace(FEATURES, launches=(replace(LAUNCH, blocks_per_sm=b),)), TARGET, RATES) for b in (1, 5))
    assert all(slow[name] == fast[name] for name in THROUGHPUTS)
    assert slow["far"] == pytest.approx(5 * fast["far"])


@pytest.mark.parametrize(("bytes_stored", "share"), [(8192, 0.0), (6144, 0.5), (4096, 1.0), (1024, 1.0)])
def test_sectors_that_are_not_stored_whole(bytes_stored: int, share: float) -> None:
    assert find_partial_share(replace(LAUNCH, counts={**COUNTS, "global_store_bytes": bytes_stored})) == share


def test_what_is_read_twice_comes_from_the_l2_while_the_resident_blocks_fit_it() -> None:
    twice = replace(LAUNCH, counts={**COUNTS, "l1_load_miss_sectors": 512})
    assert find_missed_bytes(twice) == 8192
    assert find_reread_bytes(twice, TARGET, RATES) == 0.0
    assert find_reread_bytes(twice, TARGET, {**RATES, "l2_effective_bytes": 264 * 4096 / 4}) == pytest.approx(0.75 * 4096)


def test_short_runs_of_bytes_cost_the_dram_more() -> None:
    terms = [
        find_terms(replace(FEATURES, launches=(replace(LAUNCH, counts={**COUNTS, "global_block_runs": n}),)), TARGET, RATES)
        for n in (0, 32, 128)
    ]
    assert terms[0]["dram_runs"] < terms[1]["dram_runs"] < terms[2]["dram_runs"]
    assert terms[1]["dram_runs"] == pytest.approx(terms[1]["dram"] * RATES["dram_run_bytes"] / 256.0)
    assert terms[0]["dram"] == terms[2]["dram"]


def test_norms_lie_between_the_largest_and_the_sum() -> None:
    terms = find_terms(FEATURES, TARGET, RATES)
    largest, total = max(terms[n] for n in THROUGHPUTS), sum(terms[n] for n in (*THROUGHPUTS, *LATENCIES))
    assert largest < combine(terms, ONES) < total
    sharp = {**ONES, "norm": 60.0, "norm_sm": 60.0}
    assert combine(terms, sharp) < combine(terms, ONES)
    assert combine(terms, {**ONES, "overhead_us": 2.0}) == pytest.approx(2.0 + combine(terms, ONES))


def test_a_prediction_lies_in_its_interval_and_names_its_bound() -> None:
    found = predict(FEATURES, TARGET)
    assert 0 < found.low_us < found.time_us < found.high_us
    assert found.bound == max(found.terms_us, key=lambda name: found.terms_us[name])
    with pytest.raises(SpecError, match="no constants for target 'a100'"):
        predict(FEATURES, find_target("a100"))


def test_a_kernel_that_the_fit_has_not_seen_has_the_interval_of_ops_held_out() -> None:
    machine = load_machine("h200")
    known = replace(FEATURES, op="softmax", variant="naive/threads999")
    for features, (low, high) in ((known, machine.interval), (FEATURES, machine.unseen_interval)):
        found = predict(features, TARGET)
        assert (found.low_us / found.time_us, found.high_us / found.time_us) == pytest.approx((low, high))
    low, high = machine.unseen_interval
    assert high - low > machine.interval[1] - machine.interval[0]
    assert "whole ops held out" in machine.make_note("softmax", "new/x1") and "ops" not in machine.make_note("softmax", "naive/x1")
