"""Launches of which only some blocks run: what they wrote counts as written unless blocks that did not run may have a part in it."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator
from ctypes import c_char_p, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
import pytest

from tests.sharing import make_once

from .cuda_runtime import Runtime
from .kernels import Kernels, build

SOURCE = Path(__file__).with_name("dependence.cu")
NUM_BLOCKS, BLOCK = 40, 128
SIZE = NUM_BLOCKS * BLOCK - 5
FIRST, LAST = [0, 4 * BLOCK], [4 * BLOCK * (NUM_BLOCKS - 1), 4 * SIZE]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = make_once(tmp_path_factory, "dependence", lambda folder: build(SOURCE, folder))
    return ctypes.CDLL(str(folder / f"{SOURCE.stem}.so"), mode=ctypes.RTLD_LOCAL)


class Memory:
    """Device memory by name, and what was written of it."""

    def __init__(self, emulator: Runtime) -> None:
        self.emulator = emulator
        self.found: dict[str, tuple[int, int]] = {}

    def make(self, name: str, num_bytes: int) -> c_void_p:
        self.found[name] = (self.emulator.made("cudaMalloc", num_bytes), num_bytes)
        return c_void_p(self.found[name][0])

    def forget(self, address: int) -> int:
        self.emulator.library.aicfEmulatorForgetWritten.argtypes = (c_ulonglong,)
        return int(self.emulator.library.aicfEmulatorForgetWritten(address))

    def find_written(self, name: str) -> list[list[int]]:
        self.emulator.library.aicfEmulatorWritten.argtypes = (c_ulonglong, c_ulonglong)
        self.emulator.library.aicfEmulatorWritten.restype = c_char_p
        return json.loads(self.emulator.library.aicfEmulatorWritten(*self.found[name]))  # type: ignore[no-any-return]


@pytest.fixture
def memory(emulator: Runtime) -> Iterator[Memory]:
    made = Memory(emulator)
    yield made
    for address, _ in made.found.values():
        emulator.call("cudaFree", address)


def count_dependence(emulator: Runtime) -> list[int]:
    return [int(number) for number in emulator.options()["dependence"].split(",")]


Launch = Callable[[], None]


def run(emulator: Runtime, given: c_void_p, *launches: Launch, sample: int = 2) -> list[int]:
    """Launch with the first and the last block, x being given; returns the counts of dependence."""
    with Kernels.options(_holder(emulator), given=given.value, sample_blocks=sample, sample_seed=1, checks="memcheck"):
        for launch in launches:
            launch()
        assert emulator.code("cudaDeviceSynchronize") == 0
        found = count_dependence(emulator)
    assert emulator.reports() == []
    return found


def _holder(emulator: Runtime) -> Kernels:
    holder = Kernels.__new__(Kernels)
    holder.cuda = emulator
    return holder


def test_what_a_block_writes_before_it_asks_others_is_its_own(emulator: Runtime, library: ctypes.CDLL, memory: Memory) -> None:
    x, y, z, parts, ticket = (memory.make(name, 4 * SIZE) for name in ("x", "y", "z", "parts", "ticket"))
    emulator.call("cudaMemset", ticket, 0, 4 * SIZE)
    assert run(emulator, x, lambda: library.run_rows(SIZE, x, y, z, parts, ticket)) == [2, 2]
    assert memory.find_written("y") == [FIRST, LAST]
    assert memory.find_written("parts") == [[0, 4], [4 * NUM_BLOCKS - 4, 4 * NUM_BLOCKS]]
    assert memory.find_written("z") == [], "behind a ticket that other blocks would have taken"
    assert memory.find_written("ticket") == [], "others would have written it, too"


def test_a_kernel_that_reads_what_no_block_has_written_depends_on_it(emulator: Runtime, library: ctypes.CDLL, memory: Memory) -> None:
    x, y, z, parts, ticket, total = (memory.make(name, 4 * SIZE) for name in ("x", "y", "z", "parts", "ticket", "total"))

    def launch_rows() -> None:
        library.run_rows(SIZE, x, y, z, parts, ticket)

    # Of one part, the first block's, the sum is known; of all it is not, in either block.
    assert run(emulator, x, launch_rows, lambda: library.run_add_parts(1, parts, total, 1))[0] == 2
    assert memory.find_written("total") == [[0, 4]]
    for name in memory.found:
        assert memory.forget(memory.found[name][0]) == 0 and memory.find_written(name) == []
    assert memory.forget(memory.found["total"][0] + 4) == 1, "no allocation begins there"
    assert run(emulator, x, launch_rows, lambda: library.run_add_parts(NUM_BLOCKS, parts, total, 2))[0] == 4
    assert memory.find_written("total") == [] and memory.find_written("y") == [FIRST, LAST]


def test_without_given_allocations_or_with_all_blocks_everything_is_written(
    emulator: Runtime, library: ctypes.CDLL, memory: Memory
) -> None:
    x, y, z, parts, ticket, total = (memory.make(name, 4 * SIZE) for name in ("x", "y", "z", "parts", "ticket", "total"))
    emulator.call("cudaMemset", ticket, 0, 4)
    launches = (
        lambda: library.run_rows(SIZE, x, y, z, parts, ticket),
        lambda: library.run_add_parts(NUM_BLOCKS, parts, total, 2),
    )
    assert run(emulator, x, *launches, sample=0) == [0, 0]
    assert memory.find_written("z") == [[0, 4 * SIZE]] and memory.find_written("total") == [[0, 8]]


def test_what_was_set_before_may_be_overwritten_by_the_blocks_that_do_not_run(
    emulator: Runtime, library: ctypes.CDLL, memory: Memory
) -> None:
    x, y, z, parts, ticket, total = (memory.make(name, 4 * SIZE) for name in ("x", "y", "z", "parts", "ticket", "total"))
    emulator.call("cudaMemset", parts, 0, 4 * SIZE)
    run(emulator, x, lambda: library.run_rows(SIZE, x, y, z, parts, ticket), lambda: library.run_add_parts(NUM_BLOCKS, parts, total, 1))
    assert memory.find_written("total") == [], "all parts but two are the zeros of before"


def test_a_count_that_nobody_reads_makes_nothing_depend(emulator: Runtime, library: ctypes.CDLL, memory: Memory) -> None:
    x, y, negative = (memory.make(name, 4 * SIZE) for name in ("x", "y", "negative"))
    emulator.call("cudaMemset", x, 0, 4 * SIZE)
    emulator.call("cudaMemset", negative, 0, 4)
    blocks, updates = run(emulator, x, lambda: library.run_count(SIZE, x, y, negative))
    assert blocks == 0 and updates > 0
    assert memory.find_written("y") == [FIRST, LAST] and memory.find_written("negative") == []


@pytest.mark.parametrize("place", [7, -1])
def test_what_goes_wrong_in_a_block_that_depends_on_others_is_no_finding(
    emulator: Runtime, library: ctypes.CDLL, memory: Memory, place: int
) -> None:
    x, y, places = memory.make("x", 4 * SIZE), memory.make("y", 4 * SIZE), memory.make("places", 4 * SIZE)
    fill_with(emulator, places, place)
    assert memory.forget(memory.found["places"][0]) == 0
    with Kernels.options(_holder(emulator), given=x.value, sample_blocks=2, sample_seed=1, checks="memcheck"):
        library.run_hand_over(place, places, NUM_BLOCKS)
        library.run_follow(places, y, NUM_BLOCKS)
        status = emulator.code("cudaDeviceSynchronize")
        assert count_dependence(emulator)[0] > 0
    # A trap ends the launch all the same.
    assert (status != 0) is (place < 0)
    assert memory.find_written("y") == [] or place >= 0
    assert emulator.reports() == []
    emulator.library.aicfEmulatorClearError()


def test_what_no_block_can_have_written_is_garbage_for_all_of_them(emulator: Runtime, library: ctypes.CDLL, memory: Memory) -> None:
    """A wild read of one's own output depends on nobody: what comes of it is the kernel's fault."""
    x, y, places = memory.make("x", 4 * SIZE), memory.make("y", 4 * SIZE), memory.make("places", 4 * SIZE)
    fill_with(emulator, places, 7)
    assert memory.forget(memory.found["places"][0]) == 0
    with Kernels.options(_holder(emulator), given=x.value, sample_blocks=2, sample_seed=1, checks="memcheck"):
        library.run_follow(places, y, NUM_BLOCKS)
        assert emulator.code("cudaDeviceSynchronize") != 0
        assert count_dependence(emulator)[0] == 0
    assert {report["kind"] for report in emulator.reports()} == {"out_of_bounds_write"}
    emulator.library.aicfEmulatorClearError()


def fill_with(emulator: Runtime, address: c_void_p, value: int) -> None:
    values = np.full(SIZE, value, np.int32)
    emulator.call("cudaMemcpy", address, values.ctypes.data, values.nbytes, 1)
