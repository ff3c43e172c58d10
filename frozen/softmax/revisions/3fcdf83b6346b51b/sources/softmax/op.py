"""softmax over the last axis, or its logarithm, of scaled and masked rows: fp32, bf16 and fp16, any size and row stride."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.spec import (
    Arrays,
    Attribute,
    Axis,
    Booleans,
    Choice,
    Constraint,
    Cost,
    Count,
    Kernel,
    OneOf,
    Op,
    Positive,
    Problem,
    Role,
    Sampling,
    Tensor,
    Tunable,
    Uniform,
)
from harness.spec.bounds import SMALLEST_NORMAL, ULPS, UNIT_ROUNDOFF, add_rounding, count_roundings

from .population import FLOATS, MASKS, POPULATION

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MAX_THREADS = 1024
WARP_SIZE = 32
U = UNIT_ROUNDOFF["float32"]
# Which rows of x those given are, where a sample of them is judged: the causal mask asks for it.
ROW_NUMBERS = "row_numbers"


def _find_dtype(problem: Problem) -> str:
    return str(problem.attributes.get("dtype", "float32"))


def _find_mask(problem: Problem) -> str:
    return str(problem.attributes.get("mask", "none"))


def _is_log(problem: Problem) -> bool:
    return bool(problem.attributes.get("log", False))


def _is_scaled(problem: Problem) -> bool:
    return bool(problem.attributes.get("with_scale", False))


def _find_visible(inputs: Arrays, problem: Problem) -> NDArray[np.bool_]:
    rows, columns = inputs["x"].shape
    if _find_mask(problem) == "boolean":
        return np.asarray(inputs["keep"], np.bool_)
    if _find_mask(problem) == "none":
        return np.ones((rows, columns), np.bool_)
    queries = np.asarray(inputs.get(ROW_NUMBERS, np.arange(rows))) % int(inputs["queries"])
    return np.asarray(np.arange(columns) <= queries[:, np.newaxis])


def _read_logits(inputs: Arrays, problem: Problem) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the scaled x, -inf where it is hidden, and what exponents are relative to: each row's maximum, 0 where a mask leaves none."""
    x = np.asarray(inputs["x"], np.float64)
    with np.errstate(invalid="ignore"):
        x = x * float(inputs["scale"]) if _is_scaled(problem) else x
    x = np.where(_find_visible(inputs, problem), x, -np.inf)
    base = x.max(axis=1, keepdims=True)
    return x, np.where(np.isneginf(base), 0.0, base) if _find_mask(problem) != "none" else base


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return y in float64.

    Rows with NaN or +inf that count, and without a mask rows of nothing but -inf, come out as NaN; other -inf as 0. A masked row of which
    nothing finite is to be seen is 0 throughout. Logarithms are those of these numbers.
    """
    x, base = _read_logits(inputs, problem)
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = x - base
        weights = np.exp(shifted)
        total = weights.sum(axis=1, keepdims=True)
        if _is_log(problem):
            return {"y": shifted - np.where(total == 0.0, 0.0, np.log(total))}
        return {"y": np.where(total == 0.0, 0.0, weights / total)}


# Roundings in units of u: expf, its product with the reciprocal, the reciprocal.
_EXP_ROUNDINGS = 2.0 * ULPS["expf"]
_SCALE_ROUNDINGS = 2.0
# Of the distance from the maximum: its own, and in 16 bits those of log2(e) and of the product.
_DISTANCE_ROUNDINGS = {"float32": 1.0, "bfloat16": 3.0, "float16": 3.0}
# Per element of the sum: the addition, and, where the maximum moves on, the product with an expf.
_SUM_ROUNDINGS = 1.0 + 1.0 + _EXP_ROUNDINGS


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return an absolute bound for three-pass and online kernels.

    With d = max - x: rounding d moves exp(-d) by u d, and in 16 bits log2(e) and its product with d do so too; a moving maximum splits d
    into steps that round by no more than d together, so that the sum moves by u times the mean of d under y. Where x is scaled, both
    terms of d are rounded before. Summing n terms costs min(n, l sqrt(n)) roundings, of which the latter holds with probability 1 - 1e-9
    (N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41, 2019, Theorem 2.4). Weights below the normal range may be flushed to zero. The
    logarithm of the sum errs by the sum's relative error and by logf; it and d are subtracted, which rounds once more.
    """
    x, base = _read_logits(inputs, problem)
    y = np.asarray(outputs["y"], dtype=np.float64)
    num_terms = count_roundings(x.shape[1], x.size)
    is_scaled = float(_is_scaled(problem))
    with np.errstate(invalid="ignore", over="ignore"):
        share = np.exp(y) if _is_log(problem) else y
        counts = np.isfinite(x) & ((share > 0.0) | _is_log(problem))
        distance = np.where(counts, base - x, 0.0)
        weighted = distance * _DISTANCE_ROUNDINGS[_find_dtype(problem)]
        scaling = is_scaled * np.where(counts, np.abs(x) + np.abs(base), 0.0)
        mean = (share * (2.0 * weighted + scaling)).sum(axis=1, keepdims=True)
        sum_roundings = mean + _SUM_ROUNDINGS * num_terms + _EXP_ROUNDINGS
        if _is_log(problem):
            logarithm = np.abs(np.where(counts, x - base - y, 0.0))
            error = np.expm1(np.minimum(sum_roundings * U, 50.0)) + U * (distance + scaling + 2.0 * ULPS["logf"] * logarithm + np.abs(y))
            error = error + SMALLEST_NORMAL["float32"]
        else:
            roundings = weighted + scaling + sum_roundings + _EXP_ROUNDINGS + _SCALE_ROUNDINGS
            error = np.expm1(np.minimum(roundings * U, 1.0)) * y + 2.0 * SMALLEST_NORMAL["float32"]
        return {"y": add_rounding(error, y, _find_dtype(problem))}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows at ``places``, and these; a column is no softmax of its own."""
    taken = {name: array[places] if array.ndim == 2 else array for name, array in inputs.items()}
    return taken | {ROW_NUMBERS: np.asarray(places)}, replace(problem, sizes=dict(problem.sizes) | {"rows": len(places)})


def cost(problem: Problem) -> Cost:
    """Return about 5 flops an element (maximum, difference, exponential, sum, scaling), with x and a mask read and y written once."""
    elems, item = problem.sizes["rows"] * problem.sizes["columns"], ITEM_BYTES[_find_dtype(problem)]
    mask = 1 if _find_mask(problem) == "boolean" else 0
    return Cost(flops=5.0 * elems, bytes_read=float((item + mask) * elems), bytes_written=float(item * elems))


THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
ROWS = Tunable("rows", (1, 2, 4, 8, 16, 32), "rows, and so warps, of a block")
CLUSTER_THREADS = Tunable("threads", (256, 512, 1024), "threads of each of the 8 blocks that take a row")
GROUP = Tunable("threads", (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), "threads that take a row")
GROUPS = Tunable("rows", (1, 2, 4, 8, 16, 32, 64), "rows, and so groups of threads, of a block")
RUN_GROUP = Tunable("threads", (2, 4, 8, 16, 32), "threads that take a row")
RUN_ROWS = Tunable("rows", (32, 64, 128), "rows, and so groups of threads, of a block")
LANE_ELEMS = Tunable("elems", (4, 8), "elements of a row that a lane keeps in registers")
TOGETHER = Tunable("together", (4,), "rows that a warp takes at a time")
STAGED = Tunable("staged", (0, 1), "rows that follow one another go through shared memory, by 16 bytes: 1")
TEAM_THREADS = Tunable("threads", (256, 512, 1024), "threads of each block of a team")
TEAM = Tunable("team", (2, 4, 8), "blocks, of one cluster, that take a row")
VECTORS = Tunable("vectors", (2, 4, 8, 16), "times four elements of a row that a thread keeps in registers")
WARPS_FIT_BLOCK = Constraint(
    "warps_fit_block", "a block has at most 1024 threads: rows * 32 <= 1024", lambda t: t["rows"] * WARP_SIZE <= MAX_THREADS
)
TEAM_FITS = Constraint("team_fits", "threads * team must be at least 1024", lambda t: t["threads"] * t["team"] >= 1024)
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
_MAX_SHARED_FLOATS = (163 - 1) * 1024 // 4
_MAX_SHARED_HALVES = 2 * _MAX_SHARED_FLOATS
# Two blocks of a multiprocessor have so much each.
_HALF_OF_SHARED = 81 * 1024


# The lengths of rows that a variant of row_in_registers is for: the classes of the axis `region`, from which `choose` takes the same.
_SHARES = (
    {"threads": 2, "rows": 64, "vectors": 2},
    {"threads": 4, "rows": 32, "vectors": 4},
    {"threads": 16, "rows": 8, "vectors": 4},
    {"threads": 32, "rows": 4, "vectors": 4},
    {"threads": 128, "rows": 1, "vectors": 2},
    {"threads": 256, "rows": 1, "vectors": 2},
    {"threads": 256, "rows": 1, "vectors": 4},
    {"threads": 256, "rows": 1, "vectors": 8},
    {"threads": 1024, "rows": 1, "vectors": 4},
)
# For as long rows, where they are many: of half to a fourth as many threads each has more elements, and the rest of its work once for them
# all.
_LONG_SHARES = (
    {"threads": 4, "rows": 32, "vectors": 8},
    {"threads": 8, "rows": 16, "vectors": 8},
    {"threads": 16, "rows": 8, "vectors": 8},
    {"threads": 32, "rows": 4, "vectors": 8},
    {"threads": 64, "rows": 1, "vectors": 8},
    {"threads": 128, "rows": 1, "vectors": 8},
)
_LEAST_LONG = 33  # shorter rows are held by as few threads with less
# Longer rows: in the registers of as few blocks as hold them.
_TEAM_SHARES = (
    {"threads": 512, "team": 2, "vectors": 8},
    {"threads": 512, "team": 4, "vectors": 8},
    {"threads": 512, "team": 8, "vectors": 8},
    {"threads": 1024, "team": 8, "vectors": 8},
)


def _hold(t: Mapping[str, int]) -> int:
    """Return how many elements of a row the registers of a team hold."""
    return t["threads"] * t["team"] * t["vectors"] * 4


# Others that problems drawn from the population may need.
_MORE_SHARES = (
    {"threads": 8, "rows": 16, "vectors": 4},
    {"threads": 32, "rows": 8, "vectors": 2},
)
# For rows without whole packs. Rows of 32 lie far enough apart for a warp's groups to read them without conflicts.
_RUN_SHARES = ({"threads": 4, "rows": 32, "vectors": 4},)
# For rows of fp32 that begin anywhere.
_WARP_SHARES = ({"rows": 4, "elems": 8, "together": 4, "staged": 0}, {"rows": 4, "elems": 8, "together": 4, "staged": 1})
# Two waves of threads that have registers for 32 elements, on 132 multiprocessors.
_TWO_WAVES = 132 * 1024
# With so few rows some multiprocessors have one more than others, where a block takes each: clusters even that out.
_UNEVEN_ROWS = 264
# So few rows leave multiprocessors idle where a block takes each; shorter ones have too little work for eight.
_FEW_ROWS, _LEAST_SPREAD, _WIDEST = 64, 16 * 1024 + 1, 8
_NAMES = ("to_16", "tiny_rows", "short_rows", "to_512", "to_1024", "to_2048", "to_4096", "middle_rows", "to_16384")
_REGIONS = {n: (Count({"columns": 1}, max=t["threads"] * t["vectors"] * 4),) for n, t in zip(_NAMES, _SHARES, strict=True)}
_REGIONS |= {"few_long": (Count({"rows": 1}, max=_FEW_ROWS),), "shared": (Count({"columns": 1}, max=_MAX_SHARED_FLOATS),)}
_REGIONS |= {f"to_{most}": (Count({"columns": 1}, max=most),) for t in _TEAM_SHARES if (most := _hold(t)) > _MAX_SHARED_FLOATS}
_REGIONS |= {"long_rows": ()}


def _serve(max_columns: int) -> tuple[Count, ...]:
    return (Count({"rows": 1}, max=_MAX_SIZE), Count({"columns": 1}, max=max_columns))


def _find_row_tile(t: Mapping[str, int]) -> dict[str, int]:
    return {"rows": t["rows"]}


# Shorter rows have no work for a cluster.
_LEAST_SHARED = 512

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
        ({"rows": 1}, {"rows": 4}),
        domain=lambda t: _serve(_MAX_SIZE),
        tile=_find_row_tile,
    ),
    Kernel(
        "block_online",
        "a block per row: maximum and sum in one pass, 16 bytes an access where rows are aligned",
        (THREADS,),
        (),
        ({"threads": 128}, {"threads": 256}, {"threads": 1024}),
        domain=lambda t: _serve(_MAX_SIZE),
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "cluster_online",
        "a cluster of 8 blocks per row, for rows that are long and few",
        (CLUSTER_THREADS,),
        (),
        ({"threads": 256}, {"threads": 1024}),
        domain=lambda t: (Count({"rows": 1}, max=2**20), Count({"columns": 1}, _LEAST_SHARED, _MAX_SIZE - 2**17)),
        tile=lambda t: {"rows": 1},
        min_arch=90,
    ),
    Kernel(
        "row_in_registers",
        "a group of threads keeps its row in registers between the passes: x is read once; many short rows per block",
        (GROUP, GROUPS, VECTORS),
        (GROUPS_FIT_BLOCK, ONE_ROW_BEYOND_WARP),
        (*_SHARES, *_LONG_SHARES, *_MORE_SHARES),
        max_spill_bytes=16,  # of blocks of 1024 threads, whose masked rows want two more than the 64 registers that a thread has
        domain=lambda t: _serve(t["threads"] * t["vectors"] * 4),
        tile=_find_row_tile,
    ),
    Kernel(
        "rows_in_run",
        "as row_in_registers; rows that follow one another without whole packs are brought and taken as one run of memory",
        (RUN_GROUP, RUN_ROWS, VECTORS),
        (GROUPS_FIT_BLOCK,),
        _RUN_SHARES,
        domain=lambda t: _serve(t["threads"] * t["vectors"] * 4),
        tile=_find_row_tile,
    ),
    Kernel(
        "rows_in_warp",
        "a warp per several rows of fp32 without a mask, whose lanes keep every 32nd element in registers: rows that begin anywhere",
        (ROWS, LANE_ELEMS, TOGETHER, STAGED),
        (WARPS_FIT_BLOCK,),
        _WARP_SHARES,
        domain=lambda t: (*_serve(WARP_SIZE * t["elems"]), OneOf("dtype", ("float32",)), OneOf("mask", ("none",))),
        tile=lambda t: {"rows": t["rows"] * t["together"]},
    ),
    Kernel(
        "row_in_shared",
        "the row stays in shared memory, which holds rows that registers do not",
        (THREADS,),
        (),
        ({"threads": 256}, {"threads": 512}, {"threads": 1024}),
        domain=lambda t: _serve(_MAX_SHARED_FLOATS),
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "half_row_in_shared",
        "as row_in_shared, of 16 bits alone: rows twice as long",
        (THREADS,),
        (),
        ({"threads": 512},),
        domain=lambda t: (*_serve(_MAX_SHARED_HALVES), OneOf("dtype", ("bfloat16", "float16"))),
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "row_in_team",
        "as row_in_registers, of a cluster of blocks per row: rows that are longer than the registers of one hold",
        (TEAM_THREADS, TEAM, VECTORS),
        (TEAM_FITS,),
        _TEAM_SHARES,
        max_spill_bytes=64,
        domain=lambda t: (Count({"rows": 1}, max=2**20), Count({"columns": 1}, _LEAST_SHARED, _hold(t))),
        tile=lambda t: {"rows": 1},
        min_arch=90,
    ),
)


def _find_share(rows: int, columns: int) -> Mapping[str, int] | None:
    """Return the tunables of row_in_registers for rows of a length, None where no registers hold them."""
    fitting = [[s for s in shares if columns <= s["threads"] * s["vectors"] * 4] for shares in (_LONG_SHARES, _SHARES)]
    longer, shares = fitting
    if longer and columns >= _LEAST_LONG and rows * longer[0]["threads"] >= _TWO_WAVES and longer[0]["threads"] < shares[0]["threads"]:
        return longer[0]
    return shares[0] if shares else None


def choose(problem: Problem) -> Choice:
    """Return the variant that keeps a row where it fits: in the registers of as few threads as hold it, or in shared memory."""
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    block, cluster, registers, _, _, shared, _, team = KERNELS[2:]
    teams = [t for t in _TEAM_SHARES if columns <= _hold(t)]
    if rows <= _FEW_ROWS and columns >= _LEAST_SPREAD:
        if wide := [t for t in teams if t["team"] == _WIDEST]:
            return Choice(team.bind(wide[0]), "few rows, long enough for the registers of a cluster of blocks each")
        return Choice(cluster.bind({"threads": 256}), "few rows, longer than the registers of a cluster hold")
    share = _find_share(rows, columns)
    if share is not None:
        return Choice(registers.bind(share), f"the registers of {share['threads']} threads hold a row")
    if columns <= _MAX_SHARED_FLOATS:
        # A multiprocessor has one such row at a time, or no second one to take.
        is_alone = columns * ITEM_BYTES[_find_dtype(problem)] > _HALF_OF_SHARED or rows <= _UNEVEN_ROWS
        return Choice(shared.bind({"threads": 1024 if is_alone else 512}), "shared memory holds a row")
    if teams:
        return Choice(team.bind(teams[0]), f"the registers of {teams[0]['team']} blocks hold a row")
    if rows <= _UNEVEN_ROWS:
        return Choice(cluster.bind({"threads": 256}), "longer than all registers of a cluster, and few enough to leave some idle")
    return Choice(block.bind({"threads": 256}), "a row is longer than what is kept")


def _problem(suite: str, rows: int, columns: int, flags: str = "", **padding: int) -> Problem:
    """Return a problem with the attributes that ``flags`` names, a dtype, a mask, ``log``, ``with_scale``, and the others' defaults."""
    kinds = dict.fromkeys(FLOATS, "dtype") | dict.fromkeys(MASKS, "mask")
    attributes: dict[str, bool | str] = {kinds.get(flag, flag): flag if flag in kinds else True for flag in flags.split()}
    return Problem({"rows": rows, "columns": columns}, attributes, padding, frozenset(suite.split()))


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
    _problem("verify", 131, 16, "bfloat16"),
    _problem("verify", 67, 61, "float16 log"),
    _problem("verify", 33, 40, "log with_scale"),
    _problem("verify", 70, 64, "bfloat16 causal with_scale", x=8, y=16),
    _problem("verify", 37, 48, "boolean", keep=5),
    # Rows of fp32 that begin anywhere, fewer than a warp takes at the end.
    _problem("verify", 19, 129),
    _problem("verify", 21, 251, "log with_scale", y=3),
    _problem("verify", 5, 1021, "float16 boolean log with_scale", x=3),
    _problem("verify", 6, 1024, "bfloat16 log"),
    _problem("verify", 3, 2055, "causal log"),
    _problem("verify", 2, 16000, "float16"),
    # Rows of x and y that begin at different places behind a boundary, and each at another.
    _problem("verify", 9, 232, "bfloat16", x=1),
    _problem("verify", 9, 1501, "float16 log", x=3, y=8),
    _problem("emulated", 256, 1024),
    _problem("emulated", 64, 5003),
    _problem("emulated", 4096, 64, "bfloat16"),
    # One of each region, two where masks matter.
    _problem("bench", 200000, 12, "float16"),
    _problem("bench sweep", 524288, 64),
    _problem("bench", 262144, 256, "bfloat16 log"),
    _problem("bench", 100000, 133),
    _problem("bench", 65536, 512, "float16"),
    _problem("bench", 32768, 1024, "bfloat16 causal with_scale"),
    _problem("bench", 4096, 1000),
    _problem("bench", 6000, 2048, "boolean with_scale"),
    _problem("bench", 4096, 4096, "float16 log"),
    _problem("bench", 8192, 8192),
    _problem("bench", 1024, 12150, "float16 log"),
    _problem("bench", 6, 200000, "float16"),
    _problem("bench", 8192, 32000, "float16 log"),
    _problem("bench", 2000, 50304, "bfloat16"),
    _problem("bench", 1024, 131072),
    _problem("bench", 300, 250000, "float16"),
    _problem("bench", 256, 300000, "float16"),
    _problem("sweep", 32768, 1024),
    _problem("sweep", 262144, 127),
)

