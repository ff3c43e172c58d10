"""layernorm: rows less their mean, over their standard deviation, times a weight; with an addition in front."""

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
    Op,
    Problem,
    Role,
    Sampling,
    Scalar,
    Tensor,
    Tunable,
)
from harness.spec.bounds import SMALLEST_NORMAL, ULPS, UNIT_ROUNDOFF, add_rounding, bound_rounding, bound_sum, find_sum_factor

from .population import FLOATS, POPULATION

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
U = UNIT_ROUNDOFF["float32"]
EPS = Scalar("eps", 1e-5, 1e-8, 1e-2, is_log=True)


def _find_dtype(problem: Problem) -> str:
    return str(problem.attributes.get("dtype", "float32"))


def _has(problem: Problem, name: str) -> bool:
    return bool(problem.attributes.get(name, name == "with_bias"))


def _read_eps(problem: Problem) -> float:
    return float(np.float32(problem.scalars.get("eps", EPS.default)))


def _add(inputs: Arrays) -> NDArray[np.float64]:
    x = np.asarray(inputs["x"], np.float64)
    return x + inputs["residual"] if "residual" in inputs else x


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return y; the sum where there is a residual; mean and 1 / sqrt(variance + eps) where they are wanted."""
    s = _add(inputs)
    mean = s.mean(axis=1, keepdims=True)
    rstd = 1.0 / np.sqrt(((s - mean) ** 2).mean(axis=1, keepdims=True) + _read_eps(problem))
    y = (s - mean) * rstd * inputs["weight"]
    results = {"y": y + inputs["bias"] if "bias" in inputs else y}
    if "residual" in inputs:
        results["sum"] = s
    if _has(problem, "with_statistics"):
        results |= {"mean": mean[:, 0], "rstd": rstd[:, 0]}
    return results


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the bounds of kernels that subtract the mean before they square.

    s errs by its rounding, the mean by that and by a sum in any order: together they move each difference from the mean by no more than d.
    The standard deviation s.d. = sqrt(mean(c^2) + eps) is a norm of (c / sqrt(n), sqrt(eps)): it moves by no more than the root mean
    square of d, and stays above sqrt(eps). A quotient c / s.d. moves by (d + |c / s.d.| rms(d)) over the lowest s.d.
    """
    s, dtype = _add(inputs), _find_dtype(problem)
    rows, columns = s.shape
    eps = _read_eps(problem)
    rounding = bound_rounding(s, dtype) + U * np.abs(s) if "residual" in inputs else np.zeros_like(s)
    mean = s.mean(axis=1, keepdims=True)
    magnitude = np.abs(s).mean(axis=1, keepdims=True)
    sum_error = bound_sum(magnitude * columns, columns, rows) / columns + 2.0 * U * np.abs(mean)
    mean_error = sum_error + rounding.mean(axis=1, keepdims=True) * (1.0 + 2.0 * U)
    shift = (rounding + mean_error) * (1.0 + U) + U * np.abs(s - mean) + SMALLEST_NORMAL["float32"]
    shift_norm = np.sqrt((shift**2).mean(axis=1, keepdims=True))
    deviation = np.sqrt(((s - mean) ** 2).mean(axis=1, keepdims=True) + eps)
    lowest = np.maximum(np.sqrt(eps), deviation - shift_norm)
    # Of 1 / s.d.: half of the sum of squares and its division, addition and eps, then rsqrtf.
    relative = 0.51 * find_sum_factor(columns + 1, rows) + (2.0 + 2.0 * ULPS["rsqrtf"]) * U
    z = np.abs(s - mean) / deviation
    z_error = (shift + z * shift_norm) / lowest
    z_error = z_error + (relative + 2.0 * U) * (z + z_error)
    weight = np.abs(np.asarray(inputs["weight"], np.float64))
    y_error = z_error * weight + 2.0 * U * ((z + z_error) * weight + np.abs(inputs.get("bias", np.zeros(1)))) + SMALLEST_NORMAL["float32"]
    bounds = {"y": add_rounding(y_error, outputs["y"], dtype)}
    if "sum" in outputs:
        bounds["sum"] = rounding + SMALLEST_NORMAL["float32"]
    if "mean" in outputs:
        rstd_error = shift_norm / (deviation * lowest) * (1.0 + relative) + relative / deviation
        bounds |= {"mean": mean_error[:, 0] + SMALLEST_NORMAL["float32"], "rstd": rstd_error[:, 0]}
    return bounds


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows at ``places``."""
    cut = {name: array if array.ndim == 1 else array[places] for name, array in inputs.items()}
    return cut, replace(problem, sizes=dict(problem.sizes) | {"rows": len(places)})


def cost(problem: Problem) -> Cost:
    """Return about 8 flops an element, with every tensor moved once."""
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    item = float(ITEM_BYTES[_find_dtype(problem)])
    matrices = 2.0 if _has(problem, "with_residual") else 1.0
    vectors = 2.0 if _has(problem, "with_bias") else 1.0
    statistics = 8.0 if _has(problem, "with_statistics") else 0.0
    read = item * matrices * rows * columns + item * vectors * columns
    return Cost(flops=8.0 * rows * columns, bytes_read=read, bytes_written=item * matrices * rows * columns + statistics * rows)


THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
CLUSTER_THREADS = Tunable("threads", (256, 512, 1024), "threads of each of the 8 blocks that take a row")
GROUP = Tunable("threads", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), "threads that take a row")
ROWS = Tunable("rows", (1, 2, 4, 8, 16, 32, 64, 128), "rows, and so groups of threads, of a block")
TEAM_THREADS = Tunable("threads", (256, 512, 1024), "threads of each block of a team")
TEAM = Tunable("team", (2, 4, 8), "blocks, of one cluster, that take a row")
LANES = Tunable("threads", (1, 2, 4, 8, 16, 32), "threads that take a row")
WORD_LANES = Tunable("threads", (8, 16, 32), "threads that take a row")
TOGETHER = Tunable("together", (2, 4), "rows that a group of threads takes at once")
RUN_THREADS = Tunable("threads", (64, 128, 256), "threads of a block")
RUN_ROWS = Tunable("rows", (64, 128, 256, 512), "rows of a block, each of one thread")
ELEMS = Tunable("elems", (8, 16, 32), "elements of a row that a thread keeps in registers")
BLOCK_FITS = Constraint(
    "block_fits",
    "threads * rows must be whole warps, at most 1024",
    lambda t: t["threads"] * t["rows"] % 32 == 0 and t["threads"] * t["rows"] <= 1024,
)
STAGED_FITS = Constraint("staged_fits", "threads must be 512 or 1024: a multiprocessor has 1024", lambda t: t["threads"] in (512, 1024))
TEAM_FITS = Constraint("team_fits", "threads * team must be at least 1024", lambda t: t["threads"] * t["team"] >= 1024)
WARP = 32
ONE_ROW_BEYOND_WARP = Constraint(
    "one_row_beyond_warp", "a group of more than a warp is a whole block: rows = 1", lambda t: t["threads"] <= WARP or t["rows"] == 1
)


# The lengths of rows that a variant of row_in_registers is for: the classes of the axis `region`, from which `choose` takes the same.
_SHARES = (
    {"threads": 1, "rows": 128, "elems": 8},
    {"threads": 4, "rows": 32, "elems": 8},
    {"threads": 8, "rows": 16, "elems": 8},
    {"threads": 16, "rows": 8, "elems": 8},
    {"threads": 32, "rows": 4, "elems": 8},
    {"threads": 32, "rows": 4, "elems": 16},
    {"threads": 128, "rows": 1, "elems": 8},
    {"threads": 256, "rows": 1, "elems": 8},
    {"threads": 256, "rows": 1, "elems": 16},
    {"threads": 512, "rows": 1, "elems": 16},
    {"threads": 1024, "rows": 1, "elems": 16},
)
# Half as many threads for rows of 16-bit elements: each has 32 of them, and the rest of its work once for them all.
_LONG_SHARES = (
    {"threads": 32, "rows": 4, "elems": 32},
    {"threads": 64, "rows": 1, "elems": 32},
    {"threads": 128, "rows": 1, "elems": 32},
    {"threads": 256, "rows": 1, "elems": 32},
    {"threads": 512, "rows": 1, "elems": 32},
)
# Short rows by fewer threads, which waste less where a row is no multiple of what a warp holds.
_SHORT_SHARES = (
    {"threads": 8, "rows": 16, "elems": 16},
    {"threads": 8, "rows": 16, "elems": 32},
    {"threads": 16, "rows": 8, "elems": 32},
)
# Few rows by more threads, which wait for less of it each.
_FEW_SHARES = (
    {"threads": 512, "rows": 1, "elems": 8},
    {"threads": 1024, "rows": 1, "elems": 8},
)
# Short rows of whole packs, several to a group.
_TOGETHER_SHARES = ({"threads": 4, "rows": 32, "elems": 8, "together": 2},)
# Short rows that begin anywhere.
_WORD_SHARES = (
    {"threads": 16, "rows": 8, "elems": 16},
    {"threads": 32, "rows": 4, "elems": 16},
    {"threads": 32, "rows": 4, "elems": 32},
)
_RUN_SHARES = ({"threads": 128, "rows": 128},)
# Longer rows: in the registers of as few blocks as hold them.
_TEAM_SHARES = (
    {"threads": 512, "team": 2, "elems": 32},
    {"threads": 512, "team": 4, "elems": 32},
    {"threads": 512, "team": 8, "elems": 32},
    {"threads": 1024, "team": 8, "elems": 32},
)


def _hold(t: Mapping[str, int]) -> int:
    """Return how many elements of a row the registers of a team hold."""
    return t["threads"] * t["team"] * t["elems"]


_LEAST_LONG = 513  # shorter rows are held by a warp with less
# Threads of 132 multiprocessors: two waves of those that have registers for 32 elements, and half a wave of any.
_TWO_WAVES, _HALF_WAVE = 132 * 1024, 132 * 256
# So few rows leave multiprocessors idle where a block takes each.
_FEW_ROWS, _FEWER_THAN_SMS, _WIDEST = 64, 131, 8
# Two blocks on each of 132 multiprocessors: nothing but how soon a row's block is done decides.
_FEW_BLOCKS = 264
_REGIONS = {
    f"few_{most}": (Count({"rows": 1}, max=_FEW_BLOCKS), Count({"columns": 1}, most // 2 + 1, most))
    for most in (1024, 2048, 4096, 8192, 16384)
}
_REGIONS |= {f"to_{t['threads'] * t['elems']}": (Count({"columns": 1}, max=t["threads"] * t["elems"]),) for t in _SHARES}
_REGIONS |= {"few_long": (Count({"rows": 1}, max=_FEW_ROWS),)}
_REGIONS |= {f"to_{_hold(t)}": (Count({"columns": 1}, max=_hold(t)),) for t in _TEAM_SHARES}
_REGIONS |= {"long": ()}


# Columns are counted in 31 bits, of which the last chunk of a row may go beyond what there is.
_MOST = 2**31 - 2**17


def _serve(max_columns: int = _MOST) -> tuple[Count, ...]:
    return (Count({"rows": 1}, max=2**31 - 1), Count({"columns": 1}, max=max_columns))


# Shorter rows have no work for a cluster.
_LEAST_SHARED = 512
# Elements of 16 bits of the longest row of which a multiprocessor's shared memory holds two.
_MOST_KEPT = 55 * 1024
# ... where nothing else is there; and of the shortest that is worth it: registers hold others.
_MOST_STAGED, _LEAST_STAGED = 56 * 1024, 4096
# Columns times rows of a block of rows_in_run.
_RUN_ELEMS = 128 * 128

KERNELS = (
    Kernel(
        "naive",
        "a thread per row, a pass for each of mean, variance and result",
        (THREADS,),
        (),
        ({"threads": 64},),
        domain=lambda t: _serve(),
        tile=lambda t: {"rows": t["threads"]},
    ),
    Kernel(
        "block_passes",
        "a block per row, 16 bytes an access",
        (THREADS,),
        (),
        ({"threads": 512},),
        domain=lambda t: _serve(),
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "cluster_passes",
        "a cluster of 8 blocks per row, for rows that are long and few",
        (CLUSTER_THREADS,),
        (),
        ({"threads": 256}, {"threads": 1024}),
        domain=lambda t: (Count({"rows": 1}, max=2**20), Count({"columns": 1}, _LEAST_SHARED, _MOST)),
        tile=lambda t: {"rows": 1},
        min_arch=90,
    ),
    Kernel(
        "row_in_registers",
        "a group of threads keeps its row in registers, which is read once; several short rows per block",
        (GROUP, ROWS, ELEMS),
        (BLOCK_FITS, ONE_ROW_BEYOND_WARP),
        (*_LONG_SHARES, *_SHORT_SHARES, *_FEW_SHARES, *_SHARES),
        max_spill_bytes=16,  # the compiler keeps a word or two in memory rather than take a step of registers more
        domain=lambda t: _serve(t["threads"] * t["elems"]),
        tile=lambda t: {"rows": t["rows"]},
    ),
    Kernel(
        "rows_together",
        "as row_in_registers, with several rows of whole packs per group, which are all read before the first is looked at",
        (LANES, ROWS, ELEMS, TOGETHER),
        (BLOCK_FITS,),
        _TOGETHER_SHARES,
        domain=lambda t: _serve(t["threads"] * t["elems"]),
        tile=lambda t: {"rows": t["rows"] * t["together"]},
    ),
    Kernel(
        "row_in_words",
        "as row_in_registers, of rows that begin anywhere by words of 4 bytes, which lanes access side by side; several of fp32 per warp",
        (WORD_LANES, ROWS, ELEMS),
        (BLOCK_FITS,),
        _WORD_SHARES,
        domain=lambda t: _serve(t["threads"] * t["elems"]),
        tile=lambda t: {"rows": t["rows"]},
    ),
    Kernel(
        "rows_in_run",
        "a thread per row, in shared memory, where a block's rows without whole packs are brought as one run, small gaps included",
        (RUN_THREADS, RUN_ROWS),
        (),
        _RUN_SHARES,
        domain=lambda t: _serve(_RUN_ELEMS // t["rows"]),
        tile=lambda t: {"rows": t["rows"]},
    ),
    Kernel(
        "row_in_shared",
        "a block per row, which is brought to shared memory, so that several of a multiprocessor are on their way at once",
        (THREADS,),
        (),
        ({"threads": 256},),
        domain=lambda t: _serve(_MOST_KEPT),
        tile=lambda t: {"rows": 1},
    ),
    Kernel(
        "rows_in_stages",
        "a block takes long rows in turn, of which the next are brought to shared memory, where the vectors are, while one is worked on",
        (THREADS,),
        (STAGED_FITS,),
        ({"threads": 512}, {"threads": 1024}),
        domain=lambda t: (Count({"rows": 1}, max=2**31 - 1), Count({"columns": 1}, _LEAST_STAGED, _MOST_STAGED)),
        tile=lambda t: {"rows": 1},
        min_arch=90,
    ),
    Kernel(
        "row_in_team",
        "as row_in_registers, of a cluster of blocks per row: rows that are longer than the registers of one hold",
        (TEAM_THREADS, TEAM, ELEMS),
        (TEAM_FITS,),
        _TEAM_SHARES,
        max_spill_bytes=16,
        domain=lambda t: (Count({"rows": 1}, max=2**20), Count({"columns": 1}, _LEAST_SHARED, _hold(t))),
        tile=lambda t: {"rows": 1},
        min_arch=90,
    ),
)


def _find_share(problem: Problem) -> tuple[Mapping[str, int], str] | None:
    """Return the tunables of row_in_registers and why these, None where no registers hold a row."""
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    shares = [s for s in _SHARES if columns <= s["threads"] * s["elems"]]
    if ITEM_BYTES[_find_dtype(problem)] == 2 and columns >= _LEAST_LONG:
        longer = [s for s in _LONG_SHARES if columns <= s["threads"] * s["elems"]]
        if longer and rows * longer[0]["threads"] >= _TWO_WAVES:
            return longer[0], f"the registers of {longer[0]['threads']} threads hold a row, and rows are many"
    if not shares:
        return None
    wide = next((s for s in shares if s["threads"] > WARP), None)
    if wide and shares[0]["threads"] == WARP and rows * WARP < _HALF_WAVE:
        return wide, f"rows are few: {wide['threads']} threads take each"
    return shares[0], f"the registers of {shares[0]['threads']} threads hold a row"


def _find_team(problem: Problem) -> Mapping[str, int] | None:
    """Return the team that holds a row, of few rows one of many blocks; None where none does."""
    teams = [t for t in _TEAM_SHARES if problem.sizes["columns"] <= _hold(t)]
    wide = [t for t in teams if t["team"] == _WIDEST] if problem.sizes["rows"] <= _FEW_ROWS else []
    return next(iter(wide or teams), None)


def choose(problem: Problem) -> Choice:
    """Return the variant that keeps a row in the registers of as few threads as hold it, or reads long rows again."""
    found = _find_share(problem)
    if found is not None:
        return Choice(next(k for k in KERNELS if k.name == "row_in_registers").bind(found[0]), found[1])
    if team := _find_team(problem):
        return Choice(next(k for k in KERNELS if k.name == "row_in_team").bind(team), f"the registers of {team['team']} blocks hold a row")
    if problem.sizes["rows"] <= _FEWER_THAN_SMS:
        return Choice(KERNELS[2].bind({"threads": 256}), "few rows, longer than registers hold")
    return Choice(KERNELS[1].bind({"threads": 512}), "a row is longer than registers hold")


def _problem(suite: str, rows: int, columns: int, dtype: str = "float32", flags: str = "bias statistics", **padding: int) -> Problem:
    attributes = {f"with_{name}": name in flags for name in ("residual", "bias", "statistics")}
    return Problem({"rows": rows, "columns": columns}, {"dtype": dtype, **attributes}, padding, frozenset(suite.split()))


PROBLEMS = (
    _problem("verify", 1, 1),
    _problem("verify", 130, 2, "bfloat16"),
    _problem("verify", 1, 33, flags=""),
    _problem("verify", 35, 64, "float16", "bias residual statistics"),
    _problem("verify", 9, 100, flags="bias residual"),
    _problem("verify", 5, 1023, "float16"),
    _problem("verify", 3, 1024, "bfloat16", "residual statistics", x=8, residual=16, sum=8, y=8),
    _problem("verify", 6, 301, "float32", "bias residual statistics", x=3, sum=1),
    _problem("verify", 2, 5003, "bfloat16"),
    # Rows of every matrix that begin at different places behind a boundary.
    _problem("verify", 9, 232, "bfloat16", "bias residual statistics", x=1, residual=3, sum=5, y=2),
    _problem("verify", 9, 1501, "float16", x=3, y=8),
    _problem("verify", 7, 489, "float16", "bias residual statistics"),
    _problem("verify", 67, 3, "bfloat16", "residual statistics", x=1, sum=2),
    # More short rows than a block takes, in runs of memory, with gaps and without.
    _problem("verify", 601, 10, "bfloat16"),
    _problem("verify", 530, 28, "bfloat16", "bias residual statistics", x=8, y=3),
    _problem("verify", 133, 23, "float16", "residual", x=1, residual=2, y=8),
    _problem("verify", 140, 19, flags="bias residual statistics", y=3),
    _problem("verify", 2, 16000, "float16", "bias residual statistics"),
    _problem("verify", 3, 4096, "float16", "bias residual statistics", x=8),
    _problem("verify", 2, 9001, flags="bias statistics", y=3),
    _problem("emulated", 256, 1024),
    _problem("emulated", 32, 8192, "bfloat16", "bias residual statistics"),
    # One of each region.
    _problem("bench", 400000, 7, "float16", "bias residual statistics", x=1, y=1),
    _problem("bench", 150000, 24, "bfloat16", ""),
    _problem("bench sweep", 262144, 64),
    _problem("bench", 262144, 128, "float16"),
    _problem("bench", 100000, 168, "float16", "bias residual statistics"),
    _problem("bench", 40000, 416, "bfloat16", ""),
    _problem("bench", 128, 768, "bfloat16", "bias residual statistics"),
    _problem("bench", 256, 1600, "float16"),
    _problem("bench", 90, 3600, "float16", x=1, y=3),
    _problem("bench", 128, 7168, "bfloat16", ""),
    _problem("bench", 200, 12000, "float32", "bias residual statistics"),
    _problem("bench", 16384, 1024, "bfloat16", "bias residual statistics"),
    _problem("bench", 8192, 2048, "float16"),
    _problem("bench sweep", 8192, 4096, "bfloat16"),
    _problem("bench", 4096, 7168, "float16"),
    _problem("bench", 4096, 12288, "bfloat16", ""),
    _problem("bench", 16, 100000, "bfloat16", ""),
    _problem("bench", 2000, 30000, "float16"),
    _problem("bench", 1024, 50257),
    _problem("bench", 600, 100000, "bfloat16", ""),
    _problem("bench", 300, 200000, "float16"),
    _problem("bench", 200, 300000),
    _problem("sweep", 8192, 1024),
)

OP = Op(
    name="layernorm",
    summary="layer normalisation of rows, with an addition in front",
    tensors=(
        Tensor("x", ("rows", "columns"), Role.INPUT, _find_dtype, can_pad_rows=True),
        Tensor("residual", ("rows", "columns"), Role.INPUT, _find_dtype, present=lambda p: _has(p, "with_residual"), can_pad_rows=True),
        Tensor("weight", ("columns",), Role.INPUT, _find_dtype),
        Tensor("bias", ("columns",), Role.INPUT, _find_dtype, present=lambda p: _has(p, "with_bias")),
        Tensor("y", ("rows", "columns"), Role.OUTPUT, _find_dtype, can_pad_rows=True),
        Tensor("sum", ("rows", "columns"), Role.OUTPUT, _find_dtype, present=lambda p: _has(p, "with_residual"), can_pad_rows=True),
        Tensor("mean", ("rows",), Role.OUTPUT, present=lambda p: _has(p, "with_statistics")),
        Tensor("rstd", ("rows",), Role.OUTPUT, present=lambda p: _has(p, "with_statistics")),
    ),
    attributes=(
        Attribute("dtype", FLOATS, "float32", passed=False),
        Attribute("with_residual", (False, True), False, passed=False),
        Attribute("with_bias", (True, False), True, passed=False),
        Attribute("with_statistics", (False, True), False, passed=False),
    ),
    scalars=(EPS,),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    choose=choose,
    sampling=Sampling((0,), restrict),
    accumulate="float32",
    distributions=(
        "normal",
        "uniform",
        "ties",
        "denormal",
        "largest_first",
        "largest_last",
        "largest_middle",
        "largest_anywhere",
        "one_differs",
        "shifted",
    ),
    population=POPULATION,
    axes=(Axis("region", _REGIONS),),
)
