"""Softmax over rows in fp32, once right, and wrong where what an op lists does not look."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Cost, Kernel, Op, Problem, Role, Sampling, Tensor

_UNIT = 2.0**-24
_TINY = 2.0**-126
_FAILURE_PROBABILITY = 1e-9


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return Y in float64; rows with NaN or +inf come out as NaN."""
    x = inputs["x"].astype(np.float64)
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    return {"y": weights / weights.sum(axis=1, keepdims=True)}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the bound of the op softmax: 6 roundings a term of the sum, or their probable total, and those of exp and the quotient."""
    x, y = inputs["x"].astype(np.float64), outputs["y"].astype(np.float64)
    n = x.shape[1]
    terms = min(n, math.sqrt(2.0 * math.log(2.0 * n * x.size / _FAILURE_PROBABILITY)) * math.sqrt(n))
    distance = np.where(y > 0.0, x.max(axis=1, keepdims=True) - x, 0.0)
    mean_distance = (y * distance).sum(axis=1, keepdims=True)
    roundings = distance + 2.0 * mean_distance + 6.0 * terms + 10.0
    return {"y": np.expm1(np.minimum(roundings * _UNIT, 1.0)) * y + 2.0 * _TINY}


def cost(problem: Problem) -> Cost:
    """Return 5 flops an element, with X read and Y written once."""
    elems = problem.sizes["rows"] * problem.sizes["columns"]
    return Cost(5.0 * elems, 4.0 * elems, 4.0 * elems)


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows of Y at ``places``."""
    return {"x": inputs["x"][places]}, Problem(dict(problem.sizes) | {"rows": len(places)}, suites=problem.suites)


def _problem(suite: str, rows: int, columns: int, **padding: int) -> Problem:
    return Problem({"rows": rows, "columns": columns}, {}, padding, frozenset({suite}))


OP = Op(
    name="row_softmax",
    summary="softmax over rows, by an honest kernel and by liars that the listed problems do not find",
    tensors=(
        Tensor("x", ("rows", "columns"), Role.INPUT, can_pad_rows=True),
        Tensor("y", ("rows", "columns"), Role.OUTPUT, can_pad_rows=True),
    ),
    kernels=(
        Kernel("honest", "the right one: a warp per row"),
        Kernel("long_rows", "is wrong for more than 16384 columns"),
        Kernel("many_rows", "is wrong for more than 65535 rows"),
        Kernel("late_rows", "is wrong in rows behind the 100000th"),
        Kernel("large_grid", "is wrong for more than 40000 blocks"),
        Kernel("round_columns", "is wrong for multiples of 1024 columns beyond the first"),
        Kernel("power_of_two_rows", "is wrong for powers of two of rows beyond 64"),
        Kernel("large_both_ways", "is wrong for more than 4096 rows of more than 4096 columns"),
        Kernel("signed_index", "computes places of rows in int"),
        Kernel("unsigned_index", "computes places of rows in unsigned"),
        Kernel("many_elements", "is wrong for more than 2^31 elements"),
        Kernel("wide_stride", "is wrong where rows of X lie more than 64 elements apart"),
        Kernel("very_wide_stride", "is wrong where rows of Y lie more than two rows apart"),
        Kernel("power_of_two_stride", "is wrong for padded rows at a power of two"),
        Kernel("unequal_strides", "is wrong where both are padded, Y more than X"),
        Kernel("unaligned_input", "is wrong where X does not start at a multiple of 16 bytes"),
        Kernel("unaligned_output", "is wrong where Y does not start at a multiple of 16 bytes"),
        Kernel("odd_sectors", "is wrong where X starts in the middle of a sector"),
        Kernel("squares", "is wrong for squares of more than 64 rows"),
        Kernel("line_offset", "is wrong where Y is aligned to 16 bytes, not to 128"),
        Kernel("misses_first", "leaves the first element out of the maximum"),
        Kernel("misses_last", "leaves the last element out of the maximum"),
        Kernel("misses_lane", "leaves lane 31's elements out of the maximum"),
        Kernel("misses_middle", "leaves the middle element out of the maximum"),
        Kernel("starts_at_zero", "is wrong where all of a row lies far below zero"),
        Kernel("one_differs", "is wrong where all elements of a row are equal but one"),
        Kernel("counts_launches", "is wrong from the 1001st launch on, counted on the device"),
        Kernel("counts_on_host", "is wrong from the 3001st launch on, counted on the host"),
        Kernel("slips_now_and_then", "is wrong at every 1000th launch"),
        Kernel("restores_input", "writes to X, and restores it"),
        Kernel("biased", "multiplies by what is 0.9 of the bound off"),
    ),
    problems=(
        _problem("verify", 1, 1),
        _problem("verify", 64, 64),
        _problem("verify", 129, 7),
        _problem("verify", 5, 1023),
        _problem("verify", 4, 1024, x=4, y=4),
        _problem("verify", 7, 1000, x=3),
        _problem("verify", 6, 128, x=4, y=1),
        _problem("verify", 2, 5003),
        _problem("emulated", 128, 64),
        _problem("bench", 8192, 8192),
        _problem("bench", 1024, 131072),
        _problem("bench", 262144, 127),
    ),
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0,), restrict),
)
