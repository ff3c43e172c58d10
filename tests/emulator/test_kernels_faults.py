"""Kernels with a planted fault: each one gives the right kind of report, at its line, and the launch ends as on hardware."""

from __future__ import annotations

import re
import time
from ctypes import c_float, c_int, c_void_p
from typing import Any

import numpy as np
import pytest

from .kernels import Kernels, kinds

ILLEGAL_ADDRESS, TIMEOUT, ASSERT, ILLEGAL_INSTRUCTION, MISALIGNED = 700, 702, 710, 715, 716


def _matmul(kernels: Kernels, fault: int, k: int = 48) -> list[dict[str, Any]]:
    a, b = np.ones((32, 48), np.float32), np.ones((48, 32), np.float32)
    return kernels.run("matmul", a, b, np.zeros((32, 32), np.float32), 32, 32, k, fault)[1]


def test_first_barrier_removed(kernels: Kernels) -> None:
    reports = _matmul(kernels, 1)
    assert "shared_race" in kinds(reports)
    race = next(r for r in reports if r["kind"] == "shared_race")
    assert "read after write" in str(race["text"]) and str(race["source"]).startswith("kernels.cu:")


def test_second_barrier_removed(kernels: Kernels) -> None:
    assert "shared_race" in kinds(_matmul(kernels, 2))


def test_tile_never_stored(kernels: Kernels) -> None:
    assert kinds(_matmul(kernels, 3)) == {"uninitialized_read"}


def test_inner_size_too_large_reads_past_the_end(kernels: Kernels) -> None:
    reports = _matmul(kernels, 0, k=80)
    # Some of the reads land in the result, which other blocks write: a race as well.
    assert kinds(reports) - {"global_race"} == {"out_of_bounds_read"}
    assert kernels.status == ILLEGAL_ADDRESS
    # What lies nearest names the place: another array that came to lie behind this one, now and then.
    assert re.search(
        r"the address is \d+ bytes (past the end of the allocation|before the (allocation|variable)) ", str(reports[0]["text"])
    )


def test_a_stray_read_ends_the_launch_without_checks_too(kernels: Kernels) -> None:
    # Farther than all that tests have at a time: nearer by, memory of another test may be, and reading that is seen by checks alone.
    _, reports = kernels.run("offset_read", np.zeros(32, np.float32), np.zeros(32, np.float32), (1 << 31) - (1 << 12), checks="none")
    # What an earlier test has freed may lie there.
    assert kernels.status == ILLEGAL_ADDRESS and kinds(reports) in ({"out_of_bounds_read"}, {"use_after_free"})


def test_one_element_past_the_end(kernels: Kernels) -> None:
    _, reports = kernels.run("offset_read", np.zeros(32, np.float32), np.zeros(32, np.float32), 4)
    (report,) = reports
    assert report["kind"] == "out_of_bounds_read" and report["count"] == 1
    assert report["thread"] in ([31, 0, 0], {"x": 31, "y": 0, "z": 0})


@pytest.mark.parametrize("checks", ["none", "all"])
def test_misaligned_read(kernels: Kernels, checks: str) -> None:
    _, reports = kernels.run("offset_read", np.zeros(64, np.float32), np.zeros(32, np.float32), 2, checks=checks)
    assert kinds(reports) == {"misaligned_access"} and kernels.status == MISALIGNED


def test_use_after_free(kernels: Kernels) -> None:
    cuda = kernels.cuda
    address = cuda.alloc(np.zeros(32, np.float32))
    out = cuda.alloc(np.zeros(32, np.float32))
    cuda.call("cudaFree", address)
    with kernels.options(checks="all"):
        kernels.library.run_offset_read(c_void_p(address), c_void_p(out), c_int(0))
        assert cuda.code("cudaDeviceSynchronize") == ILLEGAL_ADDRESS
    assert kinds(cuda.reports()) == {"use_after_free"}
    cuda.recover(out)


def test_uninitialized_device_memory(kernels: Kernels) -> None:
    cuda = kernels.cuda
    address, out = cuda.made("cudaMalloc", 128), cuda.made("cudaMalloc", 128)
    with kernels.options(checks="all"):
        kernels.library.run_offset_read(c_void_p(address), c_void_p(out), c_int(0))
        cuda.call("cudaDeviceSynchronize")
    (report,) = cuda.reports()
    assert report["kind"] == "uninitialized_read" and report["count"] == 32
    cuda.call("cudaFree", address)
    cuda.call("cudaFree", out)


def test_uninitialized_local_array(kernels: Kernels) -> None:
    _, reports = kernels.run("local_array", np.zeros(8, np.int32), np.zeros(8, np.int32), 8, 1)
    assert kinds(reports) == {"uninitialized_read"}


