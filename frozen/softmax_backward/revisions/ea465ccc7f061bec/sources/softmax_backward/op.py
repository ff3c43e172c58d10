"""softmax_backward: the gradient of softmax, or of its logarithm, by its input, from its result."""

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
    Condition,
    Constraint,
    Cost,
    Count,
    Kernel,
    OneOf,
    Op,
    Positive,
    Probabilities,
    Problem,
    Role,
    Rows,
    Sampling,
    Tensor,
    Tunable,
    Uniform,
    Values,
    Variant,
)
from harness.spec.bounds import SMALLEST_NORMAL, ULPS, UNIT_ROUNDOFF, add_rounding, bound_sum

from .population import FLOATS, POPULATION

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
U = UNIT_ROUNDOFF["float32"]


def _find_dtype(problem: Problem) -> str:
    return str(problem.attributes.get("dtype", "float32"))


def _is_log(problem: Problem) -> bool:
    return bool(problem.attributes.get("log", False))


def _is_scaled(problem: Problem) -> bool:
    return bool(problem.attributes.get("with_scale", False))


def _find_values(problem: Problem) -> Values:
    """Return what softmax may have written: weights, or their logarithms."""
    return Uniform(-16.0, 0.0) if _is_log(problem) else Probabilities(rows_sum_to_one=True)


def _read(inputs: Arrays, problem: Problem) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return dy, without that of logarithms that are -inf, the weights, and the scale."""
    dy, y = np.asarray(inputs["dy"], np.float64), np.asarray(inputs["y"], np.float64)
    scale = float(inputs["scale"]) if _is_scaled(problem) else 1.0
    return (np.where(np.isneginf(y), 0.0, dy), np.exp(y), scale) if _is_log(problem) else (dy, y, scale)


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return dx in float64."""
    dy, weights, scale = _read(inputs, problem)
    if _is_log(problem):
        return {"dx": scale * (dy - weights * dy.sum(axis=1, keepdims=True))}
    return {"dx": scale * weights * (dy - (dy * weights).sum(axis=1, keepdims=True))}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the bounds of sums in any order.

    A term of the sum errs by its product's rounding. The difference, and the products with weight and scale, round once each; an
    exponential errs by expf, or, of 16 bits, by the two roundings of its exponent, and may be flushed to zero.
    """
    dy, weights, scale = _read(inputs, problem)
    rows, columns = dy.shape
    tiny, dy, scale = SMALLEST_NORMAL["float32"], np.abs(dy), abs(scale)
    if _is_log(problem):
        total = dy.sum(axis=1, keepdims=True)
        exponent = np.abs(np.asarray(inputs["y"], np.float64)) if ITEM_BYTES[_find_dtype(problem)] == 2 else 0.0
        roundings = np.where(weights > 0.0, 2.0 * ULPS["expf"] + 2.0 + 2.0 * exponent, 0.0)
        product = weights * bound_sum(total, columns, rows) + roundings * U * weights * total + tiny * total
        error = scale * (product + 3.0 * U * (dy + weights * total)) + 2.0 * tiny
    else:
        total = (dy * weights).sum(axis=1, keepdims=True)
        difference = bound_sum(total, columns, rows) + 2.0 * U * total + U * dy
        error = scale * weights * (difference + 3.0 * U * (dy + total)) + 4.0 * (scale + 1.0) * tiny
    return {"dx": add_rounding(error, outputs["dx"], _find_dtype(problem))}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows at ``places``."""
    taken = {name: array[places] if array.ndim == 2 else array for name, array in inputs.items()}
    return taken, replace(problem, sizes=dict(problem.sizes) | {"rows": len(places)})


def cost(problem: Problem) -> Cost:
    """Return about 5 flops an element, with y and dy read and dx written once."""
    elems, item = problem.sizes["rows"] * problem.sizes["columns"], ITEM_BYTES[_find_dtype(problem)]
    return Cost(flops=5.0 * elems, bytes_read=2.0 * item * elems, bytes_written=float(item * elems))


THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
CLUSTER_THREADS = Tunable("threads", (256, 512, 1024), "threads of each of the 8 blocks that take a row")
GROUP = Tunable("threads", (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), "threads that take a row")
ROWS = Tunable("rows", (1, 2, 4, 8, 16, 32, 64), "rows, and so groups of threads, of a block")
TOGETHER = Tunable("together", (1, 2, 4), "rows that a thread takes at a time")
TEAM_THREADS = Tunable("threads", (256, 512, 1024), "threads of each block of a team")
TEAM = Tunable("team", (2, 4, 8), "blocks, of one cluster, that take a row")
ELEMS = Tunable("elems", (8, 16, 32), "elements of a row that a thread keeps in registers")
BLOCK_FITS = Constraint(
    "block_fits",
    "threads * rows must be whole warps, at most 1024",
    lambda t: t["threads"] * t["rows"] % 32 == 0 and t["threads"] * t["rows"] <= 1024,
)
TEAM_FITS = Constraint("team_fits", "threads * team must be at least 1024", lambda t: t["threads"] * t["team"] >= 1024)
ONE_ROW_BEYOND_WARP = Constraint(
    "one_row_beyond_warp", "a group of more than a warp is a whole block: rows = 1", lambda t: t["threads"] <= 32 or t["rows"] == 1
)
# Columns are counted in 32 bits, and a loop may step this far past the last one.
_MAX_SIZE = 2**31 - 1 - 8192


# Threads that hold rows of any dtype: each for the next lengths, which are classes of the axis `region`.
_SHARES = (
    {"threads": 2, "rows": 64, "elems": 8},
    {"threads": 4, "rows": 32, "elems": 16},
    {"threads": 16, "rows": 8, "elems": 16},
    {"threads": 32, "rows": 4, "elems": 16},
    {"threads": 128, "rows": 1, "elems": 8},
    {"threads": 256, "rows": 1, "elems": 8},
    {"threads": 256, "rows": 1, "elems": 16},
    {"threads": 512, "rows": 1, "elems": 16},
    {"threads": 1024, "rows": 1, "elems": 16},
)
# Fewer threads for rows of 16-bit elements: each has 32 of them, and the rest of its work once for them all.
_LONG_SHARES = (
    {"threads": 16, "rows": 8, "elems": 32},
    {"threads": 32, "rows": 4, "elems": 32},
    {"threads": 64, "rows": 1, "elems": 32},
    {"threads": 128, "rows": 1, "elems": 32},
    {"threads": 256, "rows": 1, "elems": 32},
    {"threads": 512, "rows": 1, "elems": 32},
)
# Short rows that begin anywhere, by so many threads that few of their accesses lie past a row.
_LOOSE_SHARES = (
    {"threads": 2, "rows": 64, "elems": 8},
    {"threads": 4, "rows": 32, "elems": 16},
    {"threads": 8, "rows": 16, "elems": 16},
    {"threads": 8, "rows": 16, "elems": 32},
    {"threads": 16, "rows": 8, "elems": 32},
)
# How many columns those have.
_LOOSE_COLUMNS = (16, 32, 128, 256, 512)
# Longer rows: in the registers of as few blocks as hold them.
_TEAM_SHARES = (
    {"threads": 512, "team": 4, "elems": 16},
    {"threads": 512, "team": 8, "elems": 16},
    {"threads": 1024, "team": 8, "elems": 16},
)
_HALVES_TEAM_SHARE = {"threads": 1024, "team": 8, "elems": 32}


def _hold(t: Mapping[str, int]) -> int:
    """Return how many elements of a row the registers of a team hold."""
    return t["threads"] * t["team"] * t["elems"]


_LEAST_LONG = 257  # shorter rows are held by as few threads with less
# Two waves of threads that have registers for 32 elements, on 132 multiprocessors.
_TWO_WAVES = 132 * 1024
# So few rows leave multiprocessors idle where a block takes each.
_FEW_ROWS, _WIDEST = 64, 8
_FEWER_ROWS = 132 // 8
# A thread has no more columns to wait for than it has loads under way (1 column: 8.1 us, 11.3 us by two threads a row; 3: 5.7 and 6.8).
_FEW_COLUMNS = 4
# All rows begin on 16 bytes and end there, of 16-bit elements and of fp32 alike.
_HAS_PACKS = (Count({"columns": 1}, multiple=8), *(Rows(name, 16, 8) for name in ("dy", "y", "dx")))
_HALVES = OneOf("dtype", ("bfloat16", "float16"))


