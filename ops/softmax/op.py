"""softmax: ``Y[i, j] = exp(X[i, j] - max_i) / sum_j exp(X[i, j] - max_i)`` over the last axis, fp32, any size and row stride."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Axis, Constraint, Cost, Count, Kernel, Op, Problem, Role, Sampling, Tensor, Tunable
from harness.spec.bounds import SMALLEST_NORMAL, ULPS, UNIT_ROUNDOFF, count_roundings

from .population import POPULATION

FLOAT_BYTES = 4
MAX_THREADS = 1024
WARP_SIZE = 32


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return Y in float64. Rows of nothing but -inf, or with NaN or +inf, come out as NaN; other -inf as 0."""
    x = np.asarray(inputs["x"], dtype=np.float64)
    with np.errstate(invalid="ignore"):
        weights = np.exp(x - x.max(axis=1, keepdims=True))
        return {"y": weights / weights.sum(axis=1, keepdims=True)}


# Roundings in units of u: expf, its product with the reciprocal, the reciprocal.
_EXP_ROUNDINGS = 2.0 * ULPS["expf"]
_SCALE_ROUNDINGS = 2.0
# Per element of the sum: the addition, and, where the maximum moves on, the product with an expf.
_SUM_ROUNDINGS = 1.0 + 1.0 + _EXP_ROUNDINGS


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return an absolute bound, relative to y, for three-pass and online kernels.

    With d = max - x: rounding d moves exp(-d) by u d; a moving maximum splits d into steps that round by no more than d together, so
    that the sum moves by u times the mean of d under y. Summing n terms costs min(n, l sqrt(n)) roundings, of which the latter holds with
    probability 1 - 1e-9 (N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41, 2019, Theorem 2.4). Weights below the normal range may be
    flushed to zero.
    """
    x = np.asarray(inputs["x"], dtype=np.float64)
    y = np.asarray(outputs["y"], dtype=np.float64)
    n = x.shape[1]
    num_terms = count_roundings(n, x.size)
    with np.errstate(invalid="ignore"):
        distance = np.where(y > 0.0, x.max(axis=1, keepdims=True) - x, 0.0)
        mean_distance = (y * distance).sum(axis=1, keepdims=True)
        roundings = distance + 2.0 * mean_distance + _SUM_ROUNDINGS * num_terms + 2.0 * _EXP_ROUNDINGS + _SCALE_ROUNDINGS
        return {"y": np.expm1(np.minimum(roundings * UNIT_ROUNDOFF["float32"], 1.0)) * y + 2.0 * SMALLEST_NORMAL["float32"]}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows at ``places``; a column is no softmax of its own."""
    return {"x": inputs["x"][places]}, Problem(dict(problem.sizes) | {"rows": len(places)}, problem.attributes, suites=problem.suites)


def cost(problem: Problem) -> Cost:
    """Return about 5 flops an element (maximum, difference, exponential, sum, scaling), with X read and Y written once."""
    elems = problem.sizes["rows"] * problem.sizes["columns"]
    return Cost(flops=5.0 * elems, bytes_read=float(FLOAT_BYTES * elems), bytes_written=float(FLOAT_BYTES * elems))


THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
ROWS = Tunable("rows", (1, 2, 4, 8, 16, 32), "rows, and so warps, of a block")
GROUP = Tunable("threads", (8, 16, 32, 64, 128, 256, 512, 1024), "threads that take a row")
GROUPS = Tunable("rows", (1, 2, 4, 8, 16, 32), "rows, and so groups of threads, of a block")
VECTORS = Tunable("vectors", (1, 2, 4, 8, 16), "float4 of a row that a thread keeps in registers")
WARPS_FIT_BLOCK = Constraint(
    "warps_fit_block", "a block has at most 1024 threads: rows * 32 <= 1024", lambda t: t["rows"] * WARP_SIZE <= MAX_THREADS
)
GROUPS_FIT_BLOCK = Constraint(
    "groups_fit_block",
    "threads * rows must be whole warps, at most 1024",
    lambda t: t["threads"] * t["rows"] % WARP_SIZE == 0 and t["threads"] * t["rows"] <= MAX_THREADS,
)
ONE_ROW_BEYOND_WARP = Constraint(
    "one_row_beyond_warp", "a group of more than a warp is a whole block: rows = 1", lambda t: t["threads"] <= WARP_SIZE or t["rows"] == 1
)

