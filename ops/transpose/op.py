"""transpose: ``Y[j, i] = X[i, j]``, fp32, any size and row stride."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Axis, Choice, Constraint, Cost, Count, Kernel, Op, Problem, Role, Rows, Sampling, Tensor, Tunable

from .population import POPULATION

Values = Mapping[str, int]

FLOAT_BYTES = 4
MAX_THREADS = 1024
WARP_SIZE = 32
MAX_STATIC_SHARED_BYTES = 48 * 1024
MAX_WIDTH = 128  # columns of a tall matrix, rows of a wide one
MAX_ROW_WIDTH = 8  # columns of rows that a thread takes whole
PATCH = 4  # rows and columns that a thread turns in registers


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the transpose of X in float64."""
    return {"y": np.ascontiguousarray(np.asarray(inputs["x"], dtype=np.float64).T)}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return zero: elements are moved, nothing is rounded."""
    return {"y": np.zeros((1, 1))}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the rows (axis 0) or columns (axis 1) of Y at ``places``."""
    taken = inputs["x"][:, places] if axis == 0 else inputs["x"][places]
    sizes = dict(problem.sizes) | {("columns", "rows")[axis]: len(places)}
    return {"x": taken}, Problem(sizes, problem.attributes, suites=problem.suites)


def cost(problem: Problem) -> Cost:
    """Return no flops, with X read and Y written once."""
    size_bytes = float(FLOAT_BYTES * problem.sizes["rows"] * problem.sizes["columns"])
    return Cost(flops=0.0, bytes_read=size_bytes, bytes_written=size_bytes)


def _count_elems(t: Values) -> int:
    return t["bm"] * t["bn"]


THREADS_PER_BLOCK = Constraint(
    "threads_per_block", "a block has at most 1024 threads: bm * bn <= 1024", lambda t: _count_elems(t) <= MAX_THREADS
)
WHOLE_WARPS = Constraint("whole_warps", "bm * bn threads must be whole warps", lambda t: _count_elems(t) % WARP_SIZE == 0)
EVEN_SHARE = Constraint(
    "even_share",
    "threads must divide bm * bn, and leave at most 64 elements to each",
    lambda t: _count_elems(t) % t["threads"] == 0 and _count_elems(t) // t["threads"] <= 64,
)
STATIC_SHARED = Constraint(
    "static_shared",
    "bm * (bn + pad) floats must fit 48 KiB",
    lambda t: FLOAT_BYTES * t["bm"] * (t["bn"] + t.get("pad", 0)) <= MAX_STATIC_SHARED_BYTES,
)
EVEN_PATCHES = Constraint(
    "even_patches",
    "threads must divide the bm * bn / 16 patches, and leave at most 4 to each",
    lambda t: _count_elems(t) // PATCH**2 % t["threads"] == 0 and _count_elems(t) // PATCH**2 // t["threads"] <= 4,
)

TILE_ROWS = Tunable("bm", (1, 2, 4, 8, 16, 32, 64, 128), "rows of X that a block turns")
TILE_COLUMNS = Tunable("bn", (8, 16, 32, 64, 128, 256), "columns of X that a block turns")
WIDE_COLUMNS = Tunable("bn", (32, 64, 128), "columns of X that a block turns; a multiple of the 32 banks")
VECTOR_ROWS = Tunable("bm", (32, 64, 128), "rows of X that a block turns; at least 8 float4")
THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
PAD = Tunable("pad", (0, 1), "floats added to a row of the tile in shared memory")
LANES = Tunable("lm", (1, 2, 4, 8, 16, 32), "lanes of a warp down X, 4 rows each; the others lie along X")
ITEMS = Tunable("items", (1, 2, 4), "4 x 4 patches that a thread turns, loaded before any is stored")

