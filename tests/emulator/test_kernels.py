"""Whole kernels, as nvcc makes them, against NumPy: with every check on, and no finding."""

from __future__ import annotations

import json
from ctypes import c_float

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .kernels import Kernels
from .ptx_kernels import run_ptx, text_of


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("n", [1, 31, 1000])
def test_saxpy(kernels: Kernels, rng: np.random.Generator, n: int) -> None:
    x, y = rng.random(n, np.float32), rng.random(n, np.float32)
    (_, out), reports = kernels.run("saxpy", n, c_float(2.5), x, y)
    assert not reports
    assert np.abs(out - (np.float32(2.5) * x + y)).max() < 1e-6


@pytest.mark.parametrize("schedule", ["default", "reversed", "greedy", "random"])
def test_ragged_matmul_is_the_same_under_every_schedule(kernels: Kernels, rng: np.random.Generator, schedule: str) -> None:
    a, b = rng.random((75, 41), np.float32), rng.random((41, 50), np.float32)
    c = np.zeros((75, 50), np.float32)
    with kernels.options(schedule=schedule, seed=3):
        (_, _, out), reports = kernels.run("matmul", a, b, c, 75, 50, 41, 0)
    assert not reports
    assert np.abs(out - a @ b).max() < 1e-4


@pytest.mark.parametrize("checks", ["none", "all"])
def test_checks_do_not_change_results(kernels: Kernels, rng: np.random.Generator, checks: str) -> None:
    x = rng.standard_normal((3, 300)).astype(np.float32)
    (_, out), reports = kernels.run("softmax", x, np.zeros_like(x), 3, 300, checks=checks)
    assert not reports
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.abs(out - e / e.sum(1, keepdims=True)).max() < 1e-6


def test_scan_in_dynamic_shared_memory(kernels: Kernels, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, 512, np.int32)
    (_, out), reports = kernels.run("scan", x, np.zeros_like(x), 512)
    assert not reports
    assert np.array_equal(out, np.cumsum(x, dtype=np.int32))


def test_histogram_by_atomics(kernels: Kernels, rng: np.random.Generator) -> None:
    x = rng.integers(0, 256, 5000, np.uint8)
    (_, bins), reports = kernels.run("histogram", x, 5000, np.zeros(256, np.uint32))
    assert not reports
    assert np.array_equal(bins, np.bincount(x, minlength=256))


@pytest.mark.parametrize(("pad", "conflicts"), [(0, 31), (1, 0)])
def test_transpose_counts_its_bank_conflicts(kernels: Kernels, rng: np.random.Generator, pad: int, conflicts: int) -> None:
    x = rng.random((64, 64), np.float32)
    kernels.cuda.library.aicfEmulatorTakeCounters()
    with kernels.options(counters=1):
        (_, out), reports = kernels.run("transpose", x, np.zeros_like(x), 64, pad)
    assert not reports
    assert np.array_equal(out, x.T)
    (launch,) = json.loads(kernels.cuda.library.aicfEmulatorTakeCounters())
    counts = launch["counts"]
    assert counts["shared_loads"] == 128
    assert counts["shared_load_conflicts"] == 128 * conflicts
    assert counts["shared_store_conflicts"] == 0
    assert counts["global_load_sectors"] == 4 * counts["global_loads"] == 512
    assert counts["global_unique_bytes_read"] == counts["global_unique_bytes_written"] == x.nbytes


@pytest.mark.parametrize("n", [1, 40, 128])
def test_threads_that_return_before_a_barrier(kernels: Kernels, n: int) -> None:
    (out,), reports = kernels.run("early_return", n, np.zeros(128, np.int32))
    assert not reports
    assert np.array_equal(out, np.where(np.arange(128) < n, n, 0))


def test_loops_that_every_thread_leaves_elsewhere(kernels: Kernels) -> None:
    def steps(n: int) -> int:
        count = 0
        while n != 1 and count < 200:
            n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
        return [count + 1000, count + 2000, count, -count, count ^ 0x55][count % 5]

    (out,), reports = kernels.run("collatz", 200, np.zeros(200, np.int32))
    assert not reports
    assert out.tolist() == [steps(i + 1) for i in range(200)]


def test_threads_of_a_warp_wait_for_each_other(kernels: Kernels) -> None:
    (_, total), reports = kernels.run("spin_lock", np.zeros(1, np.int32), np.zeros(1, np.int32))
    assert not reports
    assert total[0] == 128