# The domains: what each kernel serves; `supports` is generated from them. Columns are counted in 32 bits, and a loop may step this far past
# the last one; a block has 163 KiB of shared memory after opting in on compute capability 8.0 and 9.0, less room for partial results.
_MAX_SIZE = 2**31 - 1 - 8192
_MAX_SHARED_FLOATS = (163 - 1) * 1024 // FLOAT_BYTES


def _serve(max_columns: int) -> tuple[Count, ...]:
    return (Count({"rows": 1}, max=_MAX_SIZE), Count({"columns": 1}, max=max_columns))


KERNELS = (
    Kernel(
        "naive",
        "a thread per row, three passes: maximum, sum, result",
        (THREADS,),
        (),
        ({"threads": 64}, {"threads": 256}),
        domain=lambda t: _serve(_MAX_SIZE),
        tile=lambda t: {"rows": t["threads"]},
    ),
    Kernel(
        "warp_per_row",
        "a warp per row: its lanes read neighbouring words and reduce by shuffles",
        (ROWS,),
        (WARPS_FIT_BLOCK,),
        ({"rows": 1}, {"rows": 4}, {"rows": 8}),
        domain=lambda t: _serve(_MAX_SIZE),
        tile=lambda t: {"rows": t["rows"]},
    ),
    Kernel(
        "block_online",
        "a block per row: maximum and sum in one pass, float4 where rows are aligned",
        (THREADS,),
        (),
        ({"threads": 128}, {"threads": 256}, {"threads": 1024}),
        domain=lambda t: _serve(_MAX_SIZE),
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "row_in_registers",
        "the row stays in registers between the passes: X is read once",
        (GROUP, GROUPS, VECTORS),
        (GROUPS_FIT_BLOCK, ONE_ROW_BEYOND_WARP),
        (
            {"threads": 32, "rows": 4, "vectors": 8},
            {"threads": 256, "rows": 1, "vectors": 8},
            {"threads": 8, "rows": 16, "vectors": 4},
        ),
        domain=lambda t: _serve(t["threads"] * t["vectors"] * 4),
        tile=lambda t: {"rows": t["rows"]},
    ),
    Kernel(
        "row_in_shared",
        "the row stays in shared memory, which holds rows that registers do not",
        (THREADS,),
        (),
        ({"threads": 256}, {"threads": 512}),
        domain=lambda t: _serve(_MAX_SHARED_FLOATS),
        tile=lambda t: {"rows": 1},
    ),
)


def _problem(suite: str, rows: int, columns: int, **padding: int) -> Problem:
    return Problem({"rows": rows, "columns": columns}, {}, padding, frozenset(suite.split()))


PROBLEMS = (
    _problem("verify", 1, 1),
    _problem("verify", 257, 1),
    _problem("verify", 1, 33),
    _problem("verify", 3, 31),
    _problem("verify", 129, 7),
    _problem("verify", 5, 1023),
    _problem("verify", 4, 1024, x=4, y=4),
    _problem("verify", 7, 1000, x=3),
    _problem("verify", 6, 128, x=4, y=1),
    _problem("verify", 2, 5003),
    _problem("verify", 64, 64),
    _problem("emulated", 256, 1024),
    _problem("emulated", 64, 5003),
    _problem("bench", 8192, 8192),
    _problem("bench sweep", 32768, 1024),
    _problem("bench", 1024, 131072),
    _problem("bench", 4096, 1000),
    _problem("bench sweep", 262144, 127),
)

OP = Op(
    name="softmax",
    summary="softmax over the last axis, fp32, row-major",
    tensors=(
        Tensor("x", ("rows", "columns"), Role.INPUT, can_pad_rows=True),
        Tensor("y", ("rows", "columns"), Role.OUTPUT, can_pad_rows=True),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    accumulate="float32",
    cost=cost,
    sampling=Sampling((0,), restrict),
    population=POPULATION,
    axes=(
        Axis(
            "region",
            {
                "short_rows": (Count({"columns": 1}, max=256),),
                "middle_rows": (Count({"columns": 1}, max=8192),),
                "long_rows": (),
            },
        ),
    ),
)