def test_shared_index_out_of_bounds(kernels: Kernels) -> None:
    _, reports = kernels.run("shared_index", np.zeros(32, np.int32), 1)
    assert kinds(reports) == {"out_of_bounds_read"} and kernels.status == ILLEGAL_ADDRESS


def test_missing_warp_barrier(kernels: Kernels) -> None:
    _, reports = kernels.run("exchange", np.zeros(32, np.int32), 0)
    assert kinds(reports) == {"shared_race"} and "__syncwarp" in reports[0]["text"]
    (out,), reports = kernels.run("exchange", np.zeros(32, np.int32), 1)
    assert not reports and np.array_equal(out, (np.arange(32) + 1) % 32 * 3)


def test_asynchronous_copy_without_wait(kernels: Kernels) -> None:
    _, reports = kernels.run("async_copy", np.zeros((64, 4), np.float32), np.zeros((64, 4), np.float32), 16, 0)
    assert "async_copy_in_flight" in kinds(reports)


def test_divergent_barrier(kernels: Kernels) -> None:
    _, reports = kernels.run("divergent_barrier", np.zeros(32, np.int32))
    assert kinds(reports) == {"divergent_barrier"}


def test_deadlock_is_reported_at_once(kernels: Kernels) -> None:
    start = time.monotonic()
    _, reports = kernels.run("deadlock")
    assert time.monotonic() - start < 1
    assert kinds(reports) == {"deadlock"} and kernels.status == TIMEOUT


def test_instruction_limit(kernels: Kernels) -> None:
    with kernels.options(instruction_limit=1_000):
        _, reports = kernels.run("endless", np.zeros(1, np.int32))
    assert kinds(reports) == {"instruction_limit"} and kernels.status == TIMEOUT


def test_instructions_are_counted_where_they_are_limited(kernels: Kernels) -> None:
    counts = []
    for blocks in (1, 2, 2):
        x = np.zeros(256 * blocks, np.float32)
        with kernels.options(instruction_limit=1_000_000):
            kernels.run("saxpy", len(x), c_float(2.0), x, x.copy())
            counts.append(int(kernels.cuda.options()["instructions"]))
    assert counts[1] == counts[2] == 2 * counts[0] > 0
    assert int(kernels.cuda.options()["instructions"]) == 0
    kernels.run("saxpy", len(x), c_float(2.0), x, x.copy())
    assert int(kernels.cuda.options()["instructions"]) == 0  # nobody asked
    assert kernels.cuda.set_option("instructions", 1) != 0 and "cannot be set" in kernels.cuda.message()


@pytest.mark.parametrize(("kind", "said"), [(0, "without a store, an atomic or a barrier"), (1, "turns of loops"), (2, "without a store")])
def test_a_loop_without_end_is_reported_with_its_line(kernels: Kernels, kind: int, said: str) -> None:
    start = time.monotonic()
    with kernels.options(loop_limit=20_000):
        _, reports = kernels.run("loop_without_end", np.zeros(8, np.int32), np.zeros(64, np.int32), kind, 0)
    assert time.monotonic() - start < 10
    # Another host thread may have come to the limit of its own block before it heard of the first.
    report = reports[0]
    assert kinds(reports) == {"endless_loop"} and kernels.status == TIMEOUT
    assert said in report["text"] and "loop_limit = 20000" in report["text"]
    assert "loop_without_end" in report["kernel"] and report["ptx_line"] > 0 and re.fullmatch(r".*kernels\.cu:\d+", report["source"])
    assert "by thread (0,0,0) of block (" in report["text"]


def test_a_wait_for_what_nothing_changes_is_reported(kernels: Kernels) -> None:
    start = time.monotonic()
    with kernels.options(loop_limit=1_000_000):
        _, reports = kernels.run("endless", np.zeros(1, np.int32))
    assert time.monotonic() - start < 10
    assert kinds(reports) == {"endless_loop"} and kernels.status == TIMEOUT
    assert "no warp is left that changes what they read" in reports[0]["text"] and "kernels.cu:" in reports[0]["source"]


def test_a_long_loop_within_the_limit_ends(kernels: Kernels) -> None:
    with kernels.options(loop_limit=20_000):
        (_, out), reports = kernels.run("loop_without_end", np.ones(8, np.int32), np.zeros(64, np.int32), 3, 60_000)
    assert not reports and out[1] != 0, "the compiler unrolls it by four at least, and a limit counts branches"


def test_assert(kernels: Kernels, capfd: pytest.CaptureFixture[str]) -> None:
    _, reports = kernels.run("assert", 30)
    assert kernels.status == ASSERT and kinds(reports) == {"assertion_failed"}
    assert "block: [0,0,0], thread: [30,0,0] Assertion `threadIdx.x < limit` failed." in capfd.readouterr().err


def test_trap(kernels: Kernels) -> None:
    _, reports = kernels.run("trap")
    assert kernels.status == ILLEGAL_INSTRUCTION and kinds(reports) == {"trap"}