OP = Op(
    name="softmax",
    summary="softmax or its logarithm over the last axis, scaled and masked",
    tensors=(
        Tensor("x", ("rows", "columns"), Role.INPUT, _find_dtype, can_pad_rows=True),
        Tensor("y", ("rows", "columns"), Role.OUTPUT, _find_dtype, can_pad_rows=True),
        Tensor("scale", (), Role.INPUT, present=_is_scaled, values=Positive(2.0**-5, 2.0**3), since=1),
        Tensor(
            "keep",
            ("rows", "columns"),
            Role.INPUT,
            "bool",
            present=lambda p: _find_mask(p) == "boolean",
            can_pad_rows=True,
            values=Booleans(),
            since=1,
        ),
        Tensor("queries", (), Role.INPUT, "int64", present=lambda p: _find_mask(p) == "causal", values=Uniform(1, 300), since=1),
    ),
    attributes=(
        Attribute("dtype", FLOATS, "float32", passed=False, since=1),
        Attribute("log", (False, True), False, since=1),
        Attribute("mask", MASKS, "none", since=1),
        Attribute("with_scale", (False, True), False, passed=False, since=1),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    accumulate="float32",
    cost=cost,
    choose=choose,
    sampling=Sampling((0,), restrict),
    population=POPULATION,
    axes=(Axis("region", _REGIONS),),
)
