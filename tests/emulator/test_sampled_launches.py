"""What proofs of large problems need: blocks of one's choice, allocations that must not be written to, and what was written."""

from __future__ import annotations

import json
from ctypes import c_char_p, c_float, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .kernels import Kernels

BLOCK = 256  # elements of saxpy that a block computes


def find_blocks(emulator: Runtime, kernels_library: Path, num_blocks: int, sample: int, seed: int) -> list[int]:
    """Return which blocks of a launch ran, by what they changed."""
    kernels = Kernels(emulator, kernels_library)
    size = num_blocks * BLOCK
    with kernels.options(sample_blocks=sample, sample_seed=seed):
        (_, y), reports = kernels.run("saxpy", size, c_float(2.0), np.ones(size, np.float32), np.zeros(size, np.float32))
    assert not reports
    ran = y.reshape(num_blocks, BLOCK)
    assert set(np.unique(ran)) <= {0.0, 2.0} and (ran == ran[:, :1]).all()
    return [int(i) for i in np.flatnonzero(ran[:, 0])]


@pytest.mark.parametrize(("num_blocks", "sample"), [(2, 1), (5, 4), (5, 2), (300, 3), (300, 7), (1000, 4)])
def test_a_seeded_sample_has_the_first_the_last_and_drawn_blocks(
    emulator: Runtime, kernels_library: Path, num_blocks: int, sample: int
) -> None:
    blocks = find_blocks(emulator, kernels_library, num_blocks, sample, 1)
    assert len(blocks) == sample and blocks[0] == 0
    assert sample == 1 or blocks[-1] == num_blocks - 1
    assert blocks == find_blocks(emulator, kernels_library, num_blocks, sample, 1)


def test_another_seed_draws_other_blocks_and_none_spreads_them(emulator: Runtime, kernels_library: Path) -> None:
    drawn = {tuple(find_blocks(emulator, kernels_library, 1000, 4, seed)) for seed in (1, 2, 3)}
    assert len(drawn) == 3
    assert find_blocks(emulator, kernels_library, 1000, 4, 0) == [125, 375, 625, 875]


def test_a_store_to_a_read_only_allocation_is_told_and_done(emulator: Runtime, kernels_library: Path) -> None:
    kernels = Kernels(emulator, kernels_library)
    x, y = emulator.alloc(np.ones(64, np.float32)), emulator.alloc(np.ones(64, np.float32))
    with kernels.options(read_only=f"{x},{y}", checks="memcheck"):
        assert emulator.options()["read_only"] == f"{x},{y}"
        kernels.library.run_saxpy(64, c_float(2.0), c_void_p(x), c_void_p(y))
        assert emulator.code("cudaDeviceSynchronize") == 0
    (report,) = emulator.reports()
    assert (report["kind"], report["severity"], report["address"], report["count"]) == ("read_only_write", "error", y, 64)
    assert "kernels.cu:12" in report["text"] and "thread (0,0,0)" in report["text"]
    assert (emulator.read(y, 64, np.float32) == 3).all()
    assert emulator.options()["read_only"] == ""
    kernels.library.run_saxpy(64, c_float(2.0), c_void_p(x), c_void_p(y))
    assert emulator.code("cudaDeviceSynchronize") == 0 and emulator.reports() == []
    assert emulator.set_option("read_only", str(x + 4)) != 0 and f"no live allocation begins at {x + 4}" in emulator.message()
    for address in (x, y):
        emulator.call("cudaFree", address)


def test_what_was_written_is_known_to_the_byte_in_memory_that_is_mostly_untouched(emulator: Runtime, kernels_library: Path) -> None:
    size = 1 << 30
    address = emulator.made("cudaMalloc", size)
    emulator.library.aicfEmulatorWritten.argtypes = (c_ulonglong, c_ulonglong)
    emulator.library.aicfEmulatorWritten.restype = c_char_p

    def find_written(at: int, size_bytes: int) -> list[list[int]]:
        return json.loads(emulator.library.aicfEmulatorWritten(at, size_bytes))  # type: ignore[no-any-return]

    assert find_written(address, size) == []
    for offset, count in ((3, 1), (100, 200), (size // 2 + 64, 4096), (size - 1, 1)):
        emulator.call("cudaMemset", c_void_p(address + offset), 7, count)
    middle = size // 2 + 64
    assert find_written(address, size) == [[3, 4], [100, 300], [middle, middle + 4096], [size - 1, size]]
    assert find_written(address + 101, 50) == [[0, 50]]
    emulator.call("cudaFree", address)
