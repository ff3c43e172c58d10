"""embedding_backward: rows added into a table by index, in fp32 and in an order that is always the same."""

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
    Facts,
    Indices,
    Kernel,
    Op,
    Problem,
    Role,
    Sampling,
    Tensor,
    Tunable,
    Uniform,
)
from harness.spec.bounds import add_rounding, bound_sum

from .population import FLOATS, INDICES, POPULATION

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4}
# What a caller may have got wrong, in either dtype, and what is a right one in 32 bits.
WRONG_INDICES = (-1, -(2**31), 2**31 - 1)
WRONG_IN_64_BITS = 2**32
# Where a sample of the table's rows is judged: which they are, of how many, and which rows of dy are left.
TABLE_ROWS, NUM_ROWS, ROW_NUMBERS = "table_rows", "num_rows", "row_numbers"

Values = NDArray[np.float64]


def _get(problem: Problem, name: str) -> str:
    return str(problem.attributes.get(name, {"dtype": "float32", "index_dtype": "int64"}[name]))


def _has_status(problem: Problem) -> bool:
    return bool(problem.attributes.get("with_status", True))


def _find_values(problem: Problem) -> Indices:
    """Return what indices may be: without a status word a wrong one ends the launch."""
    wide = (WRONG_IN_64_BITS,) if _get(problem, "index_dtype") == "int64" else ()
    return Indices("vocabulary", wrong=(*WRONG_INDICES, *wide) if _has_status(problem) else ())


def _find_right(inputs: Arrays, problem: Problem) -> NDArray[np.bool_]:
    """Return which indices have a row of the table."""
    indices = np.asarray(inputs["indices"], np.int64)
    return np.asarray((indices >= 0) & (indices < int(inputs.get(NUM_ROWS, np.asarray(problem.sizes["vocabulary"])))))


def _add_rows(dy: Values, inputs: Arrays, problem: Problem) -> Values:
    """Return rows added up by index; wrong indices have no row."""
    indices, is_added = np.asarray(inputs["indices"], np.int64), _find_right(inputs, problem)
    if TABLE_ROWS in inputs:
        rows, numbers = inputs[TABLE_ROWS], inputs[ROW_NUMBERS]
        indices = indices[numbers]
        is_added = is_added[numbers] & np.isin(indices, rows)
        indices = np.searchsorted(rows, indices)
    table = np.zeros((problem.sizes["vocabulary"], problem.sizes["width"]))
    np.add.at(table, indices[is_added], dy[is_added])
    return table


def reference(inputs: Arrays, problem: Problem) -> dict[str, Values]:
    """Return the table's gradient, and the status with wrong indices counted."""
    results = {"dtable": _add_rows(np.asarray(inputs["dy"], np.float64), inputs, problem)}
    if _has_status(problem):
        num_wrong = (~_find_right(inputs, problem)).sum()
        results["status"] = np.asarray(inputs["status"], np.float64) + np.float64(num_wrong)
    return results


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, Values]:
    """Return the bound of sums in any order, of as many terms as the longest has; counts are exact."""
    indices = np.asarray(inputs["indices"], np.int64)
    magnitudes = _add_rows(np.abs(np.asarray(inputs["dy"], np.float64)), inputs, problem)
    longest = int(np.unique(indices, return_counts=True)[1].max())
    error = np.where(magnitudes > 0.0, bound_sum(magnitudes, longest, magnitudes.size), 0.0)
    bounds = {"dtable": np.where(magnitudes > 0.0, add_rounding(error, outputs["dtable"], _get(problem, "dtype")), 0.0)}
    return bounds | ({"status": np.zeros(())} if _has_status(problem) else {})


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the table's rows at ``places``: the rows of dy that are added to them, one at least, and all indices."""
    numbers = np.flatnonzero(np.isin(np.asarray(inputs["indices"], np.int64), places))
    numbers = numbers if len(numbers) else np.zeros(1, np.intp)
    extras = {TABLE_ROWS: np.asarray(places), NUM_ROWS: np.asarray(problem.sizes["vocabulary"]), ROW_NUMBERS: numbers}
    sizes = dict(problem.sizes) | {"count": len(numbers), "vocabulary": len(places)}
    return dict(inputs) | {"dy": inputs["dy"][numbers]} | extras, replace(problem, sizes=sizes)


def cost(problem: Problem) -> Cost:
    """Return an addition per element, with dy and indices read once and the table written once."""
    count, width, item = problem.sizes["count"], problem.sizes["width"], ITEM_BYTES[_get(problem, "dtype")]
    read = float(item * count * width + ITEM_BYTES[_get(problem, "index_dtype")] * count)
    return Cost(flops=1.0 * count * width, bytes_read=read, bytes_written=float(item * problem.sizes["vocabulary"] * width))


THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
GROUP = Tunable("threads", (2, 4, 8, 16, 32, 64, 128, 256, 512), "threads that take a row of the table")
ROWS = Tunable("rows", (1, 2, 4, 8, 16, 32, 64), "rows, and so groups of threads, of a block")
CHUNK = Tunable("chunk", (16, 32, 64, 128, 256), "sorted places that are added up ahead where one row of the table has them all")
TABLE_THREADS = Tunable("threads", (128, 256, 512), "threads of a block, each of which owns a column of a table in shared memory")
BLOCKS = Tunable("blocks", (132, 264, 528), "blocks, and so tables, that the indices are shared out to, at most")
DIRECT_THREADS = Tunable("threads", (128, 256, 512), "threads of a block")
TILE_GROUP = Tunable("threads", (2, 4, 8, 16, 32), "threads that take the columns of a tile, 16 bytes each")
TILE_GROUPS = Tunable("rows", (8, 16, 32, 64, 128, 256), "groups of threads of a block")
TILES = Tunable("blocks", (132, 264, 528), "tiles of the table, at least, where it has so many rows")
BLOCK_FITS = Constraint(
    "block_fits",
    "threads * rows must be whole warps, at most 1024",
    lambda t: t["threads"] * t["rows"] % 32 == 0 and t["threads"] * t["rows"] <= 1024,
)
ONE_ROW_BEYOND_WARP = Constraint(
    "one_row_beyond_warp", "a group of more than a warp is a whole block: rows = 1", lambda t: t["threads"] <= 32 or t["rows"] == 1
)
TILE_BLOCK_FITS = Constraint(
    "tile_block_fits", "threads * rows must be from 256 to 1024", lambda t: 256 <= t["threads"] * t["rows"] <= 1024
)
INTEGER_THREADS = Tunable("threads", (256, 512, 1024), "threads of a block")
INTEGER_BLOCKS = Tunable("blocks", (132, 264, 528), "tiles of the table, at least, where it has so many rows")
# Places and keys are counted in 32 bits, of which a last block may go beyond what there is.
_MOST = 2**31 - 2**16


# Rows of a table by the threads of a block that have a column of it each in 96 KiB.
_TABLE_ROWS = {512: 48, 256: 96, 128: 192}
_MOST_DIRECT = 2048
_MOST_ROWS = 1023 * 4096  # of as many buckets
_MOST_INTEGER_WIDTH = 64
_MOST_SUMS = 1023 * (8192 - _MOST_INTEGER_WIDTH)  # a bucket's rows are whole


def _serve() -> tuple[Count, ...]:
    return (Count({"count": 1}, max=_MOST), Count({"vocabulary": 1}, max=_MOST), Count({"width": 1}, max=2**32))


def _serve_keys() -> tuple[Count, ...]:
    """Return what keys of 32 bits allow, which hold a place in 20 bits."""
    return (Count({"count": 1}, max=2**20), Count({"vocabulary": 1}, max=_MOST), Count({"width": 1}, max=2**30))


def _serve_sums() -> tuple[Count, ...]:
    """Return what buckets and a tile's sums allow, of rows up to _MOST_INTEGER_WIDTH."""
    return (*_serve_keys(), Count({"vocabulary": 1}, max=_MOST_ROWS), Count({"vocabulary": 1, "width": 1}, max=_MOST_SUMS))


