"""reduce: sum, mean, maximum, minimum, place of the maximum, L2 norm and sum of squares, over columns, rows or all of a matrix."""

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
    Tensor,
    Tie,
    Tunable,
)
from harness.spec.bounds import SMALLEST_NORMAL, UNIT_ROUNDOFF, add_rounding, bound_sum

from .population import FLOATS, POPULATION, REDUCTIONS, RESULTS

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8}
OVERS = ("columns", "rows", "all")
ADDED = ("sum", "mean", "sum_squares")
U = UNIT_ROUNDOFF["float32"]
PACK_BYTES = 16
MOST_AT_ONCE = 1 << 17
# Blocks that fill a chip.
_MANY_ROWS = 264

Values = NDArray[np.float64]


def _get(problem: Problem, name: str) -> str:
    defaults = {"dtype": "float32", "result_dtype": "float32", "reduction": "sum", "over": "columns"}
    return str(problem.attributes.get(name, defaults[name]))


def _find_axis(problem: Problem) -> int | None:
    """Return the axis of x that goes, None for both."""
    return {"columns": 1, "rows": 0, "all": None}[_get(problem, "over")]


def _find_shape(problem: Problem) -> tuple[str, ...]:
    return {"columns": ("rows",), "rows": ("columns",), "all": ()}[_get(problem, "over")]


def reference(inputs: Arrays, problem: Problem) -> dict[str, Values]:
    """Return y; NaN anywhere makes NaN, and is where argmax points to."""
    x, axis, reduction = np.asarray(inputs["x"], np.float64), _find_axis(problem), _get(problem, "reduction")
    if reduction == "argmax":
        return {"y": np.asarray(np.argmax(x, axis=axis), np.float64)}
    if reduction in ("sum_squares", "l2_norm"):
        # Without an array of squares, which takes longer to make than to sum.
        squares = np.asarray(np.einsum({1: "ij,ij->i", 0: "ij,ij->j", None: "ij,ij->"}[axis], x, x))
        return {"y": np.sqrt(squares) if reduction == "l2_norm" else squares}
    function = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[reduction]
    return {"y": np.asarray(function(x, axis=axis))}