def _hold_up_to(most: int) -> tuple[Condition, ...]:
    return (Count({"columns": 1}, max=most),)


_REGIONS = {f"to_{_FEW_COLUMNS}": _hold_up_to(_FEW_COLUMNS)}
_REGIONS |= {f"to_{n}": (*_hold_up_to(n), *_HAS_PACKS) for n in (16, 64, 256, 512)}
_REGIONS |= {f"loose_{n}": _hold_up_to(n) for n in _LOOSE_COLUMNS}
_REGIONS |= {f"to_{n}": _hold_up_to(n) for n in (1024, 2048, 4096)}
_REGIONS |= {"half_to_8192": (*_hold_up_to(8192), _HALVES), "to_8192": _hold_up_to(8192), "to_16384": _hold_up_to(16384)}
_REGIONS |= {"few_long": (Count({"rows": 1}, max=_FEW_ROWS),)}
_REGIONS |= {f"to_{_hold(t)}": _hold_up_to(_hold(t)) for t in (*_TEAM_SHARES, _HALVES_TEAM_SHARE)}
_REGIONS |= {"long": ()}


def _serve_team(t: Mapping[str, int]) -> tuple[Count, ...]:
    return (Count({"rows": 1}, max=2**20), Count({"columns": 1}, _LEAST_SHARED, _hold(t)))


def _serve(max_columns: int = _MAX_SIZE) -> tuple[Count, ...]:
    return (Count({"rows": 1}, max=_MAX_SIZE), Count({"columns": 1}, max=max_columns))


# Shorter rows have no work for a cluster.
_LEAST_SHARED = 512

KERNELS = (
    Kernel(
        "naive",
        "a thread per row: the sum, then the result",
        (THREADS,),
        (),
        ({"threads": 64},),
        domain=lambda t: _serve(),
        tile=lambda t: {"rows": t["threads"]},
    ),
    Kernel(
        "few_columns",
        "a thread keeps rows of at most 4 columns, by pairs where rows begin on them; several are on their way at once",
        (THREADS, TOGETHER),
        (),
        ({"threads": 128, "together": 2},),
        domain=lambda t: _serve(_FEW_COLUMNS),
        tile=lambda t: {"rows": t["threads"] * t["together"]},
    ),
    Kernel(
        "block_passes",
        "a block per row, 16 bytes an access",
        (THREADS,),
        (),
        ({"threads": 256}, {"threads": 1024}),
        max_spill_bytes=32,  # of 1024 threads, which have 64 registers each
        domain=lambda t: _serve(),
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "cluster_passes",
        "a cluster of 8 blocks per row, for rows that are long and few",
        (CLUSTER_THREADS,),
        (),
        ({"threads": 256}, {"threads": 1024}),
        domain=lambda t: (Count({"rows": 1}, max=2**20), Count({"columns": 1}, _LEAST_SHARED, _MAX_SIZE - 2**17)),
        tile=lambda t: {"rows": 1},
        min_arch=90,
    ),
    Kernel(
        "split_passes",
        "blocks of the whole chip per row, by two launches: rows that are fewer than multiprocessors by far, and long",
        (THREADS,),
        (),
        ({"threads": 256},),
        domain=lambda t: (Count({"rows": 1}, max=2**20), Count({"columns": 1}, _LEAST_SHARED, _MAX_SIZE - 2**17)),
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "row_in_registers",
        "a group of threads keeps its row in registers, which is read once; many short rows per block",
        (GROUP, ROWS, ELEMS),
        (BLOCK_FITS, ONE_ROW_BEYOND_WARP),
        (*_SHARES, *(s for s in _LOOSE_SHARES if s not in (*_SHARES, *_LONG_SHARES)), *_LONG_SHARES),
        max_spill_bytes=32,  # of a warp per row, where ptxas keeps to 80 registers
        domain=lambda t: _serve(t["threads"] * t["elems"]),
        tile=lambda t: {"rows": t["rows"]},
    ),
    Kernel(
        "row_in_team",
        "as row_in_registers, of a cluster of blocks per row: rows that are longer than the registers of one hold",
        (TEAM_THREADS, TEAM, ELEMS),
        (TEAM_FITS,),
        _TEAM_SHARES,
        max_spill_bytes=32,
        domain=_serve_team,
        tile=lambda t: {"rows": 1},
        min_arch=90,
    ),
    Kernel(
        "half_row_in_team",
        "as row_in_team, of 16 bits alone: rows twice as long",
        (TEAM_THREADS, TEAM, ELEMS),
        (TEAM_FITS,),
        (_HALVES_TEAM_SHARE,),
        max_spill_bytes=32,
        domain=lambda t: (*_serve_team(t), OneOf("dtype", ("bfloat16", "float16"))),
        tile=lambda t: {"rows": 1},
        min_arch=90,
    ),
)


