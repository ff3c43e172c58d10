"""A transpose in fp32, once right, and wrong where what an op lists does not look."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Cost, Kernel, Op, Problem, Role, Sampling, Tensor


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the transpose of X in float64."""
    return {"y": np.ascontiguousarray(inputs["x"].astype(np.float64).T)}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return zero: nothing is rounded."""
    return {"y": np.zeros((1, 1))}


def cost(problem: Problem) -> Cost:
    """Return no flops, with X read and Y written once."""
    size_bytes = 4.0 * problem.sizes["rows"] * problem.sizes["columns"]
    return Cost(0.0, size_bytes, size_bytes)


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows (axis 0) or columns (axis 1) of Y at ``places``."""
    x = inputs["x"][:, places] if axis == 0 else inputs["x"][places]
    return {"x": x}, Problem(dict(zip(("rows", "columns"), x.shape, strict=True)), suites=problem.suites)


def _problem(suite: str, rows: int, columns: int, **padding: int) -> Problem:
    return Problem({"rows": rows, "columns": columns}, {}, padding, frozenset({suite}))


OP = Op(
    name="turn",
    summary="transpose, by an honest kernel and by liars that the listed problems do not find",
    tensors=(
        Tensor("x", ("rows", "columns"), Role.INPUT, can_pad_rows=True),
        Tensor("y", ("columns", "rows"), Role.OUTPUT, can_pad_rows=True),
    ),
    kernels=(
        Kernel("honest", "the right one: 32 x 32 tiles in shared memory"),
        Kernel("large_grid", "is wrong for more than 10000 blocks"),
        Kernel("late_rows", "is wrong in rows of X behind the 40000th"),
        Kernel("wide_stride", "is wrong where rows of Y lie more than 64 elements apart"),
        Kernel("unaligned_input", "is wrong where X does not start at a multiple of 16 bytes"),
        Kernel("squares", "is wrong for squares of more than 64 rows"),
        Kernel("half_aligned_output", "is wrong where long, whole rows of Y begin 8 bytes behind a multiple of 16"),
        Kernel("counts_launches", "is wrong from the 2501st launch on"),
        Kernel("slips_now_and_then", "is wrong at every 1000th launch"),
        Kernel("signed_index", "computes places of rows in int"),
        Kernel("restores_input", "writes to X, and restores it"),
    ),
    problems=(
        _problem("verify", 1, 1),
        _problem("verify", 64, 64),
        _problem("verify", 127, 255, x=1, y=1),
        _problem("verify", 36, 132, x=4, y=4),
        _problem("verify", 5, 1023),
        _problem("emulated", 128, 64),
        _problem("bench", 8192, 8192),
        _problem("bench", 65536, 256),
    ),
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0, 1), restrict),
)
