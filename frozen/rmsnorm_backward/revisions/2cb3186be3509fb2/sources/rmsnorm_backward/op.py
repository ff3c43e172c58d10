"""rmsnorm_backward: the gradients of RMS normalisation by its input and weight; the same bits on every run."""

from __future__ import annotations

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
    Op,
    Positive,
    Problem,
    Role,
    Sampling,
    Tensor,
    Tunable,
)
from harness.spec.bounds import SMALLEST_NORMAL, UNIT_ROUNDOFF, add_rounding, bound_sum

from .population import FLOATS, POPULATION

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
U = UNIT_ROUNDOFF["float32"]


def _find_dtype(problem: Problem) -> str:
    return str(problem.attributes.get("dtype", "float32"))


def _has(problem: Problem, name: str) -> bool:
    return bool(problem.attributes.get(name, False))


def _normalise(inputs: Arrays) -> NDArray[np.float64]:
    """Return the normalised rows."""
    return np.asarray(np.asarray(inputs["x"], np.float64) * inputs["rstd"][:, np.newaxis])


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return dx and dweight."""
    dy, n = np.asarray(inputs["dy"], np.float64), _normalise(inputs)
    g = dy * inputs["weight"]
    dx = inputs["rstd"][:, np.newaxis] * (g - n * (g * n).mean(axis=1, keepdims=True))
    return {"dx": dx + inputs["dsum"] if "dsum" in inputs else dx, "dweight": (dy * n).sum(axis=0)}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the bounds of sums in any order, over the columns for dx and over the rows for dweight.

    n errs by a rounding, g by one, their product by three; the mean of a row by that, its sum's order and a division.
    """
    dy, n = np.asarray(inputs["dy"], np.float64), np.abs(_normalise(inputs))
    rows, columns = dy.shape
    dtype, tiny = _find_dtype(problem), SMALLEST_NORMAL["float32"]
    g = np.abs(dy * inputs["weight"])
    rstd = inputs["rstd"][:, np.newaxis]
    mean = (g * n).mean(axis=1, keepdims=True)
    mean_error = bound_sum(mean * columns, columns, rows) / columns + 5.0 * U * mean
    error = n * mean_error + 7.0 * U * (g + n * mean) + 3.0 * tiny
    error = rstd * error + 2.0 * U * np.abs(inputs.get("dsum", np.zeros(1))) + tiny
    summed = np.abs(dy) * n
    weight_error = bound_sum(summed.sum(axis=0), rows, columns) + 5.0 * U * summed.sum(axis=0)
    return {"dx": add_rounding(error, outputs["dx"], dtype), "dweight": add_rounding(weight_error, outputs["dweight"], dtype)}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows at ``places``, those of dx (axis 0), or of the columns, those of dweight (axis 1)."""
    names, size = (("dy", "x", "dsum", "mean", "rstd"), "rows") if axis == 0 else (("dy", "x", "dsum", "weight"), "columns")
    cut = {name: inputs[name][:, places] if axis and inputs[name].ndim == 2 else inputs[name][places] for name in names if name in inputs}
    return dict(inputs) | cut, replace(problem, sizes=dict(problem.sizes) | {size: len(places)})


def find_axis(output: str, axis: int, problem: Problem) -> int | None:
    """Return which axis of an output rows (0) or columns (1) are: a sum along one of them has the other."""
    return 0 if (output == "dx") == (axis == 0) else None


def cost(problem: Problem) -> Cost:
    """Return about 11 flops an element, with every tensor moved once."""
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    item = float(ITEM_BYTES[_find_dtype(problem)])
    matrices = 3.0 if _has(problem, "with_dsum") else 2.0
    read = item * matrices * rows * columns + item * columns + 4.0 * rows
    return Cost(flops=11.0 * rows * columns, bytes_read=read, bytes_written=item * rows * columns + item * columns)


THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
TEAM_THREADS = Tunable("threads", (256, 512), "threads of each block of a team")
TEAM = Tunable("team", (2, 4, 8), "blocks of a team, which takes a row")
CLUSTER_THREADS = Tunable("threads", (256, 512, 1024), "threads of each of the 8 blocks that take a row")
GROUP = Tunable("threads", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), "threads that take a row")
ROWS = Tunable("rows", (1, 2, 4, 8, 16, 32, 64, 128, 256), "rows, and so groups of threads, of a block at a time")
ELEMS = Tunable("elems", (8, 16), "elements of a row that a thread keeps in registers")
BESIDE_ELEMS = Tunable("elems", (8, 16, 32), "elements of a row that a thread keeps in registers")
BLOCKS = Tunable("blocks", (132, 264, 528, 1056), "partial sums over rows of each column, at most")
# Of 132 multiprocessors, of which teams of four and eight leave a few idle: those of a team are neighbours.
TEAM_BLOCKS = Tunable("blocks", (128, 132, 256, 264), "blocks of all teams, at most")
BLOCK_FITS = Constraint(
    "block_fits",
    "threads * rows must be whole warps, at most 1024",
    lambda t: t["threads"] * t["rows"] % 32 == 0 and t["threads"] * t["rows"] <= 1024,
)
ONE_ROW_BEYOND_WARP = Constraint(
    "one_row_beyond_warp", "a group of more than a warp is a whole block: rows = 1", lambda t: t["threads"] <= 32 or t["rows"] == 1
)
REGISTERS_FIT = Constraint(
    "registers_fit",
    "threads * rows * elems must not exceed 8192: x, dy and two sums of each element stay in registers",
    lambda t: t["threads"] * t["rows"] * t["elems"] <= 8192,
)

TEAM_FITS = Constraint(
    "team_fits", "threads * team must be at least 1024: each lane adds up a warp's sums", lambda t: t["threads"] * t["team"] >= 1024
)


# The lengths of rows that a variant of rows_in_registers is for: the classes of the axis `region`, from which `choose` takes the same.
_SHARES = (
    {"threads": 1, "rows": 256, "elems": 8, "blocks": 528},
    {"threads": 4, "rows": 64, "elems": 8, "blocks": 528},
    {"threads": 8, "rows": 32, "elems": 8, "blocks": 528},
    {"threads": 16, "rows": 16, "elems": 8, "blocks": 528},
    {"threads": 32, "rows": 8, "elems": 8, "blocks": 528},
    {"threads": 32, "rows": 8, "elems": 16, "blocks": 264},
    {"threads": 128, "rows": 1, "elems": 8, "blocks": 1056},
    {"threads": 256, "rows": 1, "elems": 8, "blocks": 528},
    {"threads": 512, "rows": 1, "elems": 8, "blocks": 264},
    {"threads": 1024, "rows": 1, "elems": 8, "blocks": 132},
)
# The same for rows_in_teams. More than two blocks meet too slowly: a row of 16384 columns takes two 2.1 us, and four 2.6 (H200).
_TEAM_SHARES = (
    {"threads": 512, "team": 2, "elems": 16, "blocks": 132},
    {"threads": 512, "team": 4, "elems": 16, "blocks": 128},
    {"threads": 512, "team": 8, "elems": 16, "blocks": 128},
)
# Few rows: in one launch, by blocks of 256 threads.
_BESIDE_SHARES = (
    {"threads": 32, "rows": 8, "elems": 32},
    {"threads": 256, "rows": 1, "elems": 16},
)
_MOST_BESIDE = 1024
# So few rows leave multiprocessors idle where a block takes each; shorter ones than so many columns are read in less time than the blocks
# of a cluster need to meet (58 rows of 9760: 15 us for a block each, 29 us for a cluster, on an H200).
_FEW_ROWS = 64
_LEAST_CLUSTER = 32768
_REGIONS = {f"to_{t['threads'] * t['elems']}": (Count({"columns": 1}, max=t["threads"] * t["elems"]),) for t in _SHARES}
_REGIONS |= {"few_long": (Count({"rows": 1}, max=_FEW_ROWS),), "long": ()}


def _serve(max_columns: int = 2**24) -> tuple[Count, ...]:
    return (Count({"rows": 1}, max=2**31 - 1), Count({"columns": 1}, max=max_columns))


# Shorter rows have no work for a cluster.
_LEAST_SHARED = 512

KERNELS = (
    Kernel(
        "naive",
        "a thread per row for dx, a thread per column for dweight",
        (THREADS,),
        (),
        ({"threads": 64},),
        domain=lambda t: _serve(),
        tile=lambda t: {"rows": t["threads"]},
    ),
    Kernel(
        "block_passes",
        "a block per row for dx; slabs of rows for partial sums, then their sums",
        (THREADS, BLOCKS),
        (),
        ({"threads": 512, "blocks": 132},),
        domain=lambda t: _serve(),
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "cluster_passes",
        "as block_passes, with a cluster of 8 blocks per row for dx, for rows that are long and few",
        (CLUSTER_THREADS, BLOCKS),
        (),
        ({"threads": 1024, "blocks": 132},),
        domain=lambda t: (Count({"rows": 1}, max=2**20), Count({"columns": 1}, _LEAST_SHARED, 2**24)),
        tile=lambda t: {"rows": 1},
        min_arch=90,
    ),
    Kernel(
        "rows_in_registers",
        "blocks that stay take rows in turn, and keep their partial sums in registers to the end",
        (GROUP, ROWS, ELEMS, BLOCKS),
        (BLOCK_FITS, ONE_ROW_BEYOND_WARP, REGISTERS_FIT),
        _SHARES,
        max_spill_bytes=64,  # of the widest variant, which wants a few more than the 128 registers that a thread of 512 has
        domain=lambda t: _serve(t["threads"] * t["elems"]),
        tile=lambda t: {"rows": t["rows"]},
    ),
    Kernel(
        "rows_beside_columns",
        "one launch of few rows: blocks that take rows for dx, beside blocks that take columns of all rows",
        (GROUP, ROWS, BESIDE_ELEMS),
        (BLOCK_FITS, ONE_ROW_BEYOND_WARP),
        _BESIDE_SHARES,
        domain=lambda t: (Count({"rows": 1}, max=_MOST_BESIDE), Count({"columns": 1}, max=t["threads"] * t["elems"])),
        tile=lambda t: {"rows": t["rows"]},
    ),
    Kernel(
        "rows_in_teams",
        "as rows_in_registers, with a cluster of blocks per row, for rows that are longer than the registers of one hold",
        (TEAM_THREADS, TEAM, ELEMS, TEAM_BLOCKS),
        (TEAM_FITS,),
        _TEAM_SHARES,
        max_spill_bytes=64,
        domain=lambda t: _serve(t["threads"] * t["team"] * t["elems"]),
        tile=lambda t: {"rows": 1},
        min_arch=90,
    ),
)


def choose(problem: Problem) -> Choice:
    """Return the variant that keeps a row in the registers of as few threads as hold it, or reads long rows again."""
    columns = problem.sizes["columns"]
    registers = next(k for k in KERNELS if k.name == "rows_in_registers")
    for bound in registers.variants:
        if columns <= bound["threads"] * bound["elems"]:
            return Choice(registers.bind(bound), f"the registers of {bound['threads']} threads hold a row")
    pair = _TEAM_SHARES[0]
    if columns <= pair["threads"] * pair["team"] * pair["elems"]:
        teams = next(k for k in KERNELS if k.name == "rows_in_teams")
        return Choice(teams.bind(pair), "the registers of two blocks hold a row")
    if problem.sizes["rows"] <= _FEW_ROWS and columns >= _LEAST_CLUSTER:
        return Choice(KERNELS[2].bind({"threads": 1024, "blocks": 132}), "few rows, longer than registers hold")
    return Choice(KERNELS[1].bind({"threads": 512, "blocks": 132}), "a row is longer than registers hold")


def _problem(suite: str, rows: int, columns: int, dtype: str = "float32", flags: str = "", **padding: int) -> Problem:
    attributes = {f"with_{name}": name in flags for name in ("dsum",)}
    return Problem({"rows": rows, "columns": columns}, {"dtype": dtype, **attributes}, padding, frozenset(suite.split()))


PROBLEMS = (
    _problem("verify", 1, 1),
    _problem("verify", 600, 2, "bfloat16"),
    _problem("verify", 1, 33, flags="dsum"),
    _problem("verify", 77, 64, "float16", "dsum"),
    _problem("verify", 300, 100, flags=""),
    _problem("verify", 5, 1023, "float16"),
    _problem("verify", 3, 1024, "bfloat16", "dsum", dy=8, x=16, dsum=8, dx=8),
    _problem("verify", 270, 301, "float32", "dsum", x=3, dx=1),
    _problem("verify", 2, 5003, "bfloat16"),
    _problem("verify", 20, 9000, "float16", "dsum"),
    # Rows that begin anywhere, more of them than there are blocks; each matrix in its own way.
    _problem("verify", 2200, 203, "float16", "dsum", dy=1, dsum=3, dx=5),
    _problem("verify", 140, 9001, "bfloat16", "dsum", x=2),
    _problem("verify", 35, 20000, "float16"),
    _problem("verify", 17, 33000, "float32", "dsum"),
    _problem("verify", 140, 5003, "bfloat16", "", x=2),
    _problem("emulated", 256, 1024),
    _problem("emulated", 32, 8192, "bfloat16", "dsum"),
    # One of each region.
    _problem("bench", 100000, 7, "bfloat16", "dsum", x=1, dx=1),
    _problem("bench", 90000, 17, "bfloat16", "dsum"),
    _problem("bench sweep", 262144, 64),
    _problem("bench", 262144, 128, "float16"),
    _problem("bench", 200000, 160, "bfloat16"),
    _problem("bench", 16000, 455, "bfloat16", "dsum", x=8, dx=8),
    _problem("bench", 16384, 1024, "bfloat16", "dsum"),
    _problem("bench", 16384, 1600, "float32", "dsum"),
    _problem("bench sweep", 8192, 4096, "bfloat16"),
    _problem("bench", 4096, 7168, "bfloat16"),
    _problem("bench", 4096, 12288, "bfloat16"),
    # The same of 16 bits, where rows begin anywhere.
    _problem("bench", 30000, 203, "bfloat16", "", dx=3),
    _problem("bench", 20000, 801, "float16", "dsum"),
    _problem("bench", 10000, 1501, "bfloat16", "", x=8, dx=3),
    _problem("bench", 8000, 2307, "float16", "dsum"),
    _problem("bench", 4000, 5003, "bfloat16", ""),
    _problem("bench", 16, 100000, "bfloat16", "dsum"),
    _problem("bench", 1024, 50257),
    _problem("sweep", 8192, 1024),
)

OP = Op(
    name="rmsnorm_backward",
    summary="gradients of RMS normalisation",
    tensors=(
        Tensor("dy", ("rows", "columns"), Role.INPUT, _find_dtype, can_pad_rows=True),
        Tensor("x", ("rows", "columns"), Role.INPUT, _find_dtype, can_pad_rows=True),
        Tensor("weight", ("columns",), Role.INPUT, _find_dtype),
        Tensor("rstd", ("rows",), Role.INPUT, values=Positive(0.125, 8.0)),
        Tensor("dsum", ("rows", "columns"), Role.INPUT, _find_dtype, present=lambda p: _has(p, "with_dsum"), can_pad_rows=True),
        Tensor("dx", ("rows", "columns"), Role.OUTPUT, _find_dtype, can_pad_rows=True),
        Tensor("dweight", ("columns",), Role.OUTPUT, _find_dtype),
    ),
    attributes=(
        Attribute("dtype", FLOATS, "float32", passed=False),
        Attribute("with_dsum", (False, True), False, passed=False),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0, 1), restrict, find_axis),
    choose=choose,
    accumulate="float32",
    distributions=("normal", "uniform", "ties", "denormal", "one_differs"),
    population=POPULATION,
    axes=(Axis("region", _REGIONS),),
)