def _find_share(problem: Problem) -> Mapping[str, int] | None:
    """Return the tunables of row_in_registers for rows of a length, None where no registers hold them."""
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    if columns <= _LOOSE_COLUMNS[-1] and not OP.meets(_HAS_PACKS, problem):
        return next(share for share, most in zip(_LOOSE_SHARES, _LOOSE_COLUMNS, strict=True) if columns <= most)
    fitting = [[s for s in shares if columns <= s["threads"] * s["elems"]] for shares in (_LONG_SHARES, _SHARES)]
    longer, shares = fitting
    has_halves = ITEM_BYTES[_find_dtype(problem)] == 2
    if has_halves and longer and columns >= _LEAST_LONG and rows * longer[0]["threads"] >= _TWO_WAVES:
        return longer[0]
    return shares[0] if shares else None


def _find_team(problem: Problem) -> Variant | None:
    """Return the team that holds a row, of few rows one of many blocks; None where none does."""
    team, half = KERNELS[6:]
    teams = [t for t in _TEAM_SHARES if problem.sizes["columns"] <= _hold(t)]
    wide = [t for t in teams if t["team"] == _WIDEST] if problem.sizes["rows"] <= _FEW_ROWS else []
    if wide or teams:
        return team.bind((wide or teams)[0])
    is_held = ITEM_BYTES[_find_dtype(problem)] == 2 and problem.sizes["columns"] <= _hold(_HALVES_TEAM_SHARE)
    return half.bind(_HALVES_TEAM_SHARE) if is_held else None


def choose(problem: Problem) -> Choice:
    """Return the variant that keeps a row in the registers of as few threads as hold it, or reads long rows again."""
    naive, _, block, cluster, split, registers = KERNELS[:6]
    if problem.sizes["columns"] <= _FEW_COLUMNS:
        return Choice(naive.bind({"threads": 64}), "a thread takes as few columns sooner than several")
    share = _find_share(problem)
    if share is not None:
        return Choice(registers.bind(share), f"the registers of {share['threads']} threads hold a row")
    if team := _find_team(problem):
        return Choice(team, "the registers of several blocks hold a row")
    if problem.sizes["rows"] <= _FEWER_ROWS:
        return Choice(split.bind({"threads": 256}), "fewer rows than clusters of 8 blocks occupy the chip with")
    if problem.sizes["rows"] <= _FEW_ROWS:
        return Choice(cluster.bind({"threads": 256}), "few rows, longer than registers hold")
    return Choice(block.bind({"threads": 256}), "a row is longer than registers hold")


def _problem(suite: str, rows: int, columns: int, dtype: str = "float32", flags: str = "", **padding: int) -> Problem:
    switches = {name: name in flags.split() for name in ("log", "with_scale")}
    return Problem({"rows": rows, "columns": columns}, {"dtype": dtype, **switches}, padding, frozenset(suite.split()))


