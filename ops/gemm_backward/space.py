"""The kernels of gemm_backward: their tunables as frozen values, the named constraints among them, and the bindings that are built."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Constraint, Count, Kernel, OneOf, Rows, Tunable

Values = Mapping[str, int]

MAX_SHARED_BYTES = 227 * 1024  # a block of an H100 or H200, after opting in
_ITEM_BYTES = 2
_TILE_K = 64
_MAX_COPIES = (2**31 - 1) // 8  # parts of 256 elements of a row, of matrices that go through copies
_SLAB_BYTES = 16 * 128  # 16 rows of 64 elements on their way in and out


def _group_rows(t: Values, of: str = "") -> int:
    return t[f"{of}bm"] // (1 if t[f"{of}pingpong"] else 2)


def _count_bytes(bm: int, bn: int, stages: int, slabs: int, epilogue_bytes: int) -> int:
    return stages * ((bm + bn) * _TILE_K * _ITEM_BYTES + 2 * 8) + 8 * slabs * _SLAB_BYTES + epilogue_bytes


def _count_ffma_threads(t: Values) -> int:
    return t["slices"] * (t["bm"] // t["wm"]) * (t["bn"] // t["wn"]) * 32


def _count_ffma_bytes(t: Values) -> int:
    ring = t["stages"] * t["bk"] * (t["bm"] + t["bn"] + 8)
    return 4 * (max(ring, t["slices"] * t["bm"] * t["bn"]) + 4 * _count_ffma_threads(t))


GROUP_ROWS = Constraint(
    "group_rows",
    "a warp group multiplies 64 or 128 rows: bm, or half of it without pingpong; dwbm likewise",
    lambda t: _group_rows(t) in (64, 128) and _group_rows(t, "dw") in (64, 128),
)
GROUP_SUMS = Constraint(
    "group_sums",
    "a thread holds at most 192 sums: (bm, or half of it without pingpong) * bn / 128, of dW likewise",
    lambda t: _group_rows(t) * t["bn"] // 128 <= 192 and _group_rows(t, "dw") * t["dwbn"] // 128 <= 192,
)
CLUSTER_SIZE = Constraint(
    "cluster_size",
    "clusters have one or two blocks",
    lambda t: t["clusterm"] * t["clustern"] <= 2 and t["dwclusterm"] * t["dwclustern"] <= 2,
)
EVEN_SLABS = Constraint(
    "even_slabs",
    "slabs must divide the parts of 64 x 64 that a warp group makes of a tile",
    lambda t: _group_rows(t) // 64 * (t["bn"] // 64) % t["slabs"] == 0,
)
RING_FITS = Constraint(
    "ring_fits",
    "tiles, slabs, sums of columns and barriers must fit 227 KiB",
    lambda t: (
        _count_bytes(t["bm"], t["bn"], t["stages"], t["slabs"], 8 * t["bn"] * 4 + 8 * t["slabs"] * 8) <= MAX_SHARED_BYTES
        and _count_bytes(t["dwbm"], t["dwbn"], 4, 2, 0) <= MAX_SHARED_BYTES
    ),
)
# By bn: the greatest bm whose sums a thread can hold.
_MOST_TURNED_ROWS = {64: 256, 128: 256, 192: 192, 256: 152}


def _count_turned_bytes(t: Values) -> int:
    """Return the shared memory of a ring and its barriers, and of each of 1 to 3 warp groups: two parts of 32 rows of Z and dZ."""
    groups = {64: 1, 192: 3}.get(t["bn"], 2)
    row_bytes = _TILE_K * _ITEM_BYTES
    ring = t["stages"] * (t["bm"] + t["bn"]) * row_bytes
    least_rows = -(-t["bm"] // 16) * 8
    return ring + ring // ((least_rows + t["bn"]) * row_bytes) * 2 * 8 + groups * 2 * 32 * 64 * _ITEM_BYTES


TURNED_SHAPES = Constraint(
    "turned_shapes",
    "bn must be 64, 128, 192 or 256, and bm a multiple of 8, at most 256 (192 where bn is 192, 152 where it is 256)",
    lambda t: t["bm"] % 8 == 0 and t["bm"] <= _MOST_TURNED_ROWS.get(t["bn"], 0),
)
TURNED_WEIGHTS = Constraint(
    "turned_weights",
    "for dW a warp group multiplies 64 or 128 rows and a thread holds at most 192 sums, in clusters of one or two blocks",
    lambda t: (
        _group_rows(t, "dw") in (64, 128)
        and _group_rows(t, "dw") * t["dwbn"] // 128 <= 192
        and t["clusterm"] * t["clustern"] <= 2
        and t["dwclusterm"] * t["dwclustern"] <= 2
    ),
)
TURNED_FITS = Constraint(
    "turned_fits",
    "tiles and parts on their way in and out must fit 227 KiB",
    lambda t: _count_turned_bytes(t) <= MAX_SHARED_BYTES and _count_bytes(t["dwbm"], t["dwbn"], 4, 2, 0) <= MAX_SHARED_BYTES,
)
MMA_SHAPES = Constraint(
    "mma_shapes",
    "bm and bn must be 64 or more, wm and wn divide them, and 1 to 16 warps copy the tiles evenly",
    lambda t: (
        t["bm"] >= 64
        and t["bn"] >= 64
        and t["bm"] % t["wm"] == 0
        and t["bn"] % t["wn"] == 0
        and 1 <= t["bm"] // t["wm"] * (t["bn"] // t["wn"]) <= 16
        and t["bm"] * 8 % (t["bm"] // t["wm"] * (t["bn"] // t["wn"]) * 32) == 0
        and t["bn"] * 8 % (t["bm"] // t["wm"] * (t["bn"] // t["wn"]) * 32) == 0
    ),
)
MMA_SHARED = Constraint(
    "mma_shared",
    "stages of (bm + bn) * 64 elements must fit 227 KiB",
    lambda t: t["stages"] * (t["bm"] + t["bn"]) * _TILE_K * _ITEM_BYTES <= MAX_SHARED_BYTES,
)
MMA_REGISTERS = Constraint("mma_registers", "a thread holds at most 128 sums: wm * wn / 32", lambda t: t["wm"] * t["wn"] // 32 <= 128)

FFMA_SHAPES = Constraint(
    "ffma_shapes",
    "wm and wn must divide bm and bn, a warp's 32 threads make up wm * wn by tm * tn, and there must be at most 512 threads",
    lambda t: (
        t["bm"] % t["wm"] == 0
        and t["bn"] % t["wn"] == 0
        and t["wm"] % t["tm"] == 0
        and t["wn"] % t["tn"] == 0
        and t["wm"] // t["tm"] * (t["wn"] // t["tn"]) == 32
        and _count_ffma_threads(t) <= 512
    ),
)
FFMA_COPIES = Constraint(
    "ffma_copies",
    "the threads must copy whole rows of tiles: a multiple of bm and of bn, or they of it; bk must give every slice an even share",
    lambda t: all(_count_ffma_threads(t) % t[edge] == 0 for edge in ("bm", "bn")) and t["bk"] % (2 * t["slices"]) == 0,
)
FFMA_SHARED = Constraint(
    "ffma_shared",
    "stages of (bm + bn + 8) * bk floats, or slices of bm * bn, and 4 floats a thread must fit 227 KiB for each of minblocks blocks",
    lambda t: t["minblocks"] * _count_ffma_bytes(t) <= MAX_SHARED_BYTES,
)

_EVENLY_THREADS = 128


def _count_evenly_bytes(t: Values) -> int:
    """Return a ring, and two transposed tiles of both operands, or the sums of all blocks of a cluster in their place, and barriers."""
    loop = t["stages"] * (t["bm"] + t["bn"]) * t["bk"] + 2 * t["bk"] * (t["bm"] + 4 + t["bn"] + 4)
    sums = (t["bm"] // 4 + t["splits"] - 1) * _EVENLY_THREADS * 4
    return 4 * max(loop, sums) + 8 * 16


EVENLY_SHAPES = Constraint(
    "evenly_shapes",
    "bm must be 64 or 128, bn too, and bk 16",
    lambda t: t["bm"] in (64, 128) and t["bn"] in (64, 128) and t["bk"] == 16,
)
EVENLY_FITS = Constraint(
    "evenly_fits",
    "stages of (bm + bn) * bk floats and two transposed tiles of each operand, or the sums of a cluster's blocks, must fit 227 KiB, "
    "minblocks times, and bm sums of a thread beside its fragments and 32 more registers",
    lambda t: (
        t["minblocks"] * (_count_evenly_bytes(t) + 1024) <= MAX_SHARED_BYTES + 1024
        and t["bm"] + 2 * (t["bm"] // 8 + 8) + 32 <= 65536 // (_EVENLY_THREADS * t["minblocks"])
    ),
)


def _count_tiny_bytes(t: Values, item_bytes: int) -> int:
    """Return the bytes of a ring of boxes of 128 bytes of k, or the sums of all slices, of sums that blocks hand over, and of z."""
    depth, pad = 128 // item_bytes, 16 // item_bytes
    boxes = sum(max(depth * (t[edge] + pad), t[edge] * (depth + pad)) for edge in ("bm", "bn"))
    return max(t["stages"] * boxes * item_bytes, 16 * t["bm"] * (t["bn"] + 8)) + (4 * (t["bm"] + 24) + item_bytes * t["bm"]) * t["bn"]


TINY_SHAPES = Constraint(
    "tiny_shapes", "bm and bn must be 32 or 64, and stages at least 3", lambda t: {t["bm"], t["bn"]} <= {32, 64} and t["stages"] >= 3
)
TINY_SHARED = Constraint(
    "tiny_shared",
    "the ring, the sums handed over and z must fit 227 KiB twice",
    lambda t: 2 * max(_count_tiny_bytes(t, item_bytes) for item_bytes in (2, 4)) <= MAX_SHARED_BYTES,
)

EVEN_ROWS = Constraint("even_rows", "rows must be a multiple of unroll for each of 8 warps", lambda t: t["rows"] % (8 * t["unroll"]) == 0)

ROWS = Tunable("rows", (32, 64, 128, 256), "rows of dZ that a block passes, and adds up for dbias")
UNROLL = Tunable("unroll", (1, 2, 4), "rows that a warp has on their way at a time")
THIN_UNROLL = Tunable("unroll", (4, 8), "rows of X and Z that a warp has on their way at a time")
BM = Tunable("bm", (32, 64, 128, 256), "rows of dZ that a block computes; in mma and ffma of dW too")
BN = Tunable("bn", (32, 64, 128, 192, 256), "columns of dZ that a block computes; in mma and ffma of dW too")
WM = Tunable("wm", (16, 32, 64, 128), "rows that a warp computes")
WN = Tunable("wn", (16, 32, 64, 128), "columns that a warp computes")
BK = Tunable("bk", (8, 16, 32), "steps of k in a tile of shared memory")
TM = Tunable("tm", (4, 8, 16), "rows that a thread computes")
TN = Tunable("tn", (4, 8, 16), "columns that a thread computes")
SLICES = Tunable("slices", (1, 2, 4), "groups of warps that share the k of each tile of shared memory")
MINBLOCKS = Tunable("minblocks", (1, 2, 3, 4), "blocks that a multiprocessor must hold at once")
SPLITS = Tunable("splits", (1, 2, 4, 8), "blocks of a cluster that share the k of one tile, at most")
TILE = Tunable("tile", (16, 32), "rows and columns that a block computes, one element a thread")
STAGES = Tunable("stages", (2, 3, 4, 5, 6, 7, 8), "tiles in the ring of shared memory; for dW wgmma has 4")
TURNED_BM = Tunable("bm", (48, 64, 104, 112, 152, 192, 208, 256), "rows of dZ that a block computes, at most")
TURNED_STAGES = Tunable("stages", (4, 5, 6, 7, 8, 10, 14), "tiles in the ring of shared memory, where they have all rows")
SLABS = Tunable("slabs", (2, 3, 4, 6), "parts of Z and dZ that a warp has on their way at a time")
GROUP = Tunable("group", (1, 2, 4, 8, 16), "rows of blocks that run down together before the next column (L2 locality)")
CLUSTERM = Tunable("clusterm", (1, 2), "blocks of a cluster one below the other, which share tiles of W by multicast")
CLUSTERN = Tunable("clustern", (1, 2), "blocks of a cluster side by side, which share tiles of dY by multicast")
PINGPONG = Tunable("pingpong", (0, 1), "for dZ, 1: the two warp groups take turns at whole tiles; 0: each takes half of the rows")
DWBM = Tunable("dwbm", (64, 128, 256), "rows of dW that a block computes")
DWBN = Tunable("dwbn", (64, 128, 192, 256), "columns of dW that a block computes")
DWCLUSTERM = Tunable("dwclusterm", (1, 2), "for dW, blocks of a cluster one below the other")
DWCLUSTERN = Tunable("dwclustern", (1, 2), "for dW, blocks of a cluster side by side")
DWPINGPONG = Tunable("dwpingpong", (0, 1), "for dW, as pingpong")

_DZ_NAMES = ("bm", "bn", "stages", "slabs", "clusterm", "clustern", "pingpong", "group")
WGMMA_NAMES = (*_DZ_NAMES, "dwbm", "dwbn", "dwclusterm", "dwclustern", "dwpingpong")
TURNED_NAMES = ("bm", "bn", "stages", "clusterm", "clustern", "group", *WGMMA_NAMES[-5:])
MMA_NAMES = ("bm", "bn", "wm", "wn", "stages", "group")
TINY_NAMES = ("bm", "bn", "stages", "splits")
EVENLY_NAMES = ("bm", "bn", "bk", "stages", "group", "minblocks", "splits")
FFMA_NAMES = ("bm", "bn", "bk", "wm", "wn", "tm", "tn", "stages", "slices", "group", "minblocks")


# The domains, from which `supports` is generated.
_HALF = OneOf("dtype", ("bfloat16", "float16"))
_FP32 = OneOf("dtype", ("float32",))
_STORES = OneOf("accumulate", (False,))
_MAX_EXTENT = 2**31 - 1 - 1024
_MAX_TILES = (2**31 - 1) // 64


def _serve(dtypes: OneOf, rows: int, columns: int, dw_rows: int, dw_columns: int) -> tuple[OneOf | Count | Rows, ...]:
    """Any problem of these types whose tiles of dZ, and of dW in either layout, can be counted."""
    sizes = tuple(Count({name: 1}, max=_MAX_EXTENT) for name in ("M", "N", "K"))
    tiles = ({"M": rows, "K": columns}, {"N": dw_rows, "K": dw_columns}, {"K": dw_rows, "N": dw_columns})
    return (dtypes, OneOf("with_w", (True,)), *sizes, *(Count(steps, max=_MAX_TILES) for steps in tiles))


def serve_streamed(t: Values) -> tuple[OneOf | Count | Rows, ...]:
    """Problems without W, of any alignment; N is K and not asked for."""
    sizes = tuple(Count({name: 1}, max=_MAX_EXTENT) for name in ("M", "K"))
    return (OneOf("with_w", (False,)), *sizes, Count({"M": t["rows"], "K": 32}, max=_MAX_TILES))


def serve_any(t: Values) -> tuple[OneOf | Count | Rows, ...]:
    """Any alignment, in 16 bits."""
    return _serve(_HALF, t["bm"], t["bn"], t["bm"], t["bn"])


def serve_plain(t: Values) -> tuple[OneOf | Count | Rows, ...]:
    """Any alignment, in fp32."""
    return _serve(_FP32, t["tile"], t["tile"], t["tile"], t["tile"])


def serve_ffma(t: Values) -> tuple[OneOf | Count | Rows, ...]:
    """Any alignment, in fp32."""
    return _serve(_FP32, t["bm"], t["bn"], t["bm"], t["bn"])


def serve_boxes(t: Values) -> tuple[OneOf | Count | Rows, ...]:
    """Any fp32 problem whose dY, W and X begin on 16-byte boundaries; rows that do not are copied. Tiles have half of bm rows or more."""
    least_rows = t["bm"] // 2
    copies = (Count({rows: 1, columns: 256}, max=_MAX_COPIES) for rows, columns in (("M", "N"), ("M", "K"), ("N", "K"), ("K", "N")))
    return (*_serve(_FP32, least_rows, t["bn"], least_rows, t["bn"]), *copies, *(Rows(name, 16) for name in ("dy", "w", "x")))


def serve_weights(t: Values) -> tuple[OneOf | Count | Rows, ...]:
    """Any alignment, with W."""
    return _serve(OneOf("dtype", ("bfloat16", "float16", "float32")), t["bm"], t["bn"], t["bm"], t["bn"])


def serve_thin(t: Values) -> tuple[OneOf | Count | Rows, ...]:
    """Any alignment, with W, where N is at most 32."""
    return (OneOf("with_w", (True,)), *(Count({name: 1}, max=_MAX_EXTENT) for name in ("M", "K")), Count({"N": 1}, max=32))


def serve_based(t: Values) -> tuple[OneOf | Count | Rows, ...]:
    """Any problem in 16 bits that adds dW to nothing and whose matrices begin on 16-byte boundaries; rows that do not are copied."""
    copies = (Count({rows: 1, columns: 256}, max=_MAX_COPIES) for rows, columns in (("M", "N"), ("M", "K"), ("N", "K"), ("K", "N")))
    return (
        *_serve(_HALF, t["bm"], t["bn"], t["dwbm"], t["dwbn"]),
        _STORES,
        *copies,
        *(Rows(name, 16) for name in ("dy", "w", "x", "z", "dz", "dw")),
    )


def find_tile(t: Values) -> Values:
    """Return the rows and columns of dZ that a block computes."""
    return {"M": t["bm"], "K": t["bn"]}


def find_even_tile(t: Values) -> Values:
    """Return the same of one that divides its rows evenly, padding them to less than half of bm a tile, and deals out steps of N."""
    return {"M": t["bm"] // 2, "K": t["bn"], "N": 512}


def find_boxed_tile(t: Values) -> Values:
    """Return the same of one that divides its rows evenly, padding them to less than half of bm a tile."""
    return {"M": t["bm"] // 2, "K": t["bn"]}


def bind(names: tuple[str, ...], *rows: tuple[int, ...]) -> tuple[dict[str, int], ...]:
    """Return a binding per row of values."""
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


KERNELS = (
    Kernel(
        "streamed",
        "no product at all, where there is no W: one pass over memory, columns added up on the way; fp32 too",
        (ROWS, UNROLL),
        (EVEN_ROWS,),
        bind(("rows", "unroll"), (64, 2), (64, 4), (128, 4)),
        domain=serve_streamed,
        tile=lambda t: {"M": t["rows"], "K": 256},
    ),
    Kernel(
        "plain",
        "fp32 as its definition has it: an element a thread, square tiles in shared memory, no splits; any GPU, any alignment",
        (TILE,),
        (),
        bind(("tile",), (16,)),
        domain=serve_plain,
        tile=lambda t: {"M": t["tile"], "K": t["tile"]},
    ),
    Kernel(
        "ffma",
        "fp32 in one launch: tiles of dZ and dW in one grid, a ring filled by cp.async, clusters that share k and add up columns",
        (BM, BN, BK, WM, WN, TM, TN, STAGES, SLICES, GROUP, MINBLOCKS),
        (FFMA_SHAPES, FFMA_COPIES, FFMA_SHARED),
        bind(
            FFMA_NAMES,
            (32, 32, 32, 16, 32, 4, 4, 3, 4, 8, 2),
            (64, 32, 32, 64, 32, 8, 8, 3, 4, 8, 3),
            (64, 64, 16, 32, 32, 4, 8, 4, 2, 8, 2),
            (64, 128, 8, 32, 64, 8, 8, 4, 1, 8, 4),
            (64, 128, 16, 32, 64, 8, 8, 3, 1, 8, 3),
            (128, 128, 8, 64, 64, 8, 16, 4, 1, 8, 2),
        ),
        min_arch=90,
        domain=serve_ffma,
        tile=find_tile,
    ),
    Kernel(
        "boxed_evenly",
        "fp32 in boxes of the copy engine: dZ and dW in launches that overlap, each in tiles of as many rows as take the least time, bm at "
        "most, and as many blocks for the k of each, splits at most",
        (BM, BN, BK, STAGES, GROUP, MINBLOCKS, SPLITS),
        (EVENLY_SHAPES, EVENLY_FITS),
        bind(
            EVENLY_NAMES,
            (128, 128, 16, 4, 8, 2, 8),
            (64, 128, 16, 2, 8, 4, 8),
            (64, 64, 16, 4, 8, 4, 8),
        ),
        min_arch=90,
        domain=serve_boxes,
        tile=find_boxed_tile,
    ),
    Kernel(
        "tiny",
        "few tiles and short sums, any dtype, one launch: all k on its way at once, clusters that hand over sums of products and columns",
        (BM, BN, STAGES, SPLITS),
        (TINY_SHAPES, TINY_SHARED),
        bind(TINY_NAMES, (32, 32, 5, 4), (32, 32, 5, 1), (64, 64, 4, 4), (64, 64, 4, 1)),
        min_arch=90,
        domain=serve_weights,
        tile=find_tile,
    ),
    Kernel(
        "thin",
        "few columns N, any dtype: one pass over X, Z and dZ, sums of dW and dbias in registers, blocks of rows added by a second kernel",
        (THIN_UNROLL,),
        (),
        bind(("unroll",), (4,), (8,)),
        domain=serve_thin,
        tile=lambda t: {"M": 8 * t["unroll"], "K": 128},
    ),
    Kernel(
        "mma",
        "tensor cores by mma.sync, fragments by ldmatrix (transposed for dW) from swizzled tiles; any alignment",
        (BM, BN, WM, WN, STAGES, GROUP),
        (MMA_SHAPES, MMA_SHARED, MMA_REGISTERS),
        bind(MMA_NAMES, (64, 64, 32, 32, 4, 8), (128, 128, 64, 32, 3, 8)),
        domain=serve_any,
        tile=find_tile,
    ),
    Kernel(
        "wgmma",
        "Hopper: tensor copies fill a ring that two warp groups multiply from; act' and sums of columns follow dZ; steps of dW split",
        (BM, BN, STAGES, SLABS, CLUSTERM, CLUSTERN, PINGPONG, GROUP, DWBM, DWBN, DWCLUSTERM, DWCLUSTERN, DWPINGPONG),
        (GROUP_ROWS, GROUP_SUMS, CLUSTER_SIZE, EVEN_SLABS, RING_FITS),
        bind(
            WGMMA_NAMES,
            (128, 128, 5, 2, 2, 1, 1, 8, 128, 256, 2, 1, 0),
            (128, 128, 4, 4, 2, 1, 1, 8, 128, 256, 2, 1, 0),
            (128, 256, 3, 4, 2, 1, 0, 8, 128, 256, 2, 1, 0),
            (256, 128, 3, 4, 1, 2, 0, 8, 256, 128, 1, 2, 0),
            (128, 192, 4, 3, 2, 1, 1, 8, 128, 256, 2, 1, 0),
            (64, 192, 5, 3, 1, 1, 1, 8, 128, 256, 2, 1, 0),
            (64, 128, 7, 2, 1, 1, 1, 8, 128, 128, 1, 1, 0),
        ),
        min_arch=90,
        domain=serve_based,
        tile=find_tile,
    ),
    Kernel(
        "turned_evenly",
        "wgmma, with as many rows of dZ in each tile as take the least time, bm at most; steps of dZ split where tiles are few",
        (TURNED_BM, BN, TURNED_STAGES, CLUSTERM, CLUSTERN, GROUP, DWBM, DWBN, DWCLUSTERM, DWCLUSTERN, DWPINGPONG),
        (TURNED_SHAPES, TURNED_WEIGHTS, TURNED_FITS),
        bind(
            TURNED_NAMES,
            (48, 64, 14, 1, 1, 8, 128, 128, 1, 1, 0),
            (48, 64, 14, 1, 1, 8, 128, 128, 2, 1, 1),
            (104, 64, 10, 1, 2, 8, 128, 128, 2, 1, 1),
            (104, 64, 10, 1, 2, 8, 128, 256, 2, 1, 0),
            (112, 128, 7, 1, 1, 8, 128, 192, 2, 1, 1),
            (208, 64, 6, 1, 2, 8, 128, 256, 2, 1, 0),
            (208, 128, 5, 1, 2, 8, 128, 128, 2, 1, 1),
            (208, 128, 5, 1, 2, 8, 128, 256, 2, 1, 0),
            (256, 128, 4, 1, 2, 8, 128, 256, 2, 1, 0),
            (192, 192, 4, 1, 1, 8, 128, 256, 2, 1, 0),
        ),
        min_arch=90,
        domain=serve_based,
        tile=find_even_tile,
    ),
)