KERNELS = (
    Kernel(
        "naive",
        "a thread per element of the table looks at every index",
        (THREADS,),
        (),
        ({"threads": 256},),
        domain=lambda t: (*_serve(), Count({"vocabulary": 1, "width": 1}, max=2**36)),
    ),
    Kernel(
        "segments",
        "indices are sorted with their places; a group of threads per row of the table adds up its segment",
        (GROUP, ROWS, CHUNK),
        (BLOCK_FITS, ONE_ROW_BEYOND_WARP),
        (
            {"threads": 8, "rows": 32, "chunk": 32},
            {"threads": 32, "rows": 8, "chunk": 64},
            {"threads": 128, "rows": 1, "chunk": 64},
            {"threads": 512, "rows": 1, "chunk": 64},
        ),
        max_spill_bytes=32,  # of the sort, which wants two or three more than the 64 registers that a thread of 1024 has
        domain=lambda t: _serve(),
        tile=lambda t: {"vocabulary": t["rows"]},
    ),
    Kernel(
        "tables",
        "tables of few rows are added up in shared memory, by slabs of indices",
        (TABLE_THREADS, BLOCKS),
        (),
        tuple({"threads": threads, "blocks": 264} for threads in _TABLE_ROWS),
        domain=lambda t: (
            Count({"count": 1}, max=_MOST),
            Count({"vocabulary": 1}, max=_TABLE_ROWS[t["threads"]]),
            Count({"width": 1}, max=2**22),
        ),
    ),
    Kernel(
        "direct",
        "few indices: a block picks out those that point to its rows of the table",
        (DIRECT_THREADS,),
        (),
        ({"threads": 256},),
        domain=lambda t: (Count({"count": 1}, max=_MOST_DIRECT), Count({"vocabulary": 1}, max=_MOST), Count({"width": 1}, max=2**30)),
    ),
    Kernel(
        "tiles",
        "a block per tile of the table looks through all indices and sorts those that point to its rows",
        (TILE_GROUP, TILE_GROUPS, TILES),
        (TILE_BLOCK_FITS,),
        (
            {"threads": 8, "rows": 64, "blocks": 264},
            {"threads": 32, "rows": 16, "blocks": 264},
            {"threads": 8, "rows": 128, "blocks": 132},
            {"threads": 32, "rows": 32, "blocks": 132},
        ),
        # What a block is is put away while it adds up, in a few registers for each way of access; two blocks' threads have 64 each.
        max_spill_bytes=512,
        domain=lambda t: _serve_keys(),
    ),
    Kernel(
        "buckets",
        "tiles, whose keys a launch ahead has put in order of tiles: indices are looked through once",
        (TILE_GROUP, TILE_GROUPS, TILES),
        (TILE_BLOCK_FITS,),
        (
            {"threads": 8, "rows": 64, "blocks": 264},
            {"threads": 32, "rows": 16, "blocks": 264},
            {"threads": 8, "rows": 128, "blocks": 132},
            {"threads": 4, "rows": 128, "blocks": 264},
        ),
        max_spill_bytes=592,  # as in tiles
        domain=lambda t: (*_serve_keys(), Count({"vocabulary": 1}, max=_MOST_ROWS)),
    ),
    Kernel(
        "integers",
        "narrow rows: keys as in buckets, and sums as integers in shared memory, which need no order",
        (INTEGER_THREADS, INTEGER_BLOCKS),
        (),
        ({"threads": 512, "blocks": 264}, {"threads": 256, "blocks": 528}, {"threads": 512, "blocks": 528}),
        domain=lambda t: (*_serve_sums(), Count({"width": 1}, max=_MOST_INTEGER_WIDTH)),
    ),
)


# Which variant is for which problems, the first that holds them: the classes of the axis `region`, from which `choose` takes the same.
# `tiles` looks through all indices once a block, which `buckets` saves by a launch ahead; both give a block to a row of the table at least,
# where `tables` shares out the indices. Of rows of up to 8 columns the sums need no sort.
_NAMED = {k.name: k for k in KERNELS}
_NARROW, _WIDE = {"threads": 8, "rows": 64, "blocks": 264}, {"threads": 32, "rows": 16, "blocks": 264}


def _few(count: int, vocabulary: int = 0, width: int = 0) -> tuple[Count, ...]:
    most = {"count": count, "vocabulary": vocabulary, "width": width}
    return tuple(Count({size: 1}, max=limit) for size, limit in most.items() if limit)


_TINY_TABLES = {rows: threads for threads, rows in _TABLE_ROWS.items() if threads != 256}

_CLASSES: dict[str, tuple[tuple[Count, ...], Kernel, Mapping[str, int]]] = {
    "small_narrow": (_few(8192, 264, 48), _NAMED["tiles"], _NARROW),
    "small_short": (_few(8192, 16), _NAMED["tiles"], _NARROW),
    "small": (_few(8192, 264), _NAMED["tiles"], _WIDE),
    "table_of_12": (_few(0, 12, 512), _NAMED["tables"], {"threads": 512, "blocks": 264}),
    # A block for each row of the table is too few of them, where indices are many.
    **{f"tiny_table_of_{n}": (_few(0, n, 8), _NAMED["tables"], {"threads": t, "blocks": 264}) for n, t in _TINY_TABLES.items()},
    "tiny_rows": ((*_serve_sums(), *_few(0, 0, 8)), _NAMED["integers"], {"threads": 512, "blocks": 264}),
    "short_table": (_few(1 << 17, 192, 384), _NAMED["tiles"], _NARROW),
    "short_broad_table": (_few(1 << 17, 192), _NAMED["tiles"], _WIDE),
    **{f"table_of_{rows}": (_few(0, rows), _NAMED["tables"], {"threads": t, "blocks": 264}) for t, rows in _TABLE_ROWS.items()},
    "narrow": (_few(1 << 15, 0, 48), _NAMED["tiles"], _NARROW),
    "broad": (_few(1 << 15), _NAMED["tiles"], _WIDE),
    "many_narrow": (_few(1 << 20, _MOST_ROWS, 128), _NAMED["buckets"], _NARROW),
    "many_broad": (_few(1 << 20, _MOST_ROWS), _NAMED["buckets"], _WIDE),
    "sorted_narrow": (_few(0, 0, 96), _NAMED["segments"], {"threads": 8, "rows": 32, "chunk": 32}),
    "sorted_broad": ((), _NAMED["segments"], {"threads": 128, "rows": 1, "chunk": 64}),
}
_REGION = Axis("region", {name: conditions for name, (conditions, _, _) in _CLASSES.items()})