STRIP_TILES = Tunable("items", (1, 2, 4, 8, 16), "tiles, one below the other, that a block turns at most")
STRIP_ROWS = Tunable("bm", (32, 64, 128), "rows of X in a tile")
STRIP_COLUMNS = Tunable("bn", (32, 64, 128), "columns of X in a tile")
STRIP_THREADS = Tunable("threads", (128, 256, 512), "threads of a block")
SLAB_THREADS = Tunable("threads", (128, 256, 512), "threads of a block")
LEAN_SLAB_THREADS = Tunable("threads", (128, 256), "threads of a block")
LEAN_SLAB_ITEMS = Tunable("items", (8, 16), "elements of a slab for each thread at most")
LEAN_ROWS = Tunable("bm", (32, 64, 128), "rows of X that a block turns")
LEAN_COLUMNS = Tunable("bn", (32, 64, 128), "columns of X that a block turns")
LEAN_THREADS = Tunable("threads", (128, 256, 512), "threads of a block")
CUT = Tunable("cut", (0, 8, 32), "a block's parts of the rows of Y begin at multiples of so many elements: 8 are a sector, 32 a line")
STREAM = Tunable("stream", (0, 1), "whether elements that one block reads leave L2 before others")
ROW_THREADS = Tunable("threads", (128, 256), "threads of a block")
ROW_ITEMS = Tunable("items", (8, 16), "elements that a thread moves at most, unless a row has more")
SLAB_ITEMS = Tunable("items", (8, 16, 32), "elements that a thread moves, loaded before any is stored")
WHOLE_LINES = Constraint(
    "whole_lines",
    "threads must be whole rows and whole columns of a tile: multiples of bm and bn",
    lambda t: t["threads"] % t["bm"] == 0 and t["threads"] % t["bn"] == 0,
)
TWO_TILES_SHARED = Constraint(
    "two_tiles_shared",
    "two tiles of bm * bn floats must fit 96 KiB, so that two blocks run at once",
    lambda t: 2 * FLOAT_BYTES * _count_elems(t) <= 96 * 1024,
)
SLAB_SHARED = Constraint(
    "slab_shared",
    "threads * items must be from 4096 (32 places of 128 elements) to 8192 floats",
    lambda t: MAX_WIDTH * WARP_SIZE <= t["threads"] * t["items"] <= 2 * MAX_WIDTH * WARP_SIZE,
)
LEAN_LOADS = Constraint(
    "lean_loads",
    "at most 8 rows of X may be read at once, and 36 elements by a thread",
    lambda t: t["threads"] <= 8 * t["bn"] and _count_elems(t) <= 32 * t["threads"],
)

# The domains: what each kernel serves; `supports` is generated from them. Rows, columns and blocks are counted in 32 bits, and the last
# tile may end this far past the matrix.
_MAX_EXTENT = 2**31 - 1 - 8192
_MAX_GRID = 65535
_MAX_LEAN_STRIDE = 2**25  # elements


def _serve(tile_rows: int, tile_columns: int) -> tuple[Count | Rows, ...]:
    tiles = Count({"rows": tile_rows, "columns": tile_columns}, max=_MAX_EXTENT)
    return (Count({"rows": 1}, max=_MAX_EXTENT), Count({"columns": 1}, max=_MAX_EXTENT), tiles)


def _serve_vectors(tile_rows: int, tile_columns: int) -> tuple[Count | Rows, ...]:
    return (*_serve(tile_rows, tile_columns), Rows("x", 16, 4), Rows("y", 16, 4))


def _serve_slabs(short: str, long: str) -> tuple[Count | Rows, ...]:
    return (Count({short: 1}, max=MAX_WIDTH), Count({long: 1}, max=_MAX_EXTENT))


def _serve_lean(t: Values) -> tuple[Count | Rows, ...]:
    """Return the domain: an axis of the grid counts tiles down X, and 32 bits hold the step between a thread's rows."""
    tiles_down = Count({"rows": t["bm"]}, max=_MAX_GRID - 1)
    strides = (Rows(name, max_stride=_MAX_LEAN_STRIDE) for name in ("x", "y"))
    return (*_serve(t["bm"], t["bn"]), tiles_down, *strides)