PROBLEMS = (
    _problem("verify", 1, 1),
    _problem("verify", 1, 33, flags="with_scale"),
    _problem("verify", 257, 1, "bfloat16", "log"),
    _problem("verify", 300, 2, "bfloat16", dy=8, y=8, dx=8),
    _problem("verify", 131, 4, "float16", "log with_scale", dy=8, dx=3),
    _problem("verify", 61, 3, "float32", "log", y=1, dx=1),
    _problem("verify", 129, 7, "float16"),
    _problem("verify", 67, 16, "float32", "log"),
    _problem("verify", 70, 64, "bfloat16", "with_scale", dy=8, y=16, dx=8),
    _problem("verify", 33, 61, "float16", "log with_scale", dy=3),
    _problem("verify", 35, 155, "bfloat16", "log", dy=8, dx=3),
    _problem("verify", 41, 15, "float16", "with_scale", y=1),
    _problem("verify", 5, 1023, "float32", "with_scale", dx=1),
    _problem("verify", 6, 1024, "bfloat16", "log"),
    _problem("verify", 2, 5003, "float32", "log"),
    _problem("verify", 3, 4096, "bfloat16"),
    _problem("verify", 2, 16000, "float16"),
    # Rows of every matrix that begin at different places behind a boundary, and all alike.
    _problem("verify", 9, 232, "bfloat16", "", dy=1, y=3, dx=2),
    _problem("verify", 9, 1501, "float16", "log", dy=3, dx=8),
    _problem("verify", 9, 301, "bfloat16", "with_scale"),
    _problem("verify", 9, 151),
    _problem("emulated", 256, 1024),
    _problem("emulated", 4096, 64, "bfloat16", "with_scale"),
    # One of each region.
    _problem("bench", 300000, 3, "float16"),
    _problem("bench", 200000, 14, "float16", "log", dy=1, y=1),
    _problem("bench", 250000, 27, "bfloat16", "", dy=1),
    _problem("bench", 500000, 16, "bfloat16"),
    _problem("bench sweep", 524288, 64),
    _problem("bench", 140000, 58, "float16", "", dx=3),
    _problem("bench", 262144, 256, "bfloat16", "log"),
    _problem("bench", 100000, 131),
    _problem("bench", 200000, 203, "float16", "log", dy=8, dx=3),
    _problem("bench", 60000, 347, "bfloat16", "", y=8),
    _problem("bench", 40000, 416, "float16"),
    _problem("bench", 32768, 1024, "bfloat16", "with_scale"),
    _problem("bench", 30000, 2048, "float16"),
    _problem("bench", 8192, 4096, "float16", "with_scale"),
    _problem("bench", 3000, 6144, "bfloat16", "log"),
    _problem("bench", 8192, 8192),
    _problem("bench", 2048, 12000),
    _problem("bench", 1500, 30000, "bfloat16"),
    _problem("bench", 1000, 50257),
    _problem("bench", 11, 137000, "float16", "log"),
    _problem("bench", 1024, 131072, "float32", "log"),
    _problem("bench", 300, 200000, "float16"),
    _problem("bench", 100, 300000, "float32", "log"),
    _problem("sweep", 32768, 1024),
)

OP = Op(
    name="softmax_backward",
    summary="gradient of softmax, or of its logarithm, by its input",
    tensors=(
        Tensor("dy", ("rows", "columns"), Role.INPUT, _find_dtype, can_pad_rows=True),
        Tensor("y", ("rows", "columns"), Role.INPUT, _find_dtype, can_pad_rows=True, values=_find_values),
        Tensor("scale", (), Role.INPUT, present=_is_scaled, values=Positive(2.0**-5, 2.0**3)),
        Tensor("dx", ("rows", "columns"), Role.OUTPUT, _find_dtype, can_pad_rows=True),
    ),
    attributes=(
        Attribute("dtype", FLOATS, "float32", passed=False),
        Attribute("log", (False, True), False),
        Attribute("with_scale", (False, True), False, passed=False),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    choose=choose,
    sampling=Sampling((0,), restrict),
    accumulate="float32",
    distributions=("normal", "uniform", "ties", "denormal", "one_differs"),
    population=POPULATION,
    axes=(Axis("region", _REGIONS),),
)
