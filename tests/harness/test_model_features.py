"""What the time model is told: counts of sampled blocks, the modelled L1, and estimates of executed machine code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from device import Device
from device.observer import KernelLines, LineCounters
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import BuildResult, build_op
from harness.build.resources import Occupancy
from harness.build.sass import SassInstruction, SassKernel
from harness.discover import LoadedOp, load_op
from harness.model.features import Features, choose_sample, collect_features, estimate_executed, find_l1_share
from harness.spec import Problem
from harness.targets import find_target

ROOT = Path(__file__).resolve().parents[2]
TARGET = find_target("h200")
Collect = Callable[[str, dict[str, int]], Features]


@pytest.fixture(scope="module")
def collect(device: Device) -> Collect:
    if not device.is_emulated:
        pytest.skip("features are collected on the emulated device, and AICF_DEVICE=cuda chose the GPU")
    toolchain = find_toolchain()
    loaded = LoadedOp(load_op(ROOT / "ops" / "softmax"), ROOT / "ops" / "softmax")
    binding = build_binding(loaded, toolchain)
    built: dict[str, BuildResult] = {}

    def run(variant: str, sizes: dict[str, int]) -> Features:
        if variant not in built:
            built[variant] = build_op(loaded, loaded.op.select_variants([variant]), toolchain=toolchain, target=TARGET)[0]
        build = built[variant]
        assert build.library is not None, build.error
        entry = (build, open_variant(loaded.op, binding, build.library, build.variant), {})
        found = next(collect_features(device, loaded.op, Problem(sizes), [entry], TARGET))[1]
        assert isinstance(found, Features), found
        return found

    return run


def test_a_sample_of_blocks_has_the_counts_of_the_whole_grid_in_proportion(collect: Collect) -> None:
    few, many = (collect("warp_per_row/rows4", {"rows": rows, "columns": 512}).launches[0] for rows in (64, 4096))
    assert (few.num_blocks, few.num_sampled) == (16, 16)
    assert (many.num_blocks, many.num_sampled) == (1024, 16)
    for name in ("warp_instructions", "global_load_sectors", "global_store_sectors", "shuffles", "global_block_bytes_read"):
        assert many.per_block(name) == few.per_block(name) > 0


def test_the_modelled_l1_holds_a_row_that_fits_and_not_one_that_does_not(collect: Collect) -> None:
    # Three passes over a row: 32 warps of an SM have 64 blocks of one warp between them, 4 KiB of L1 each.
    short = collect("warp_per_row/rows1", {"rows": 256, "columns": 256}).launches[0]
    long = collect("warp_per_row/rows1", {"rows": 256, "columns": 8192}).launches[0]
    assert short.counts["l1_load_miss_sectors"] == pytest.approx(short.counts["global_load_sectors"] / 3, rel=0.05)
    assert long.counts["l1_load_miss_sectors"] == long.counts["global_load_sectors"]


def test_the_sample_shrinks_with_the_block_and_never_exceeds_the_grid() -> None:
    assert [choose_sample(10**6, threads) for threads in (32, 256, 1024)] == [64, 8, 2]
    assert choose_sample(3, 256) == 3
    assert choose_sample(10**6, 4096) == 2


def test_blocks_share_what_shared_memory_leaves_of_the_l1() -> None:
    assert find_l1_share(Occupancy(2, 16, 0.5, "x"), 32 * 1024, TARGET) == (256 - 2 * 33) * 1024 // 2
    assert find_l1_share(Occupancy(1, 16, 0.5, "x"), 227 * 1024, TARGET) == (256 - 228) * 1024
    assert find_l1_share(Occupancy(0, 0, 0.0, "x"), 300 * 1024, TARGET) > 0


def test_machine_code_takes_the_execution_counts_of_its_source_line() -> None:
    def inst(address: int, opcode: str, line: int, target: str = "") -> SassInstruction:
        return SassInstruction(address, "", opcode, "", "/x/k.cu", line, target)

    code = (
        inst(0, "S2R", 1),
        inst(16, "FFMA", 2),
        inst(32, "LDG.E", 2),
        inst(48, "BRA", 2, ".L_x_0"),
        inst(64, "FADD", 2),
        inst(80, "EXIT", 9),
    )
    sass = SassKernel("k", code, {".L_x_0": 16})
    rows = [(1, 8), (2, 8), (2, 800), (9, 8)]
    lines = KernelLines("k", 1, tuple(LineCounters(i, f"k.cu:{n}", "k", "x", {"warp_instructions": c}) for i, (n, c) in enumerate(rows)))
    found = estimate_executed(sass, lines)
    assert {k: v for k, v in found.items() if k != "chain_clocks"} == {"integer": 8, "fp32": 808, "global": 800, "control": 808}
    assert found["chain_clocks"] == sum(v for k, v in found.items() if k != "chain_clocks")  # nothing depends on anything here
