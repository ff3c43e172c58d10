"""sdpa: scaled dot-product attention, ``O = softmax(scale Q K') V`` per head, causal or not, for any strides of batch, head and row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.spec import (
    Arrays,
    Attribute,
    Axis,
    Choice,
    Constraint,
    Cost,
    Count,
    Kernel,
    OneOf,
    Op,
    Problem,
    Role,
    Sampling,
    Scalar,
    Strides,
    Tensor,
    Tunable,
)
from harness.spec.bounds import SMALLEST_NORMAL, ULPS, UNIT_ROUNDOFF, add_rounding, count_roundings, find_sum_factor

from .population import POPULATION

FLOATS = ("float32", "bfloat16", "float16")
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
DEFAULT_SCALE = 0.125
MAX_WIDTH = 256
WARP_SIZE = 32
U = UNIT_ROUNDOFF["float32"]
# Which rows of Q those given are, where a sample of them is judged: the causal mask asks for it.
ROW_NUMBERS = "row_numbers"


def find_dtype(problem: Problem) -> str:
    """Return the dtype of all tensors but the log-sums."""
    return str(problem.attributes.get("dtype", "float32"))


def _find_scores(inputs: Arrays, problem: Problem) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the scaled products [B, H, S, T], and which of them count."""
    q, k = (np.asarray(inputs[name], np.float64) for name in ("q", "k"))
    scores = problem.scalars.get("scale", DEFAULT_SCALE) * np.matmul(q, k.swapaxes(-1, -2))
    rows, columns = scores.shape[-2:]
    numbers = np.asarray(inputs.get(ROW_NUMBERS, np.arange(rows)))
    is_causal = bool(problem.attributes.get("causal", False))
    counts = np.arange(columns) <= numbers[:, np.newaxis] if is_causal else np.ones((rows, columns), np.bool_)
    return np.where(counts, scores, -np.inf), counts


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return O, and the logarithms of the sums of exponentials, in float64."""
    scores, _ = _find_scores(inputs, problem)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    o = np.matmul(weights / total, np.asarray(inputs["v"], np.float64))
    return {"o": o, "lse": (largest + np.log(total))[..., 0]}


# A term of a sum of exponentials: the addition; and where the maximum moves on, the product with an expf.
_SUM_ROUNDINGS = 2.0 + 2.0 * ULPS["expf"]


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return a bound for kernels that keep the scores in fp32, in one pass (online) or several.

    A score errs by g scale |q|'|k| (a sum of D products) and its own rounding: twice the largest of a row's in each weight, for weights are
    relative to the others. A distance d from the maximum is rounded, and a maximum that moves on splits it: 3 u d. Sums over T terms cost
    count_roundings(T) times what a term costs. Weights below the normal range may be flushed to zero.
    """
    q, k, v = (np.abs(np.asarray(inputs[name], np.float64)) for name in ("q", "k", "v"))
    scores, counts = _find_scores(inputs, problem)
    width, columns = q.shape[-1], scores.shape[-1]
    magnitudes = problem.scalars.get("scale", DEFAULT_SCALE) * np.matmul(q, k.swapaxes(-1, -2))
    errors = np.where(counts, find_sum_factor(width + 2, scores.size) * magnitudes, 0.0).max(axis=-1, keepdims=True)
    distances = np.where(counts, scores.max(axis=-1, keepdims=True) - scores, 0.0)
    weights = np.exp(np.where(counts, scores, -np.inf) - outputs["lse"][..., np.newaxis])
    mean_distance = (weights * distances).sum(axis=-1, keepdims=True)
    roundings = _SUM_ROUNDINGS * count_roundings(columns, scores.size)
    relative = np.minimum(2.0 * errors + U * (3.0 * distances + 3.0 * mean_distance + 2.0 * roundings + 16.0), 50.0)
    o = np.matmul(weights * np.expm1(relative), v) + columns * SMALLEST_NORMAL["float32"] * v.max(axis=-2, keepdims=True)
    total = np.minimum(errors[..., 0] + U * (3.0 * mean_distance[..., 0] + roundings + 8.0), 50.0)
    lse = np.expm1(total) + 4.0 * U * np.abs(outputs["lse"]) + SMALLEST_NORMAL["float32"]
    return {"o": add_rounding(o, np.asarray(outputs["o"], np.float64), find_dtype(problem)), "lse": lse}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of some batches (axis 0), heads (1) or rows (2) of O; of rows, their numbers go along."""
    taken = dict(inputs)
    for name in ("q", "k", "v") if axis < 2 else ("q",):
        # Not by np.take, which would copy the whole of an array of zero strides first.
        taken[name] = inputs[name][(slice(None),) * axis + (places,)]
    if axis == 2:
        taken[ROW_NUMBERS] = np.asarray(places)
    return taken, replace(problem, sizes=dict(problem.sizes) | {"BHS"[axis]: len(places)})


def cost(problem: Problem) -> Cost:
    """Return two products per pair of rows, half of the pairs where they are causal, with each tensor moved once."""
    b, h, s, t, d = (problem.sizes[name] for name in "BHSTD")
    dtype = find_dtype(problem)
    share = 2.0 if problem.attributes.get("causal", False) else 4.0
    item = float(ITEM_BYTES[dtype])
    sums = 4.0 * b * h * s if problem.attributes.get("with_lse", False) else 0.0
    unit = "fp32" if dtype == "float32" else "bf16_tensor"
    return Cost(share * b * h * s * t * d, item * b * h * d * (s + 2 * t), item * b * h * s * d + sums, unit)


WARPS = Tunable("warps", (2, 4, 8, 16), "warps of a block")
ROWS = Tunable("rows", (1, 2, 4), "rows of Q that a warp takes")
KEYS = Tunable("keys", (32, 64), "rows of K and V in shared memory at a time")
FITS_SHARED = Constraint(
    "fits_shared",
    "K and V tiles and Q rows of the widest head must fit 162 KiB",
    lambda t: 4 * (t["keys"] * (2 * MAX_WIDTH + 1) + t["warps"] * t["rows"] * MAX_WIDTH) <= 162 * 1024,
)
_MAX = 2**31 - 1


def _serve(rows: int) -> tuple[Count, ...]:
    sizes = (Count({"D": 1}, max=MAX_WIDTH), Count({"S": 1}, max=_MAX - 8192), Count({"T": 1}, max=_MAX - 8192))
    return (*sizes, Count({"B": 1, "H": 1, "S": rows}, max=_MAX))


def _tile(rows: int) -> Mapping[str, int]:
    return {"B": 1, "H": 1, "S": rows}


KERNELS = (
    Kernel(
        "naive",
        "a warp per row of Q, two passes over K: the maximum, then weights and sums",
        (WARPS,),
        (),
        ({"warps": 4},),
        domain=lambda t: _serve(t["warps"]),
        tile=lambda t: _tile(t["warps"]),
    ),
    Kernel(
        "online",
        "tiles of K and V in shared memory serve several rows of Q; maximum, sum and O in one pass",
        (WARPS, ROWS, KEYS),
        (FITS_SHARED,),
        ({"warps": 4, "rows": 2, "keys": 32}, {"warps": 8, "rows": 4, "keys": 32}),
        domain=lambda t: _serve(t["warps"] * t["rows"]),
        tile=lambda t: _tile(t["warps"] * t["rows"]),
    ),
)

# Batch, row, head, width in memory: how a projection writes [B, S, H D].
HEADS_INSIDE = (0, 2, 1, 3)


def _problem(
    suite: str, sizes: tuple[int, int, int, int, int], dtype: str = "float32", *, causal: bool = False, lse: bool = False, **rest: object
) -> Problem:
    attributes = {"dtype": dtype, "causal": causal, "with_lse": lse}
    return Problem(dict(zip("BHSTD", sizes, strict=True)), attributes, suites=frozenset(suite.split()), **rest)  # type: ignore[arg-type]


_INSIDE = dict.fromkeys("qkvo", HEADS_INSIDE)
PROBLEMS = (
    _problem("verify", (1, 1, 1, 1, 1)),
    _problem("verify", (2, 3, 5, 7, 8), lse=True),
    _problem("verify", (1, 2, 80, 80, 16), causal=True, lse=True),
    _problem("verify", (2, 2, 17, 70, 64), orders=_INSIDE),
    _problem("verify", (1, 2, 9, 65, 80), "bfloat16", causal=True, orders=_INSIDE),
    _problem("verify", (1, 3, 12, 40, 128), "float16", padding={"q": (0, 0, 8, 0), "o": (0, 0, 3, 0)}, lse=True),
    _problem("verify", (1, 1, 3, 100, 256), "bfloat16", scalars={"scale": 0.0625}),
    _problem("verify", (1, 1, 70, 20, 3), causal=True),
    _problem("emulated", (1, 4, 128, 128, 64)),
    _problem("emulated", (1, 2, 128, 256, 64), "bfloat16", causal=True, orders=_INSIDE),
    _problem("bench sweep", (4, 16, 1024, 1024, 64), "bfloat16", causal=True, orders=_INSIDE),
    _problem("bench sweep", (1, 16, 2048, 2048, 128), "float16"),
    _problem("bench", (2, 8, 1024, 1024, 64)),
    _problem("bench", (32, 16, 1, 4096, 128), "bfloat16"),
)


def choose(problem: Problem) -> Choice:
    """Return the kernel with as many rows per block as there are rows."""
    online = next(k for k in KERNELS if k.name == "online")
    few = problem.sizes["S"] <= 16
    bound = {"warps": 4, "rows": 2, "keys": 32} if few else {"warps": 8, "rows": 4, "keys": 32}
    return Choice(online.bind(bound), "few rows leave little to share a tile with" if few else "a tile of K and V serves 32 rows")


OP = Op(
    name="sdpa",
    summary="scaled dot-product attention, rank 4 with any strides of batch, head and row",
    tensors=(
        Tensor("q", ("B", "H", "S", "D"), Role.INPUT, find_dtype, strides=Strides.OUTER),
        Tensor("k", ("B", "H", "T", "D"), Role.INPUT, find_dtype, strides=Strides.OUTER),
        Tensor("v", ("B", "H", "T", "D"), Role.INPUT, find_dtype, strides=Strides.OUTER),
        Tensor("o", ("B", "H", "S", "D"), Role.OUTPUT, find_dtype, strides=Strides.OUTER),
        Tensor("lse", ("B", "H", "S"), Role.OUTPUT, present=lambda p: bool(p.attributes.get("with_lse", False))),
    ),
    attributes=(
        Attribute("dtype", FLOATS, "float32", passed=False),
        Attribute("causal", (False, True), False),
        Attribute("with_lse", (False, True), False, passed=False),
    ),
    scalars=(Scalar("scale", DEFAULT_SCALE, 2.0**-10, 1.0, is_log=True),),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    choose=choose,
    sampling=Sampling((2,), restrict),
    accumulate="float32",
    distributions=("normal", "uniform", "ties", "denormal", "largest_first", "largest_last", "largest_anywhere", "one_differs"),
    population=POPULATION,
    axes=(
        Axis("dtypes", {dtype: (OneOf("dtype", (dtype,)),) for dtype in FLOATS}),
        Axis("region", {"few_rows": (Count({"S": 1}, max=16),), "many_rows": ()}),
    ),
)