def test_blocks_wait_for_blocks_that_start_later(kernels: Kernels) -> None:
    (_, out), reports = kernels.run("chain", np.zeros(9, np.int32), np.zeros(9, np.int32), 9)
    assert not reports
    assert out.tolist() == list(range(9, 0, -1))


def test_printf(kernels: Kernels, capfd: pytest.CaptureFixture[str]) -> None:
    _, reports = kernels.run("print", 3)
    assert not reports
    assert capfd.readouterr().out == "".join(f"thread {i} of block: {i * 0.5:5.2f} 1099511627776 x%\n" for i in range(3))


def test_indirect_calls_and_recursion(kernels: Kernels) -> None:
    (out, fib), reports = kernels.run("calls", np.zeros(64, np.float32), np.zeros(64, np.int32), 64)
    assert not reports
    t = np.arange(64)
    scale = (t & 3) + 1
    assert np.array_equal(out, np.where(t // 3 % 2, t * scale, t + scale))
    assert fib.tolist() == [[0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89][i % 12] for i in range(64)]


def test_local_arrays(kernels: Kernels, rng: np.random.Generator) -> None:
    index = rng.integers(0, 16, 70, np.int32)
    (_, out), reports = kernels.run("local_array", index, np.zeros(70, np.int32), 70, 0)
    assert not reports
    assert np.array_equal(out, index**2 + np.arange(70))


def test_half_precision(kernels: Kernels, rng: np.random.Generator) -> None:
    x = rng.standard_normal(400).astype(np.float16)
    (_, out), reports = kernels.run("half_math", x, np.zeros_like(x), 200)
    assert not reports
    assert np.array_equal(out, (x.astype(np.float64) ** 2 + 0.5).astype(np.float16))


def test_warp_operations(kernels: Kernels, rng: np.random.Generator) -> None:
    x = rng.integers(0, 8, 32, np.int32)
    (_, out), reports = kernels.run("warp_ops", x, np.zeros(192, np.uint32))
    assert not reports
    ballot, match, total, flags, up, count = out.reshape(6, 32)
    assert set(ballot.tolist()) == {sum(int(v & 1) << i for i, v in enumerate(x))}
    assert match.tolist() == [sum(1 << j for j in range(32) if x[j] == x[i]) for i in range(32)]
    assert set(total.tolist()) == {int(x.sum())}
    assert set(flags.tolist()) == {int((x > 6).any()) * 2 + 1}
    assert up.tolist() == [int(x[i - 3]) if i % 8 >= 3 else int(x[i]) for i in range(32)]
    assert set(count.tolist()) == {int((x > 3).sum())}


@pytest.mark.parametrize("valid_bytes", [0, 4, 16])
def test_asynchronous_copies_fill_with_zeros(kernels: Kernels, rng: np.random.Generator, valid_bytes: int) -> None:
    x = rng.random((64, 4), np.float32)
    (_, out), reports = kernels.run("async_copy", x, np.zeros_like(x), valid_bytes, 1)
    assert not reports
    expected = x[::-1].copy()
    expected[:, valid_bytes // 4 :] = 0
    assert np.array_equal(out, expected)


def test_named_barriers_order_producer_and_consumer(kernels: Kernels) -> None:
    (out,), reports = kernels.run("named_barriers", np.zeros((5, 32), np.int32), 5)
    assert not reports
    assert np.array_equal(out, np.arange(5)[:, None] * 100 + np.arange(31, -1, -1))


def test_a_launch_finds_nothing_of_the_one_before_in_its_blocks(emulator: Runtime) -> None:
    """The launches of a thread take turns in the same memory: what nobody wrote is the same in each of them."""
    place = "shl.b32 %r1, %r0, 2; mov.u32 %r2, words; add.u32 %r2, %r2, %r1; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1;"
    use = "ld.shared.u32 %r3, [%r2]; st.global.u32 [%rd2], %r3; mov.u32 %r4, 7; st.shared.u32 [%r2], %r4;"
    text = text_of(place + use, module=".shared .align 4 .b8 words[128];")
    for _ in range(2):
        after, _ = run_ptx(emulator, text, np.ones(32, np.uint32), checks="none")
        assert not after.any()
