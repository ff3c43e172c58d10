"""embedding: rows of a table by index, with wrong indices counted."""

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
    Indices,
    Kernel,
    Op,
    Problem,
    Role,
    Rows,
    Sampling,
    Tensor,
    Tunable,
    Uniform,
)

from .population import FLOATS, INDICES, POPULATION

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4}
# What a caller may have got wrong, in either dtype, and what is a right one in 32 bits.
WRONG_INDICES = (-1, -(2**31), 2**31 - 1)
WRONG_IN_64_BITS = 2**32
# Where a sample of y's rows is judged: which they are, and which rows of the table are left.
ROW_NUMBERS, TABLE_ROWS = "row_numbers", "table_rows"


def _get(problem: Problem, name: str) -> str:
    return str(problem.attributes.get(name, {"dtype": "float32", "index_dtype": "int64"}[name]))


def _has_status(problem: Problem) -> bool:
    return bool(problem.attributes.get("with_status", True))


def _find_values(problem: Problem) -> Indices:
    """Return what indices may be: without a status word a wrong one ends the launch."""
    wide = (WRONG_IN_64_BITS,) if _get(problem, "index_dtype") == "int64" else ()
    return Indices("vocabulary", wrong=(*WRONG_INDICES, *wide) if _has_status(problem) else ())


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the rows, NaN for a wrong index, and the status with wrong indices counted."""
    indices, table = np.asarray(inputs["indices"], np.int64), np.asarray(inputs["table"], np.float64)
    is_right = (indices >= 0) & (indices < problem.sizes["vocabulary"])
    chosen, is_known = (each[inputs[ROW_NUMBERS]] if ROW_NUMBERS in inputs else each for each in (indices, is_right))
    rows = np.searchsorted(inputs[TABLE_ROWS], chosen) if TABLE_ROWS in inputs else chosen
    results = {"y": np.where(is_known[:, np.newaxis], table[np.where(is_known, rows, 0)], np.nan)}
    if _has_status(problem):
        results["status"] = np.asarray(inputs["status"], np.float64) + np.float64((~is_right).sum())
    return results


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return zero: elements are moved, and counted in integers."""
    return {name: np.zeros_like(values, np.float64) for name, values in outputs.items()}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows of y at ``places``: the rows of the table that they are, and all indices, which are counted."""
    wanted = np.asarray(inputs["indices"][places], np.int64)
    rows = np.unique(np.append(wanted[(wanted >= 0) & (wanted < problem.sizes["vocabulary"])], 0))
    taken = dict(inputs) | {"table": inputs["table"][rows], ROW_NUMBERS: np.asarray(places), TABLE_ROWS: rows}
    return taken, replace(problem, sizes=dict(problem.sizes) | {"count": len(places)})


def cost(problem: Problem) -> Cost:
    """Return no flops, with indices and their rows read once, as far as none comes twice, and y written once."""
    count, width, item = problem.sizes["count"], problem.sizes["width"], ITEM_BYTES[_get(problem, "dtype")]
    index_bytes = ITEM_BYTES[_get(problem, "index_dtype")] * count
    moved = float(item * count * width)
    return Cost(flops=0.0, bytes_read=moved + index_bytes, bytes_written=moved)


THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
GROUP = Tunable("threads", (2, 4, 8, 16, 32, 64, 128, 256, 512), "threads that take a row")
ROWS = Tunable("rows", (1, 2, 4, 8, 16, 32, 64), "rows, and so groups of threads, of a block")
ITEMS = Tunable("items", (1, 2, 4, 8), "accesses that a thread has under way")
BLOCK_FITS = Constraint(
    "block_fits",
    "threads * rows must be whole warps, at most 1024",
    lambda t: t["threads"] * t["rows"] % 32 == 0 and t["threads"] * t["rows"] <= 1024,
)
ONE_ROW_BEYOND_WARP = Constraint(
    "one_row_beyond_warp", "a group of more than a warp is a whole block: rows = 1", lambda t: t["threads"] <= 32 or t["rows"] == 1
)


def _serve(**most: int) -> tuple[Count, ...]:
    sizes = {"count": 2**31 - 1, "vocabulary": 2**40, "width": 2**40} | most
    return tuple(Count({name: 1}, max=size) for name, size in sizes.items())


KERNELS = (
    Kernel(
        "naive",
        "a thread per element",
        (THREADS,),
        (),
        ({"threads": 256},),
        domain=lambda t: (*_serve(), Count({"count": 1, "width": 1}, max=2**36)),
    ),
    Kernel(
        "row_groups",
        "a group of threads per row, which reads its index once; 16 bytes an access, 4 in flight",
        (GROUP, ROWS),
        (BLOCK_FITS, ONE_ROW_BEYOND_WARP),
        ({"threads": 8, "rows": 16}, {"threads": 32, "rows": 4}, {"threads": 128, "rows": 1}, {"threads": 512, "rows": 1}),
        domain=lambda t: _serve(),
        tile=lambda t: {"count": t["rows"]},
    ),
    Kernel(
        "flat",
        "accesses are numbered across rows, as wide as rows allow, or across the ends of narrow ones; a thread has several under way",
        (THREADS, ITEMS),
        (),
        ({"threads": 128, "items": 1}, {"threads": 256, "items": 1}, {"threads": 256, "items": 2}, {"threads": 256, "items": 4}),
        domain=lambda t: (*_serve(), Count({"count": 1, "width": 1}, max=2**36)),
    ),
)
# Of this size are the problems of the class `whole_small`.
_FEW_ELEMS = 2**20
# Rows of so many elements have no work for a warp where each is an access of its own.
_NARROW = 64
# Packs of 16 bytes, of 16-bit elements and of fp32 alike.
_PACK = 8
_HAS_PACKS = (Count({"width": 1}, multiple=_PACK), Rows("table", 16, _PACK), Rows("y", 16, _PACK))
# Threads that 132 multiprocessors hold.
_WAVE = 132 * 2048
# So many elements in rows that begin anywhere have a thread each.
_FEW_LOOSE = 2 * _WAVE
# A warp has work for a row of so many packs.
_WARP_PACKS = 64


def choose(problem: Problem) -> Choice:
    """Return a group of threads per row where rows are long and many, or narrow with gaps between them; else accesses across rows."""
    groups, flat = KERNELS[1:3]
    count, width = problem.sizes["count"], problem.sizes["width"]
    if not OP.meets(_HAS_PACKS, problem):
        if count * width <= _FEW_LOOSE:
            return Choice(flat.bind({"threads": 128, "items": 1}), "all elements fit two waves of threads")
        if width <= _NARROW and not problem.padding.get("y", 0):
            return Choice(flat.bind({"threads": 256, "items": 2}), "narrow rows are stored by 16 bytes across their ends")
        threads = 8 if width <= _NARROW else 32
        return Choice(groups.bind({"threads": threads, "rows": 128 // threads}), "rows begin anywhere: an index is read once for a row")
    row_packs = width * ITEM_BYTES[_get(problem, "dtype")] // 16
    waves = count * row_packs / _WAVE
    if waves <= 2:
        return Choice(flat.bind({"threads": 128, "items": 1}), "all accesses fit two waves of threads")
    if row_packs >= _WARP_PACKS:
        return Choice(groups.bind({"threads": 32, "rows": 4}), "a row has several accesses for each lane of a warp")
    return Choice(flat.bind({"threads": 256, "items": 2}), f"{waves:.0f} waves of threads have an access each")


def _problem(suite: str, count: int, vocabulary: int, width: int, dtype: str = "float32", index: str = "int64", **padding: int) -> Problem:
    attributes = {"dtype": dtype, "index_dtype": index, "with_status": index == "int32" or dtype == "bfloat16"}
    return Problem({"count": count, "vocabulary": vocabulary, "width": width}, attributes, padding, frozenset(suite.split()))


PROBLEMS = (
    _problem("verify", 1, 1, 1),
    _problem("verify", 9, 3, 7, "bfloat16"),
    _problem("verify", 130, 65, 33, "float32", "int32", y=3),
    _problem("verify", 77, 1000, 64, "float16"),
    _problem("verify", 40, 17, 1024, "bfloat16", "int32"),
    _problem("verify", 33, 50, 132, "float32", "int32", table=4, y=8),
    _problem("verify", 12, 5, 2051, "float16", "int32", table=1),
    _problem("verify", 700, 3, 5, "bfloat16", table=8),
    _problem("verify", 50, 20, 66),
    _problem("verify", 31, 9, 6, "float16"),
    # Narrow rows that fill y, stored by packs across their ends.
    _problem("verify", 1130, 7, 61),
    _problem("verify", 2300, 9, 31, "bfloat16", "int32", table=1),
    _problem("emulated", 1024, 4096, 512, "bfloat16"),
    _problem("bench sweep", 16384, 50257, 768, "bfloat16"),
    _problem("bench sweep", 65536, 128256, 4096, "bfloat16"),
    _problem("bench", 8192, 32000, 4096),
    _problem("bench sweep", 1 << 20, 1 << 20, 32),
    _problem("bench", 1 << 20, 1 << 20, 16, "float16"),
    _problem("bench", 4096, 151936, 8192, "float16", "int32"),
    _problem("bench", 1000, 50257, 768, "bfloat16"),
    _problem("bench", 400, 50257, 1024),
    _problem("bench", 1500, 128256, 512, "float16"),
    # Rows that begin anywhere.
    _problem("bench", 700, 4000, 389, "bfloat16", "int32", table=1),
    _problem("bench", 30000, 2000, 523, y=3),
    _problem("bench", 50000, 9000, 777, "bfloat16", "int32"),
    _problem("bench", 250000, 3000, 37, "float16", table=1),
    _problem("bench", 300000, 1000, 30, "bfloat16", table=8),
    _problem("bench", 60, 1000, 51, "bfloat16"),
    _problem("bench", 100000, 100000, 13),
)

OP = Op(
    name="embedding",
    summary="rows of a table by index",
    tensors=(
        Tensor("table", ("vocabulary", "width"), Role.INPUT, lambda p: _get(p, "dtype"), can_pad_rows=True),
        Tensor("indices", ("count",), Role.INPUT, lambda p: _get(p, "index_dtype"), values=_find_values),
        Tensor("y", ("count", "width"), Role.OUTPUT, lambda p: _get(p, "dtype"), can_pad_rows=True),
        Tensor("status", (), Role.INOUT, "int32", present=_has_status, values=Uniform(0, 1000)),
    ),
    attributes=(
        Attribute("dtype", FLOATS, "float32", passed=False),
        Attribute("index_dtype", INDICES, "int64", passed=False),
        Attribute("with_status", (True, False), True, passed=False),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0,), restrict),
    choose=choose,
    distributions=("normal", "ties", "nonfinite", "denormal"),
    population=POPULATION,
    axes=(
        Axis(
            "region",
            {
                "whole_small": (*_HAS_PACKS, Count({"count": 1, "width": 1}, max=_FEW_ELEMS)),
                "whole": _HAS_PACKS,
                "loose_small": (Count({"count": 1, "width": 1}, max=_FEW_LOOSE),),
                "loose_narrow": (Count({"width": 1}, max=_NARROW),),
                "loose": (),
            },
        ),
    ),
)