def choose(problem: Problem) -> Choice:
    """Return the variant of the first class that holds the problem."""
    name = _REGION.find_class(Facts(problem.sizes, {}))
    assert name is not None  # the last class holds all
    _, kernel, bound = _CLASSES[name]
    return Choice(kernel.bind(bound), f"{name.replace('_', ' ')}: {kernel.idea}")


def _problem(suite: str, count: int, vocabulary: int, width: int, dtype: str = "float32", index: str = "int64", **padding: int) -> Problem:
    attributes = {"dtype": dtype, "index_dtype": index, "with_status": index == "int32" or dtype == "bfloat16"}
    return Problem({"count": count, "vocabulary": vocabulary, "width": width}, attributes, padding, frozenset(suite.split()))


PROBLEMS = (
    _problem("verify", 1, 1, 1),
    _problem("verify", 9, 30, 7, "bfloat16"),
    _problem("verify", 300, 2, 33, "float32", "int32", dy=3),
    _problem("verify", 77, 1000, 12, "float16"),
    _problem("verify", 40, 17, 1024, "bfloat16", "int32"),
    _problem("verify", 333, 50, 36, "float32", "int32", dy=4, dtable=8),
    _problem("verify", 700, 5, 67, "float16", "int32", dtable=1),
    _problem("verify", 5000, 300, 8, "bfloat16", dy=8),
    _problem("verify", 3000, 48, 700, "bfloat16"),
    _problem("verify", 2048, 97, 70, "float16", dy=1),
    _problem("verify", 900, 190, 130),
    _problem("verify", 4500, 700, 3, "bfloat16", "int32", dy=1),
    _problem("verify", 6000, 20, 7, dtable=1),
    _problem("emulated", 1024, 4096, 128, "bfloat16"),
    _problem("bench sweep", 16384, 50257, 768, "bfloat16"),
    _problem("bench sweep", 65536, 128256, 4096, "bfloat16"),
    _problem("bench", 8192, 32000, 4096),
    _problem("bench sweep", 1 << 20, 1 << 20, 32),
    _problem("bench", 1 << 20, 64, 256, "float16"),
    _problem("bench", 4096, 151936, 8192, "float16", "int32"),
    # One of each region that is not among those.
    _problem("bench", 300000, 40, 64, "float16"),
    _problem("bench", 100000, 80, 200),
    _problem("bench", 50000, 150, 30, "bfloat16"),
    _problem("bench", 200000, 150, 30, "bfloat16"),
    _problem("bench", 60000, 8, 400, "bfloat16"),
    _problem("bench", 20000, 60, 1500, "bfloat16", "int32", dy=1),
    _problem("bench", 5000, 200, 24),
    _problem("bench", 1500, 100, 3000),
    _problem("bench", 1500, 4, 3000, "bfloat16"),
    _problem("bench", 1000, 100000, 64, "bfloat16"),
    _problem("bench", 130000, 240000, 2, "bfloat16", dy=1),
    _problem("bench", 30000, 2500, 5),
    _problem("bench", 430000, 30, 3, "float16", dy=1),
    _problem("bench", 300000, 150, 5),
    _problem("bench", 100000, 290000, 20),
    _problem("bench", 20000, 40000, 40),
    _problem("bench", 20000, 50257, 384),
    _problem("bench", 300000, 40000, 256, "bfloat16"),
    _problem("bench", 1050000, 100000, 32),
    _problem("bench", 200000, 50000, 1024, "float16"),
    _problem("bench", 1060000, 20000, 300, "bfloat16"),
)

OP = Op(
    name="embedding_backward",
    summary="gradient of an embedding by its table",
    tensors=(
        Tensor("dy", ("count", "width"), Role.INPUT, lambda p: _get(p, "dtype"), can_pad_rows=True),
        Tensor("indices", ("count",), Role.INPUT, lambda p: _get(p, "index_dtype"), values=_find_values),
        Tensor("dtable", ("vocabulary", "width"), Role.OUTPUT, lambda p: _get(p, "dtype"), can_pad_rows=True),
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
    accumulate="float32",
    distributions=("normal", "ties", "wide", "denormal"),
    population=POPULATION,
    axes=(_REGION,),
)
