"""A real op small enough to compile in a second, written into a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

OP = """
import numpy as np
from harness.spec import Cost, Kernel, Op, Problem, Role, Tensor, Tunable

OP = Op(
    name="tiny",
    summary="y = 2 x",
    tensors=(Tensor("x", ("n",), Role.INPUT), Tensor("y", ("n",), Role.OUTPUT)),
    kernels=(
        Kernel("plain", "an idea", (Tunable("threads", (32, 64), "threads of a block"),), (), ({"threads": 32}, {"threads": 64})),
        Kernel("broken", "does not compile"),
    ),
    problems=(Problem({"n": 5}),),
    reference=lambda inputs, problem: {"y": 2.0 * inputs["x"]},
    tolerance=lambda inputs, outputs, problem: {"y": np.zeros(1)},
    cost=lambda problem: Cost(1.0, 4.0, 4.0),
)
"""

LAUNCHER = """
#include "common/tiny.cuh"
__global__ void tiny_plain(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x[i]);
}
#define broken 1
#define plain 0
#if AICF_KERNEL == 1
int mistake = undeclared_name;
#endif
#undef broken
#undef plain
extern "C" __attribute__((visibility("default"))) void tiny_run(const float* x, float* y, int n) { tiny_plain<<<1, 32>>>(x, y, n); }
"""

HEADER = "__device__ inline float twice(float x) { return x + x; }\n"


def write_tiny_op(root: Path) -> Path:
    """Write ``ops/tiny`` and ``ops/common`` below ``root``; returns the ops folder."""
    ops = root / "ops"
    for folder in ("tiny", "common", "other"):
        (ops / folder).mkdir(parents=True)
    (ops / "tiny" / "op.py").write_text(OP)
    (ops / "tiny" / "launcher.cu").write_text(LAUNCHER)
    (ops / "common" / "tiny.cuh").write_text(HEADER)
    (ops / "other" / "kernels.cu").write_text("// another op\n")
    return ops