def _sum_magnitudes(x: Values, axis: int | None) -> Values:
    """Return sums of absolute values, of some rows at a time: an array of all of them takes longer to make than to sum."""
    step = max(MOST_AT_ONCE // x.shape[1], 1)
    sums = [np.abs(x[at : at + step]).sum(axis=axis) for at in range(0, x.shape[0], step)]
    return np.concatenate(sums) if axis == 1 else np.asarray(np.sum(sums, axis=0))


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, Values]:
    """Return the bound of a sum in any order, what follows from it for mean and norm, and nothing for what is chosen among elements.

    The mean's count and its division round once each, as does the part of it that a block may add by itself. With s the sum of squares
    and e its bound, the norm moves by at most min(sqrt(e), e / sqrt(s)), and its square root rounds once.
    """
    y, reduction, dtype = np.asarray(outputs["y"], np.float64), _get(problem, "reduction"), _get(problem, "result_dtype")
    if reduction == "argmax" or (reduction in ("max", "min") and dtype in ("float32", _get(problem, "dtype"))):
        return {"y": np.zeros_like(y)}
    x = np.asarray(inputs["x"], np.float64)
    num_terms = x.size // max(y.size, 1)
    if reduction in ("max", "min"):
        error = np.zeros_like(y)
    elif reduction in ("sum", "mean"):
        magnitudes = _sum_magnitudes(x, _find_axis(problem))
        error = bound_sum(magnitudes, num_terms, y.size)
        if reduction == "mean":
            error = error / num_terms + 3.0 * U * magnitudes / num_terms + SMALLEST_NORMAL["float32"]
    else:
        squares = y * y if reduction == "l2_norm" else y
        error = bound_sum(squares, num_terms, y.size)
        if reduction == "l2_norm":
            with np.errstate(divide="ignore", invalid="ignore"):
                error = np.fmin(np.sqrt(error), error / y) + 2.0 * U * y
    return {"y": add_rounding(error, y, dtype)}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the results at ``places``, which are rows of x or columns; a result over all has no places."""
    is_row = _get(problem, "over") == "columns"
    size = "rows" if is_row else "columns"
    return {"x": inputs["x"][places] if is_row else inputs["x"][:, places]}, replace(
        problem, sizes=dict(problem.sizes) | {size: len(places)}
    )


def cost(problem: Problem) -> Cost:
    """Return a flop per element, two for squares, with x read once and y written once."""
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    results = {"columns": rows, "rows": columns, "all": 1}[_get(problem, "over")]
    flops = 2.0 if _get(problem, "reduction") in ("sum_squares", "l2_norm") else 1.0
    read, written = ITEM_BYTES[_get(problem, "dtype")], ITEM_BYTES[_get(problem, "result_dtype")]
    return Cost(flops=flops * rows * columns, bytes_read=float(read * rows * columns), bytes_written=float(written * results))


THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
GROUP = Tunable("threads", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), "threads that take a row")
ROWS = Tunable("rows", (1, 2, 4, 8, 16, 32, 64, 128, 256), "rows, and so groups of threads, of a block")
SLAB_THREADS = Tunable("threads", (64, 128, 256), "threads of a block: rows that it takes at a time, by width")
RUN_THREADS = Tunable("threads", (256,), "threads of a block: whole rows, or some together that are whole accesses")
RUN_BLOCKS = Tunable("blocks", (132, 264, 396), "blocks at most: all that run at once, as the last of more would have a chip alone")
WIDTH = Tunable("width", (2, 4, 8, 16, 32), "accesses of 16 bytes along a row that a block makes")
BLOCKS = Tunable("blocks", (132, 264, 528, 1056, 2112), "blocks in all, about, where a result is cut into parts")
CLUSTER = Tunable("cluster", (1, 2, 4, 8), "blocks, of one cluster, that take the same columns")
LANES = Tunable("lanes", (1, 2, 4, 8, 16, 32, 64, 128, 256), "threads that take a row")
ROWS_AT_ONCE = Tunable("rows", (1, 2, 4), "rows that a thread takes at a time")
BYTES = Tunable("bytes", (4, 8, 16), "bytes of an access, where rows begin on such boundaries")
BLOCK_FITS = Constraint(
    "block_fits",
    "threads * rows must be whole warps, at most 1024",
    lambda t: t["threads"] * t["rows"] % 32 == 0 and t["threads"] * t["rows"] <= 1024,
)
ONE_ROW_BEYOND_WARP = Constraint(
    "one_row_beyond_warp", "a group of more than a warp is a whole block: rows = 1", lambda t: t["threads"] <= 32 or t["rows"] == 1
)
LANES_FIT = Constraint(
    "lanes_fit",
    "lanes must be part of a warp, or the whole block with one row at a time",
    lambda t: t["lanes"] <= 32 or (t["lanes"] == t["threads"] and t["rows"] == 1),
)
# Elements of a row for a lane: more are several waits, for which other kernels have more threads.
MOST_OF_A_LANE = 64


# Columns of a matrix that column_runs takes: a block of it has threads for some rows of one element an access.
_FEW_COLUMNS = 256


def _serve(*overs: str, max_rows: int = 2**31 - 1, min_columns: int = 1, max_columns: int = 2**35) -> tuple[Count | OneOf, ...]:
    served = (Count({"rows": 1}, max=max_rows), Count({"columns": 1}, min=min_columns, max=max_columns))
    return (*served, OneOf("over", overs)) if overs else served


# Rows for each thread of a group of blocks: 32 rounds of 16 loads, of each of which a warp has a row.
_ROWS_OF_A_THREAD = 16


def _find_most_rows(lanes: int) -> int:
    """Return the rows that groups of lanes are for: beyond a warp a row is a block, which pays only where rows are few."""
    warp, blocks_of_a_chip = 32, 2112
    return 2**31 - 1 if lanes <= warp else blocks_of_a_chip


def _find_least_columns(width: int) -> int:
    """Return the columns that blocks of this width are for: of fewer most lanes would be idle, even of fp32 a quarter."""
    most_of_any_row, elems = 8, 3
    return 1 if width <= most_of_any_row else elems * width


KERNELS = (
    Kernel(
        "naive",
        "a thread per row or column; over all, one block",
        (THREADS,),
        (),
        ({"threads": 64},),
        domain=lambda t: _serve(),
    ),
    Kernel(
        "row_groups",
        "a group of threads per row, 16 bytes an access wherever a row begins, 4 accesses in flight",
        (GROUP, ROWS),
        (BLOCK_FITS, ONE_ROW_BEYOND_WARP),
        (
            {"threads": 1, "rows": 128},
            {"threads": 4, "rows": 32},
            {"threads": 32, "rows": 4},
            {"threads": 128, "rows": 1},
            {"threads": 512, "rows": 1},
        ),
        domain=lambda t: _serve("columns"),
        tile=lambda t: {"rows": t["rows"]},
    ),
    Kernel(
        "row_parts",
        "several blocks per row, then a block puts the parts of a row together",
        (THREADS, BLOCKS),
        (),
        ({"threads": 256, "blocks": 1056},),
        # Of more rows a block would take one whole, however short.
        domain=lambda t: _serve("columns", max_rows=t["blocks"]),
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "column_parts",
        "a block takes a few columns of every n-th rows, then the parts of each column are put together",
        (SLAB_THREADS, WIDTH, BLOCKS),
        (),
        (
            {"threads": 256, "width": 2, "blocks": 1056},
            {"threads": 256, "width": 8, "blocks": 1056},
            {"threads": 256, "width": 32, "blocks": 1056},
        ),
        # Of rows that are much shorter than a block is wide most lanes are idle, and so few are left that each has waits without end.
        domain=lambda t: _serve("rows", min_columns=_find_least_columns(t["width"]), max_columns=2**31 - 1),
        # Packs of 16 bits, and two rounds of loads: the least that a part of a column is cut to.
        tile=lambda t: {"columns": 8 * t["width"], "rows": 8 * (t["threads"] // t["width"])},
    ),
    Kernel(
        "column_groups",
        "a block, or a cluster of blocks, takes a few columns whole, 16 rows a thread in flight: one launch",
        (THREADS, CLUSTER),
        (),
        ({"threads": 32, "cluster": 1}, {"threads": 256, "cluster": 1}, {"threads": 512, "cluster": 8}),
        # Of more rows a thread has so many waits that several blocks for a column, and a second launch, are faster.
        domain=lambda t: _serve("rows", max_rows=_ROWS_OF_A_THREAD * t["threads"] * t["cluster"], max_columns=2**31 - 1),
        # 32 columns, of which each block of a cluster has its share.
        tile=lambda t: {"columns": 32 // t["cluster"]},
        min_arch=90,
    ),
    Kernel(
        "column_packs",
        "a thread takes the columns of one access through all rows: one wait, and nothing to put together",
        (THREADS, BYTES),
        (),
        ({"threads": 128, "bytes": 4}, {"threads": 128, "bytes": 8}),
        # A region of the op's axes: from more rows on, too few threads have too many waits.
        domain=lambda t: _serve("rows", max_rows=_MANY_ROWS, max_columns=2**31 - 1),
        tile=lambda t: {"columns": t["threads"] * t["bytes"] // 2},
    ),
    Kernel(
        "column_runs",
        "rows of few columns as one run of accesses, of which a thread has those of the same columns; then the parts are put together",
        (RUN_THREADS, RUN_BLOCKS),
        (),
        ({"threads": 256, "blocks": 264}, {"threads": 256, "blocks": 396}),
        domain=lambda t: _serve("rows", max_columns=_FEW_COLUMNS),
        # Two accesses of 16 bytes for each thread, of rows of the most columns: the least that a part is cut to.
        tile=lambda t: {"rows": 16 * t["threads"] // _FEW_COLUMNS},
    ),
    Kernel(
        "row_packs",
        "few threads per row, several short rows at a time: accesses as wide as rows begin on",
        (THREADS, LANES, ROWS_AT_ONCE),
        (LANES_FIT,),
        (
            {"threads": 128, "lanes": 1, "rows": 1},
            {"threads": 256, "lanes": 256, "rows": 1},
            {"threads": 128, "lanes": 4, "rows": 1},
            {"threads": 256, "lanes": 1, "rows": 4},
        ),
        domain=lambda t: _serve("columns", max_rows=_find_most_rows(t["lanes"]), max_columns=MOST_OF_A_LANE * t["lanes"]),
        tile=lambda t: {"rows": t["threads"] // t["lanes"] * t["rows"]},
    ),
    Kernel(
        "whole",
        "every block takes a part, then one block puts the parts together",
        (SLAB_THREADS, BLOCKS),
        (),
        ({"threads": 256, "blocks": 1056},),
        domain=lambda t: _serve("all"),
    ),
    Kernel(
        "atomic",
        "blocks add their parts to the result as they end: not the same bits on every run",
        (SLAB_THREADS, WIDTH, BLOCKS),
        (),
        ({"threads": 256, "width": 8, "blocks": 1056},),
        deterministic=False,
        domain=lambda t: (
            *_serve("rows", "all", max_columns=2**31 - 1),
            OneOf("reduction", ADDED),
            OneOf("result_dtype", ("float32",)),
        ),
    ),
)
_FEW_SUMMED = 16  # rows that a thread reads one after the other
_NAIVE, _GROUPS, _ROW_PARTS, _COLUMN_PARTS, _, _, _, _, _WHOLE, _ATOMIC = KERNELS
# The bytes of a row from which a block is too few threads for it.
_LONG_BYTES = 1 << 16
# Rows of which four threads each fill a chip: more threads for one only make more blocks, each with a wait of its own.
_FULL_ROWS = 1 << 15
# Columns of so many rows are read within two waits by the narrowest blocks, without a second launch; that pays for so many bytes.
_ONE_PART_ROWS, _ONE_PART_BYTES = 1024, 10 << 20


def _bind_columns(rows: int, row_bytes: int) -> Choice:
    """Return ``column_parts`` with the widest blocks along a row that leave few of their lanes idle, or the narrowest."""
    packs, narrow = -(-row_bytes // PACK_BYTES), _COLUMN_PARTS.variants[0]
    if rows <= _ONE_PART_ROWS and rows * row_bytes <= _ONE_PART_BYTES:
        return Choice(_COLUMN_PARTS.bind(narrow), f"{rows} rows are read by one part of each column")

    def wastes_few(bound: Mapping[str, int]) -> bool:
        lanes = -(-packs // bound["width"]) * bound["width"]
        return 8 * (lanes - packs) <= lanes

    bound = next((b for b in reversed(_COLUMN_PARTS.variants) if wastes_few(b)), narrow)
    return Choice(_COLUMN_PARTS.bind(bound), f"a row has {packs} accesses of 16 bytes, of which a block takes {bound['width']}")


def choose(problem: Problem) -> Choice:
    """Return the kernel for what goes, with as many threads along a row as its length gives work to."""
    rows, over = problem.sizes["rows"], _get(problem, "over")
    row_bytes = problem.sizes["columns"] * ITEM_BYTES[_get(problem, "dtype")]
    packs = -(-row_bytes // PACK_BYTES)
    if over == "all":
        return Choice(_WHOLE.bind(_WHOLE.variants[0]), "all elements are one result")
    if over == "rows" and rows <= _FEW_SUMMED:
        return Choice(_NAIVE.bind(_NAIVE.variants[0]), f"{rows} rows are too few for parts of a column, a thread takes it whole")
    if over == "rows":
        return _bind_columns(rows, row_bytes)
    if rows < _MANY_ROWS and row_bytes > _LONG_BYTES:
        return Choice(_ROW_PARTS.bind(_ROW_PARTS.variants[0]), f"{rows} rows are fewer blocks than fill a chip")
    most = {1: 2, 4: 128, 32: 512, 128: 2048} if rows >= _FULL_ROWS else {1: 1, 4: 16, 32: 256, 128: 2048}
    bound = next((b for b in _GROUPS.variants if packs <= most.get(b["threads"], packs)), _GROUPS.variants[-1])
    return Choice(_GROUPS.bind(bound), f"a row of {packs} accesses of 16 bytes gives work to {bound['threads']} threads")


def _problem(suite: str, rows: int, columns: int, what: str, dtype: str = "float32", result: str | None = None, pad: int = 0) -> Problem:
    """Return a problem; ``what`` is the reduction and what goes, as in ``sum/rows``."""
    reduction, over = what.split("/")
    kept = "int64" if reduction == "argmax" else result or dtype
    attributes = {"dtype": dtype, "result_dtype": kept, "reduction": reduction, "over": over}
    return Problem({"rows": rows, "columns": columns}, attributes, {"x": pad}, frozenset(suite.split()))


PROBLEMS = (
    _problem("verify", 1, 1, "sum/columns"),
    _problem("verify", 70, 3, "mean/columns", "bfloat16"),
    _problem("verify", 9, 2050, "max/columns", "float16", pad=1),
    _problem("verify", 65, 129, "argmax/columns"),
    _problem("verify", 3, 20011, "l2_norm/columns", "bfloat16", "float32"),
    _problem("verify", 2, 33000, "argmax/columns", "float16", pad=3),
    _problem("verify", 300, 1, "sum_squares/rows", "float16", "float32"),
    _problem("verify", 600, 67, "sum/rows", "bfloat16"),
    _problem("verify", 1030, 264, "mean/rows", pad=8),
    _problem("verify", 77, 100, "argmax/rows", "bfloat16", pad=4),
    _problem("verify", 700, 72, "min/rows", "float16"),
    _problem("verify", 33, 1001, "l2_norm/rows"),
    _problem("verify", 5, 1027, "mean/rows", "float16", "float32", pad=5),
    _problem("verify", 1100, 12, "argmax/columns", "bfloat16"),
    _problem("verify", 1, 70001, "sum/all", "bfloat16", "float32"),
    _problem("verify", 530, 67, "argmax/all", pad=5),
    _problem("verify", 40, 1000, "l2_norm/all", "float16"),
    _problem("verify", 300, 128, "mean/all", pad=8),
    _problem("verify", 7, 11, "max/all", "bfloat16"),
    _problem("emulated", 256, 1024, "sum/columns"),
    _problem("emulated", 512, 1024, "sum/rows", "bfloat16"),
    _problem("emulated", 1, 1 << 20, "l2_norm/all", "bfloat16", "float32"),
    _problem("bench sweep", 8192, 8192, "sum/columns"),
    _problem("bench", 16384, 4096, "max/columns", "bfloat16"),
    _problem("bench sweep", 524288, 64, "mean/columns", "bfloat16"),
    _problem("bench", 1 << 20, 16, "l2_norm/columns"),
    _problem("bench", 131072, 640, "max/columns", "float16"),
    _problem("bench", 65536, 384, "l2_norm/columns"),
    _problem("bench", 32, 1 << 20, "argmax/columns", "bfloat16"),
    _problem("bench sweep", 16, 1 << 20, "sum/columns"),
    _problem("bench sweep", 8192, 4096, "sum/rows", "bfloat16"),
    _problem("bench", 65536, 1024, "sum/rows"),
    _problem("bench", 16384, 4096, "sum/rows"),
    _problem("bench", 8192, 768, "sum/rows", "bfloat16"),
    _problem("bench sweep", 1 << 20, 32, "mean/rows"),
    _problem("bench", 1 << 20, 64, "sum/rows", "bfloat16"),
    _problem("bench", 64, 1 << 18, "sum/rows", "float16"),
    _problem("bench", 64, 1 << 18, "max/rows"),
    _problem("bench sweep", 1, 1 << 28, "l2_norm/all", "bfloat16", "float32"),
    _problem("bench", 1, 100000007, "sum/all"),
    _problem("bench", 4099, 8191, "mean/all", "float16", "float32", pad=1),
)

OP = Op(
    name="reduce",
    summary="sums, means, extremes and norms of a matrix over columns, rows or all",
    tensors=(
        Tensor("x", ("rows", "columns"), Role.INPUT, lambda p: _get(p, "dtype"), can_pad_rows=True),
        Tensor("y", _find_shape, Role.OUTPUT, lambda p: _get(p, "result_dtype")),
    ),
    attributes=(
        Attribute("dtype", FLOATS, "float32", passed=False),
        Attribute("result_dtype", RESULTS, "float32", passed=False),
        Attribute("reduction", REDUCTIONS, "sum"),
        Attribute("over", OVERS, "columns"),
    ),
    ties=(
        Tie((OneOf("reduction", ("argmax",)),), {"result_dtype": "int64"}),
        Tie(
            (OneOf("reduction", tuple(r for r in REDUCTIONS if r != "argmax")), OneOf("result_dtype", ("int64",))),
            {"result_dtype": "float32"},
        ),
        Tie((OneOf("dtype", ("float32", "float16")), OneOf("result_dtype", ("bfloat16",))), {"result_dtype": "float32"}),
        Tie((OneOf("dtype", ("float32", "bfloat16")), OneOf("result_dtype", ("float16",))), {"result_dtype": "float32"}),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    sampling=Sampling((0,), restrict),
    cost=cost,
    choose=choose,
    accumulate="float32",
    population=POPULATION,
    axes=(
        Axis("dtypes", {"float32": (OneOf("dtype", ("float32",)),), "half": ()}),
        Axis("over", {over: (OneOf("over", (over,)),) for over in OVERS}, part="survey"),
        Axis(
            "region",
            {
                "short_rows": (Count({"columns": 1}, max=64),),
                "few_rows": (Count({"rows": 1}, max=264),),
                "narrow": (Count({"columns": 1}, max=1024),),
                "middle": (),
            },
        ),
    ),
)
