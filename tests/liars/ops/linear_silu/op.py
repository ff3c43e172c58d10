"""``Y = silu(A·B + bias)`` in fp32, once right and wrong in many ways: what the judge is judged by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Attribute, Cost, Kernel, Op, Problem, Role, Sampling, Tensor

_UNIT = float(np.finfo(np.float32).eps) / 2
_TINY = float(np.finfo(np.float32).smallest_subnormal)


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return silu of the float64 product as IEEE 754 evaluates x / (1 + exp(-x)): NaN for -inf."""
    x = _compute_linear(inputs)
    return {"Y": x / (1 + np.exp(-x))}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return a bound per element: the product's gamma bound through silu, whose slope is below 1.1, and 8 roundings of silu itself.

    Source of gamma: Higham, *Accuracy and Stability of Numerical Algorithms*, 2002, section 3.1.
    """
    terms = problem.sizes["K"] + 1
    gamma = terms * _UNIT / (1 - terms * _UNIT)
    magnitude = np.abs(np.nan_to_num(inputs["A"], posinf=0, neginf=0)) @ np.abs(np.nan_to_num(inputs["B"], posinf=0, neginf=0))
    if "bias" in inputs:
        magnitude = magnitude + np.abs(np.nan_to_num(inputs["bias"], posinf=0, neginf=0))
    x = np.abs(np.nan_to_num(_compute_linear(inputs), posinf=0, neginf=0))
    # expf's argument -x carries x's own error, and its relative error is 2 ulp.
    return {"Y": 1.1 * gamma * magnitude + 8 * _UNIT * x + (terms + 8) * _TINY}


def cost(problem: Problem) -> Cost:
    """Count the product alone: two flops for each of M N K terms."""
    m, n, k = (problem.sizes[dim] for dim in "MNK")
    return Cost(flops=2.0 * m * n * k, bytes_read=4.0 * (m * k + k * n), bytes_written=4.0 * m * n)


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows (axis 0) or columns (axis 1) of Y at ``places``."""
    taken = dict(inputs)
    if axis == 0:
        taken["A"] = inputs["A"][places]
    else:
        taken |= {name: inputs[name][..., places] for name in ("B", "bias") if name in inputs}
    return taken, Problem(dict(problem.sizes) | {"MN"[axis]: len(places)}, problem.attributes, suites=problem.suites)


def _compute_linear(inputs: Arrays) -> NDArray[Any]:
    x = inputs["A"] @ inputs["B"]
    return x + inputs["bias"] if "bias" in inputs else x


OP = Op(
    name="linear_silu",
    summary="silu(A·B + bias), by an honest kernel and by liars",
    tensors=(
        Tensor("A", ("M", "K"), Role.INPUT, can_pad_rows=True),
        Tensor("B", ("K", "N"), Role.INPUT, can_pad_rows=True),
        Tensor("bias", ("N",), Role.INPUT, present=lambda p: p.attributes.get("bias") is True),
        Tensor("Y", ("M", "N"), Role.OUTPUT, can_pad_rows=True),
    ),
    attributes=(Attribute("bias", (False, True), False, passed=False),),
    kernels=(
        Kernel("honest", "the right one: 16 x 16 tiles in shared memory"),
        Kernel("writes_nothing", "returns at once"),
        Kernel("stale_output", "keeps the first result for each place and gives it again"),
        Kernel("drops_ragged_edge", "launches only whole tiles"),
        Kernel("off_by_one", "leaves the last column of a ragged tile out"),
        Kernel("ignores_bias", "adds no bias"),
        Kernel("wrong_tail", "lets silu saturate at 64"),
        Kernel("modifies_input", "adds 1 to the first element of A when it is done"),
        Kernel("writes_past_end", "writes one element behind the last one of Y"),
        Kernel("writes_row_padding", "writes the element behind each row of Y"),
        Kernel("reads_past_end", "reads one element behind the last one of A"),
        Kernel("missing_sync", "does not wait for the tile to be filled"),
        Kernel("default_stream", "launches on the legacy default stream"),
        Kernel("half_on_default_stream", "launches its second half on the legacy default stream"),
        Kernel("gives_nan", "divides zero by zero for the last element"),
        Kernel("squares_only", "wraps the rows of B at M, which is right where K is no larger"),
        Kernel("listed_sizes_only", "is right for the sizes of op.py and no other"),
        Kernel("low_precision", "rounds products to bfloat16"),
        Kernel("reads_output", "adds zero times what Y held before"),
        Kernel("nondeterministic", "counts its launches, and moves every second result by an ulp"),
        Kernel("first_come", "is right where the blocks come in their order"),
        Kernel("atomic_sum", "adds products by atomics, and does not say that their order shows"),
        Kernel("declared_atomic_sum", "the same, and says so: no liar", deterministic=False),
        Kernel("synchronizes", "waits for its stream inside launch"),
        Kernel("too_many_threads", "asks for 2048 threads a block"),
        Kernel("supports_nothing", "refuses every problem"),
        Kernel("workspace_overrun", "writes behind the workspace it asked for"),
        Kernel("long_sums", "is wrong for K beyond 1024"),
        Kernel("late_columns", "is wrong in columns behind the 1500th"),
        Kernel("wide_stride", "is wrong where rows of B lie more than two rows apart"),
        Kernel("unaligned_weights", "is wrong where B does not start at a multiple of 16 bytes"),
        Kernel("half_aligned_bias", "is wrong where a long bias begins 8 bytes behind a multiple of 16"),
        Kernel("beyond_benched", "is wrong for N or K larger than any that is benched"),
        Kernel("signed_index", "computes places of rows of B in int"),
        Kernel("counts_on_host", "is wrong from the 2001st launch on"),
        Kernel("slips_now_and_then", "is wrong at every 1000th launch"),
        Kernel("restores_input", "writes to A, and restores it"),
    ),
    problems=(
        Problem({"M": 32, "N": 32, "K": 32}, {"bias": True}),
        Problem({"M": 48, "N": 48, "K": 48}),
        Problem({"M": 33, "N": 18, "K": 29}, {"bias": True}, {"A": 3, "B": 2, "Y": 5}),
        Problem({"M": 5, "N": 70, "K": 12}, {"bias": True}),
        Problem({"M": 1, "N": 1, "K": 1}),
        Problem({"M": 64, "N": 64, "K": 64}, suites=frozenset({"emulated"})),
        Problem({"M": 2048, "N": 2048, "K": 2048}, suites=frozenset({"bench"})),
    ),
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0, 1), restrict),
)
