"""row_mean: the means of rows, and the rows less their means; what ops/common has for rows and elements is tried on it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Attribute, Constraint, Cost, Count, Kernel, Op, Problem, Role, Sampling, Tensor, Tunable
from harness.spec.bounds import SMALLEST_NORMAL, UNIT_ROUNDOFF, add_rounding, bound_sum

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def find_dtype(problem: Problem) -> str:
    """Return the dtype of X and Y."""
    return str(problem.attributes.get("dtype", "float32"))


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the means and the centred rows."""
    x = np.asarray(inputs["x"], np.float64)
    mean = x.mean(axis=1)
    return {"mean": mean, "y": x - mean[:, np.newaxis]}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the bound of a sum in any order, of a division, and of a subtraction that is rounded to the dtype."""
    x = np.asarray(inputs["x"], np.float64)
    rows, columns = x.shape
    u = UNIT_ROUNDOFF["float32"]
    mean = bound_sum(np.abs(x).sum(axis=1), columns, rows) / columns + 2.0 * u * np.abs(outputs["mean"]) + SMALLEST_NORMAL["float32"]
    y = np.asarray(outputs["y"], np.float64)
    centred = mean[:, np.newaxis] + u * (np.abs(y) + mean[:, np.newaxis]) + SMALLEST_NORMAL["float32"]
    return {"mean": mean, "y": add_rounding(centred, y, find_dtype(problem))}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of some rows."""
    return {"x": inputs["x"][places]}, Problem(dict(problem.sizes) | {"rows": len(places)}, problem.attributes)


def cost(problem: Problem) -> Cost:
    """Return X read and Y written once."""
    elems = problem.sizes["rows"] * problem.sizes["columns"]
    moved = float(ITEM_BYTES[find_dtype(problem)] * elems)
    return Cost(2.0 * elems, moved, moved + 4.0 * problem.sizes["rows"])


GROUP = Tunable("threads", (8, 32, 128), "threads that take a row")
ROWS = Tunable("rows", (1, 4, 16), "rows, and so groups of threads, of a block")
WHOLE = Constraint("block_of_128", "a block has 128 threads: threads * rows = 128", lambda t: t["threads"] * t["rows"] == 128)

OP = Op(
    name="row_mean",
    summary="means of rows, and rows less their means",
    tensors=(
        Tensor("x", ("rows", "columns"), Role.INPUT, find_dtype, can_pad_rows=True),
        Tensor("mean", ("rows",), Role.OUTPUT),
        Tensor("y", ("rows", "columns"), Role.OUTPUT, find_dtype, can_pad_rows=True),
    ),
    attributes=(Attribute("dtype", ("float32", "bfloat16", "float16"), "float32", passed=False),),
    kernels=(
        Kernel(
            "grouped",
            "a group of threads per row",
            (GROUP, ROWS),
            (WHOLE,),
            ({"threads": 8, "rows": 16}, {"threads": 32, "rows": 4}, {"threads": 128, "rows": 1}),
            domain=lambda t: (Count({"rows": t["rows"]}, max=2**31 - 1),),
        ),
    ),
    problems=tuple(
        Problem({"rows": rows, "columns": columns}, {"dtype": dtype}, {"x": pad})
        for dtype in ITEM_BYTES
        for rows, columns, pad in ((1, 1, 0), (3, 31, 1), (17, 64, 8), (5, 1030, 0), (2, 1024, 24))
    ),
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0,), restrict),
    distributions=("normal", "uniform", "ties", "largest_first", "largest_last", "largest_anywhere", "one_differs"),
)
