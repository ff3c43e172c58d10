"""``alloca``: memory of a function that it takes at run time, each thread as much as it wants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .kernels import Kernels, build
from .ptx_kernels import refusal, run_ptx, text_of

SOURCE = """
#include <alloca.h>
__device__ __noinline__ int sum(int n, int seed) {
    int* items = static_cast<int*>(alloca(n * sizeof(int)));
    for (int i = 0; i < n; ++i) items[i] = seed + i;
    int s = 0;
    for (int i = 0; i < n; ++i) s += items[(i * 7) % n];
    return s;
}
__device__ __noinline__ int depth(int n) {
    int* items = static_cast<int*>(alloca(n * sizeof(int)));
    for (int i = 0; i < n; ++i) items[i] = n;
    const int below = n > 1 ? depth(n - 1) : 0;
    return below + items[n - 1] + items[0];
}
__global__ void take(int* out, int rounds) {
    int total = 0;
    for (int r = 0; r < rounds; ++r) total += sum(threadIdx.x + 1 + r % 8, r) + (threadIdx.x % 2 ? depth(5) : 0);
    int* mine = static_cast<int*>(alloca(8 * threadIdx.x + 8));
    mine[threadIdx.x] = total;
    out[threadIdx.x] = mine[threadIdx.x];
}
extern "C" void run_take(int* out, int rounds) { take<<<1, 32>>>(out, rounds); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alloca")
    (folder / "take.cu").write_text(SOURCE)
    return build(folder / "take.cu", folder)


def test_what_functions_take_is_given_back(emulator: Runtime, library: Path) -> None:
    """A thousand calls of some hundred bytes each: far more than the stack, were it not for the returns."""
    arrays, reports = Kernels(emulator, library).run("take", np.zeros(32, np.int32), 1000)
    sizes = np.arange(32)[:, None] + 1 + np.arange(1000) % 8
    sums = [sum(r * n + n * (n - 1) // 2 if n % 7 else _stride_sum(int(n), r) for r, n in enumerate(row)) for row in sizes.tolist()]
    depth = 2 * (5 + 4 + 3 + 2 + 1)
    assert reports == []
    assert arrays[0].tolist() == [total + (1000 * depth if i % 2 else 0) for i, total in enumerate(sums)]


def _stride_sum(n: int, seed: int) -> int:
    return sum(seed + i * 7 % n for i in range(n))


ALLOCATE = ".reg .pred %q;\nmul.wide.u32 %rd1, %r0, 512;\nalloca.u64 %rd2, %rd1, 64;\n"


def test_too_much_is_a_stack_overflow(emulator: Runtime) -> None:
    text = text_of(ALLOCATE + "st.local.u32 [%rd2], %r0;")
    assert run_ptx(emulator, text, np.zeros(32, np.uint32), threads=16)[1] == []
    values, reports = run_ptx(emulator, text_of("add.u32 %r0, %r0, 40;\n" + ALLOCATE), np.zeros(32, np.uint32))
    assert not len(values)
    assert [(r["kind"], r["thread"]) for r in reports] == [("stack_overflow", [0, 0, 0])]


def test_memory_that_was_given_back_is_not_initialized(emulator: Runtime) -> None:
    body = """stacksave.u64 %rd3;
alloca.u64 %rd1, 64, 16;
st.local.u32 [%rd1+8], %r0;
ld.local.u32 %r1, [%rd1+8];
stackrestore.u64 %rd3;
alloca.u64 %rd2, 64, 16;
sub.s64 %rd2, %rd2, %rd1;
mad.wide.u32 %rd0, %r0, 4, %rd0;
cvt.u32.u64 %r2, %rd2;
add.u32 %r1, %r1, %r2;
{tail}st.global.u32 [%rd0], %r1;"""
    values, reports = run_ptx(emulator, text_of(body.format(tail="")), np.zeros(32, np.uint32))
    assert reports == [] and values.tolist() == list(range(32))  # at the same place again
    reports = run_ptx(emulator, text_of(body.format(tail="ld.local.u32 %r1, [%rd1+8];\n")), np.zeros(32, np.uint32))[1]
    assert [r["kind"] for r in reports] == ["uninitialized_read"]


def test_what_is_refused(emulator: Runtime) -> None:
    assert "power of two" in refusal(emulator, text_of("alloca.u64 %rd1, 64, 12;"))