def _find_tile(t: Values) -> Values:
    """Return the edges of a block's tile."""
    return {"rows": t["bm"], "columns": t["bn"]}


def _find_slab(long: str) -> Callable[[Values], Values]:
    """Return a function from tunables to edges that make as many steps as there are slabs, whose length depends on the short side."""
    short = "columns" if long == "rows" else "rows"
    return lambda t: {long: t["threads"] * t["items"], short: 1}


KERNELS = (
    Kernel(
        "naive",
        "a thread per element: lanes read along a row of X and write down a column of Y",
        (TILE_ROWS, TILE_COLUMNS),
        (THREADS_PER_BLOCK, WHOLE_WARPS),
        ({"bm": 8, "bn": 32}, {"bm": 32, "bn": 8}),
        domain=lambda t: _serve(t["bm"], t["bn"]),
        tile=_find_tile,
    ),
    Kernel(
        "tiled",
        "a block turns a tile in shared memory, so that reads and writes are whole sectors",
        (TILE_ROWS, TILE_COLUMNS, THREADS, PAD),
        (EVEN_SHARE, STATIC_SHARED),
        ({"bm": 32, "bn": 32, "threads": 256, "pad": 0}, {"bm": 32, "bn": 32, "threads": 256, "pad": 1}),
        domain=lambda t: _serve(t["bm"], t["bn"]),
        tile=_find_tile,
    ),
    Kernel(
        "swizzled",
        "the tile's columns are permuted by row: no bank conflicts, and no padding",
        (TILE_ROWS, WIDE_COLUMNS, THREADS),
        (EVEN_SHARE, STATIC_SHARED),
        ({"bm": 32, "bn": 32, "threads": 256}, {"bm": 64, "bn": 64, "threads": 512}),
        domain=lambda t: _serve(t["bm"], t["bn"]),
        tile=_find_tile,
    ),
    Kernel(
        "patches",
        "a thread turns 4 x 4 patches in registers: float4 on both sides, no shared memory, no barrier",
        (LANES, THREADS, ITEMS),
        (),
        ({"lm": 8, "threads": 128, "items": 1}, {"lm": 16, "threads": 256, "items": 1}),
        domain=lambda t: _serve_vectors(4 * t["lm"] * t["items"], 4 * (32 // t["lm"]) * (t["threads"] // 32)),
        tile=lambda t: {"rows": 4 * t["lm"] * t["items"], "columns": 4 * (32 // t["lm"]) * (t["threads"] // 32)},
    ),
    Kernel(
        "vectorised",
        "4 x 4 patches through a swizzled tile: float4 everywhere, whole lines on both sides",
        (VECTOR_ROWS, WIDE_COLUMNS, THREADS),
        (EVEN_PATCHES,),
        ({"bm": 32, "bn": 64, "threads": 128}, {"bm": 64, "bn": 64, "threads": 256}),
        domain=lambda t: _serve_vectors(t["bm"], t["bn"]),
        tile=_find_tile,
    ),
    Kernel(
        "strips",
        "a block turns tile below tile, and loads the next while it stores one",
        (STRIP_ROWS, STRIP_COLUMNS, STRIP_THREADS, STRIP_TILES),
        (EVEN_PATCHES, TWO_TILES_SHARED),
        (
            {"bm": 64, "bn": 64, "threads": 256, "items": 4},
            {"bm": 32, "bn": 64, "threads": 128, "items": 4},
        ),
        domain=lambda t: _serve_vectors(t["bm"], t["bn"]),
        tile=_find_tile,
    ),
    Kernel(
        "elements",
        "the same strips by single elements, 8 or more in flight: rows begin anywhere",
        (STRIP_ROWS, STRIP_COLUMNS, STRIP_THREADS, STRIP_TILES),
        (EVEN_SHARE, WHOLE_LINES, TWO_TILES_SHARED),
        (
            {"bm": 64, "bn": 64, "threads": 256, "items": 4},
            {"bm": 32, "bn": 32, "threads": 256, "items": 4},
            {"bm": 64, "bn": 64, "threads": 512, "items": 4},
            {"bm": 64, "bn": 32, "threads": 256, "items": 4},
        ),
        domain=lambda t: _serve(t["bm"], t["bn"]),
        tile=_find_tile,
    ),
    Kernel(
        "tall",
        "few columns: a block takes rows whole, a run of memory, and writes a run of each column",
        (SLAB_THREADS, SLAB_ITEMS),
        (SLAB_SHARED,),
        ({"threads": 512, "items": 8}, {"threads": 256, "items": 16}),
        domain=lambda t: _serve_slabs("columns", "rows"),
        tile=_find_slab("rows"),
    ),
    Kernel(
        "wide",
        "few rows: a block takes a run of each row, and writes rows of Y whole",
        (SLAB_THREADS, SLAB_ITEMS),
        (SLAB_SHARED,),
        ({"threads": 512, "items": 8}, {"threads": 256, "items": 16}),
        domain=lambda t: _serve_slabs("rows", "columns"),
        tile=_find_slab("columns"),
    ),
    Kernel(
        "tall_packs",
        "tall, and the run of memory is read by 16 bytes",
        (SLAB_THREADS, SLAB_ITEMS),
        (SLAB_SHARED,),
        ({"threads": 256, "items": 16}, {"threads": 512, "items": 8}, {"threads": 512, "items": 16}),
        domain=lambda t: _serve_slabs("columns", "rows"),
        tile=_find_slab("rows"),
    ),
    Kernel(
        "wide_packs",
        "wide, and the run of memory is written by 16 bytes",
        (SLAB_THREADS, SLAB_ITEMS),
        (SLAB_SHARED,),
        ({"threads": 256, "items": 16}, {"threads": 512, "items": 8}, {"threads": 512, "items": 16}),
        domain=lambda t: _serve_slabs("rows", "columns"),
        tile=_find_slab("columns"),
    ),
    Kernel(
        "lean",
        "short straight code and a grid of two axes; parts of Y's rows cut at sectors of 32 bytes, for rows that begin between them",
        (LEAN_ROWS, LEAN_COLUMNS, LEAN_THREADS, CUT, STREAM),
        (WHOLE_LINES, LEAN_LOADS),
        (
            {"bm": 32, "bn": 32, "threads": 128, "cut": 0, "stream": 0},
            {"bm": 64, "bn": 32, "threads": 128, "cut": 8, "stream": 0},
            {"bm": 64, "bn": 64, "threads": 256, "cut": 8, "stream": 0},
        ),
        domain=_serve_lean,
        tile=_find_tile,
    ),
    Kernel(
        "tall_rows",
        "up to 8 columns: a thread takes rows whole, and needs neither shared memory nor a barrier",
        (ROW_THREADS, ROW_ITEMS),
        (),
        ({"threads": 128, "items": 16},),
        domain=lambda t: (
            Count({"columns": 1}, max=MAX_ROW_WIDTH),
            Count({"rows": 1}, max=_MAX_EXTENT),
            Rows("x", max_stride=_MAX_LEAN_STRIDE),
        ),
        tile=_find_slab("rows"),
    ),
    Kernel(
        "lean_wide",
        "few rows, by loops of copies to shared memory: all of a small slab is under way at once",
        (LEAN_SLAB_THREADS, LEAN_SLAB_ITEMS),
        (),
        ({"threads": 256, "items": 16},),
        # 30 bits hold row strides.
        domain=lambda t: (
            Count({"rows": 1}, max=min(t["threads"] * t["items"] // WARP_SIZE, MAX_WIDTH)),
            Count({"columns": 1}, max=_MAX_EXTENT),
            *(Rows(name, max_stride=2**30) for name in ("x", "y")),
        ),
        tile=_find_slab("columns"),
    ),
)
_BY_NAME = {kernel.name: kernel for kernel in KERNELS}
_STRIPS, _ELEMENTS, _LEAN, _TALL, _WIDE = (_BY_NAME[name] for name in ("strips", "elements", "lean", "tall_packs", "wide_packs"))
_ALIGNED = (Rows("x", 16, 4), Rows("y", 16, 4))
_BEYOND_WIDTH = (Count({"columns": 1}, min=MAX_WIDTH + 1), Count({"rows": 1}, min=MAX_WIDTH + 1))


# Tiles of 64 x 64 that leave some of 132 multiprocessors with one or none.
_FEW_TILES = 264


def choose(problem: Problem) -> Choice:
    """Return the kernel that takes a short side whole where there is one; else strips by float4 where rows are aligned, or lean tiles."""
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    if min(rows, columns) <= MAX_WIDTH:
        kernel, side = (_TALL, "columns") if columns <= rows else (_WIDE, "rows")
        return Choice(kernel.bind(kernel.variants[0]), f"{min(rows, columns)} {side} leave lanes of a square tile idle")
    small = -(-rows // 64) * -(-columns // 64) < _FEW_TILES
    size = ", and tiles of 64 x 64 are too few for all multiprocessors" if small else ""
    if OP.meets(_ALIGNED, problem):
        return Choice(_STRIPS.bind(_STRIPS.variants[int(small)]), f"rows of X and Y begin at multiples of 16 bytes{size}")
    lean = _LEAN.variants[0 if small else 1]
    odd = f"rows of X or Y begin between multiples of 16 bytes{size}"
    if OP.meets(_serve_lean(lean), problem):
        return Choice(_LEAN.bind(lean), odd)
    return Choice(_ELEMENTS.bind(_ELEMENTS.variants[0]), f"{odd}, more tiles down than an axis of a grid counts")


def _problem(suite: str, rows: int, columns: int, **padding: int) -> Problem:
    return Problem({"rows": rows, "columns": columns}, {}, padding, frozenset(suite.split()))


PROBLEMS = (
    _problem("verify", 1, 1),
    _problem("verify", 1, 129),
    _problem("verify", 257, 1),
    _problem("verify", 31, 33),
    _problem("verify", 64, 64),
    _problem("verify", 130, 67),
    _problem("verify", 127, 255, x=1, y=1),
    _problem("verify", 126, 253, x=3, y=2),
    _problem("verify", 36, 132, x=4, y=4),
    _problem("verify", 5, 1023),
    _problem("verify", 3000, 6),
    _problem("verify", 24, 700, x=3, y=4),
    _problem("verify", 333, 128, x=1),
    _problem("verify", 12, 1028),
    _problem("verify", 33, 402, x=2),
    _problem("verify", 1026, 24, y=2),
    _problem("emulated", 512, 512),
    _problem("emulated", 317, 1003),
    _problem("emulated", 20003, 12),
    _problem("emulated", 33, 20003),
    _problem("bench sweep", 8192, 8192),
    _problem("bench", 4096, 4096),
    _problem("bench", 65536, 256),
    _problem("bench sweep", 5003, 4099),
    _problem("bench sweep", 262144, 5),
    _problem("bench", 100003, 96),
    _problem("bench sweep", 3, 438224),
    _problem("bench", 70, 100003),
)

OP = Op(
    name="transpose",
    summary="Y = X transposed, fp32, row-major",
    tensors=(
        Tensor("x", ("rows", "columns"), Role.INPUT, can_pad_rows=True),
        Tensor("y", ("columns", "rows"), Role.OUTPUT, can_pad_rows=True),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0, 1), restrict),
    choose=choose,
    population=POPULATION,
    axes=(
        # Where one side is short, alignment makes no difference to the kernels.
        Axis("layout", {"aligned": (*_ALIGNED, *_BEYOND_WIDTH), "any": ()}),
        Axis(
            "region",
            {"few_columns": (Count({"columns": 1}, max=MAX_WIDTH),), "few_rows": (Count({"rows": 1}, max=MAX_WIDTH),), "any": ()},
        ),
    ),
)
