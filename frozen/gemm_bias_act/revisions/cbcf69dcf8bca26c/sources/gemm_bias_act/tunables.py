"""The tunables of gemm_bias_act's kernels, and the named constraints among them."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Constraint, Tunable

from .numerics import FLOAT_BYTES

Values = Mapping[str, int]

MAX_THREADS = 1024
MAX_REGISTERS = 255
REGISTERS_PER_SM = 65536
MAX_STATIC_SHARED_BYTES = 48 * 1024
MAX_SHARED_BYTES = 227 * 1024  # a block of an H100 or H200, after opting in


def _num_threads(t: Values) -> int:
    return t["bm"] // t["tm"] * (t["bn"] // t["tn"])


def _fits_shared(t: Values, row_padding: int = 0) -> bool:
    """Tiles of A and B share their memory with the tile of Y that the epilogue stages."""
    tiles = (t["bm"] + row_padding + t["bn"]) * t["bk"] * t.get("stages", 1)
    return FLOAT_BYTES * max(tiles, t["bm"] * t["bn"]) <= MAX_SHARED_BYTES


def _copies_evenly(t: Values) -> bool:
    """Each thread copies as many elements of A as any other, and of B: as [N, K], or as [K, N] by float4 and one by one."""
    threads = _num_threads(t)
    if threads % 8 or t["bk"] % 8 or any(t[name] % 32 or t[name] % (threads // 8) for name in ("bm", "bn")):
        return False
    for width in (4, 1):
        per_row = t["bn"] // width
        rows = max(threads // per_row, 1)
        columns = threads // rows
        if rows * columns != threads or t["bk"] % rows or per_row % columns:
            return False
    return True


THREADS_PER_BLOCK = Constraint(
    "threads_per_block", "a block has at most 1024 threads: bm * bn <= 1024", lambda t: t["bm"] * t["bn"] <= MAX_THREADS
)
STATIC_SHARED = Constraint(
    "static_shared",
    "(bm + bn) * bk floats must fit 48 KiB",
    lambda t: FLOAT_BYTES * (t["bm"] + t["bn"]) * t["bk"] <= MAX_STATIC_SHARED_BYTES,
)
PATCHES_FILL_TILE = Constraint(
    "patches_fill_tile", "tm must divide bm and tn divide bn", lambda t: t["bm"] % t["tm"] == 0 and t["bn"] % t["tn"] == 0
)
WHOLE_WARPS = Constraint(
    "whole_warps",
    "bm / tm * bn / tn threads must be whole warps, at most 1024",
    lambda t: _num_threads(t) % 32 == 0 and _num_threads(t) <= MAX_THREADS,
)
SHARED_MEMORY = Constraint("shared_memory", "tiles of A, B and Y must fit 227 KiB", lambda t: _fits_shared(t, row_padding=4))
VECTOR_PATCHES = Constraint(
    "vector_patches", "tm, tn, bn and bk must be multiples of 4", lambda t: all(t[name] % 4 == 0 for name in ("tm", "tn", "bn", "bk"))
)
WARPS_FILL_TILE = Constraint(
    "warps_fill_tile", "wm must divide bm and wn divide bn", lambda t: t["bm"] % t["wm"] == 0 and t["bn"] % t["wn"] == 0
)
LANES_FILL_WARP = Constraint(
    "lanes_fill_warp",
    "wm / tm * wn / tn must be 32 lanes",
    lambda t: t["wm"] % t["tm"] == 0 and t["wn"] % t["tn"] == 0 and t["wm"] // t["tm"] * (t["wn"] // t["tn"]) == 32,
)
PIPELINED_SHARED = Constraint(
    "shared_memory", "stages of tiles of A and B, both padded, or the tile of Y, must fit 227 KiB", lambda t: _fits_shared(t, row_padding=8)
)
EVEN_COPIES = Constraint(
    "even_copies", "bm and bn must be multiples of 32, bk of 8, and threads divide the copies of A and B", _copies_evenly
)
REGISTERS = Constraint(
    "registers",
    "tm * tn sums, two buffers of fragments and 32 more must fit the registers left by minblocks",
    lambda t: (
        t["tm"] * t["tn"] + 2 * (t["tm"] + t["tn"]) + 32 <= min(MAX_REGISTERS, REGISTERS_PER_SM // (_num_threads(t) * t["minblocks"]))
    ),
)

# The wgmma kernel (wgmma.cuh): its block is three warp groups, its tiles are 64 deep.
_HALF_BYTES = 2
_HALF_TILE_K = 64
_SLAB_BYTES = 16 * 128  # 16 rows of 64 elements on their way out; 2 for each of 8 warps


def _count_wgmma_bytes(t: Values, item_bytes: int = _HALF_BYTES) -> int:
    ring = t["stages"] * ((t["bm"] + t["bn"]) * _HALF_TILE_K * _HALF_BYTES + 2 * 8)
    return ring + 8 * 2 * _SLAB_BYTES + 2 * 2 * t["bn"] * item_bytes


GROUP_ROWS = Constraint(
    "group_rows",
    "a warp group multiplies 64 or 128 rows: bm, or half of it without pingpong",
    lambda t: t["bm"] // (1 if t["pingpong"] else 2) in (64, 128),
)
GROUP_SUMS = Constraint(
    "group_sums",
    "a thread holds at most 192 sums: (bm, or half of it without pingpong) * bn / 128",
    lambda t: t["bm"] // (1 if t["pingpong"] else 2) * t["bn"] // 128 <= 192,
)
CLUSTER_SIZE = Constraint("cluster_size", "clusters have one or two blocks", lambda t: t["clusterm"] * t["clustern"] <= 2)
RING_FITS = Constraint(
    "ring_fits", "tiles, slabs on their way out and bias must fit 227 KiB", lambda t: _count_wgmma_bytes(t) <= MAX_SHARED_BYTES
)
RING_FITS_TF32 = Constraint(
    "ring_fits", "tiles, slabs on their way out and bias must fit 227 KiB", lambda t: _count_wgmma_bytes(t, FLOAT_BYTES) <= MAX_SHARED_BYTES
)


def _count_turned_bytes(t: Values, pingpong: bool = False, evenly: bool = False) -> int:
    """Return the shared memory of a ring and its barriers, and of each of 1 to 3 warp groups: 32 rows on their way out, the bias."""
    groups = 2 if pingpong else {64: 1, 192: 3}.get(t["bn"], 2)
    columns = t["bn"] // (1 if pingpong else groups)
    row_bytes = _HALF_TILE_K * _HALF_BYTES
    ring = t["stages"] * (t["bm"] + t["bn"]) * row_bytes
    least_rows = -(-t["bm"] // 16) * 8 if evenly else t["bm"]
    return ring + ring // ((least_rows + t["bn"]) * row_bytes) * 2 * 8 + groups * (32 * 64 * FLOAT_BYTES + columns * FLOAT_BYTES)


# By bn: the greatest bm whose sums a thread can hold.
_MOST_TURNED_ROWS = {64: 256, 128: 384, 192: 200, 256: 192}
_TURNED_SUMS = (
    "bn must be 64, 128, 192 or 256, a thread hold at most 192 sums: bm * bn / 256 (bm / 2 if bn is 64, at most 128, or 192, at most 100), "
)


def _holds_turned_sums(t: Values) -> bool:
    return t["bm"] <= _MOST_TURNED_ROWS.get(t["bn"], 0)


TURNED_SHAPES = Constraint(
    "turned_shapes",
    _TURNED_SUMS + "and half of bm be a multiple of 8 where clustern is 2",
    lambda t: _holds_turned_sums(t) and t["bm"] % (8 * t["clustern"]) == 0,
)
TURNED_EVENLY_SHAPES = Constraint(
    "turned_shapes",
    _TURNED_SUMS + "bm be a multiple of 8, clusterm 1 or 2, and clustern 1, 2 or 4",
    lambda t: _holds_turned_sums(t) and t["bm"] % 8 == 0 and t["clusterm"] <= 2,
)
TURNED_PINGPONG_SHAPES = Constraint(
    "turned_pingpong_shapes",
    "bn must be 64 or 128, a thread hold at most 192 sums: bm * bn / 128, and half of bm be a multiple of 8 where clustern is 2",
    lambda t: t["bn"] in (64, 128) and t["bm"] * t["bn"] // 128 <= 192 and t["bm"] % (8 * t["clustern"]) == 0,
)
TURNED_FITS = Constraint(
    "turned_fits", "tiles and rows on their way out must fit 227 KiB", lambda t: _count_turned_bytes(t) <= MAX_SHARED_BYTES
)
TURNED_EVENLY_FITS = Constraint(
    "turned_fits", "tiles and rows on their way out must fit 227 KiB", lambda t: _count_turned_bytes(t, evenly=True) <= MAX_SHARED_BYTES
)
TURNED_PINGPONG_FITS = Constraint(
    "turned_fits", "tiles and rows on their way out must fit 227 KiB", lambda t: _count_turned_bytes(t, pingpong=True) <= MAX_SHARED_BYTES
)
ROWS_SHAPES = Constraint(
    "rows_shapes",
    "bn must be at most 8, stages * bn at most 16, and splits at most 8",
    lambda t: t["bn"] <= 8 and t["stages"] * t["bn"] <= 16 and t["splits"] <= 8,
)


def _fits_decode(t: Values) -> bool:
    """Say whether the ring fits, or the sums of all blocks of a cluster in its place, and a thread's sums beside its other registers."""
    threads = 2 * t["bn"]
    ring = t["stages"] * (t["bm"] + t["bn"]) * _HALF_TILE_K * _HALF_BYTES
    sums = (t["bm"] // 8 + 7) * threads * 4 * FLOAT_BYTES
    # Registers are given out to four warps at a time, of which the last has one that copies.
    registers = min(REGISTERS_PER_SM // (threads + 128) // 8 * 8, MAX_REGISTERS)
    return max(ring, sums) + 8 * (2 * t["stages"] + 1) <= MAX_SHARED_BYTES and t["bm"] // 2 + 32 <= registers


DECODE_FITS = Constraint(
    "decode_fits",
    "bm must be a multiple of 8 from 8 to 256, bn of 64 from 64 to 256, bm / 2 sums fit a thread's registers, and stages of (bm + bn) * 64 "
    "elements fit 227 KiB",
    lambda t: t["bm"] % 8 == 0 and t["bn"] in (64, 128, 192, 256) and _fits_decode(t),
)


def _count_boxed_bytes(t: Values) -> int:
    ring = t["stages"] * (t["bm"] + t["bn"]) * t["bk"] + 2 * t["bk"] * (t["bm"] + 4 + t["bn"] + 4)
    return FLOAT_BYTES * max(ring, t["bm"] * t["bn"]) + 8 * t["stages"]


BOXED_SHAPES = Constraint(
    "boxed_shapes",
    "bm and bn must be multiples of 32, at most 256 (rows and columns of a box), bk of 8, and threads divide the chunks of A and B",
    lambda t: (
        t["bm"] % 32 == t["bn"] % 32 == t["bk"] % 8 == 0
        and max(t["bm"], t["bn"]) <= 256
        and all(t[side] * t["bk"] // 4 % _num_threads(t) == 0 for side in ("bm", "bn"))
    ),
)
BOXED_SHARED = Constraint(
    "boxed_shared",
    "stages of (bm + bn) * bk floats and two transposed tiles of A and of B, or the tile of Y, must fit 227 KiB",
    lambda t: _count_boxed_bytes(t) <= MAX_SHARED_BYTES,
)


_EVENLY_THREADS = 128


def _count_evenly_bytes(t: Values) -> int:
    """Return a ring, and two transposed tiles of A and of B, or the sums of all blocks of a cluster in their place, and barriers."""
    loop = t["stages"] * (t["bm"] + t["bn"]) * t["bk"] + 2 * t["bk"] * (t["bm"] + 4 + t["bn"] + 4)
    sums = (t["bm"] // 4 + t["splits"] - 1) * _EVENLY_THREADS * 4
    return FLOAT_BYTES * max(loop, sums) + 8 * 16


def _passes_fit_steps(t: Values) -> bool:
    """Say whether a slice of a stage has a step of k for each pass of the threads over the tiles that they transpose."""
    if t["bk"] not in (16, 32) or _EVENLY_THREADS % t["bn"] or _EVENLY_THREADS // 32 % (t["bk"] // 8):
        return False
    rows = _EVENLY_THREADS // 32 // (t["bk"] // 8) * 16
    steps = t["bk"] * t["bn"] // _EVENLY_THREADS
    return steps % 2 == 0 and -(-t["bm"] // rows) + -(-t["bn"] // rows) <= steps


BOXED_EVENLY_SHAPES = Constraint(
    "boxed_evenly_shapes",
    "bm must be 64 or 128, bk 16 or 32, bn a divisor of 128, and a slice's steps of k as many as the passes over tiles that are transposed",
    lambda t: t["bm"] in (64, 128) and _passes_fit_steps(t),
)
BOXED_EVENLY_FITS = Constraint(
    "boxed_evenly_fits",
    "stages of (bm + bn) * bk floats and two transposed tiles of A and of B, or the sums of a cluster's blocks, must fit 227 KiB, "
    "minblocks times, and bm sums of a thread beside its fragments and 32 more registers",
    lambda t: (
        t["minblocks"] * (_count_evenly_bytes(t) + 1024) <= MAX_SHARED_BYTES + 1024
        and t["bm"] + 2 * (t["bm"] // 8 + 8) + 32 <= min(MAX_REGISTERS, REGISTERS_PER_SM // (_EVENLY_THREADS * t["minblocks"]))
    ),
)
_SKINNY_THREADS = 256
_SKINNY_CHUNK = 256


def _fits_skinny(t: Values) -> bool:
    """Say whether a ring of B, whose place the groups' sums take, and two chunks of A with padded rows fit."""
    groups = _SKINNY_THREADS * 4 // t["bn"]
    ring = max(t["stages"] * t["bk"] * t["bn"], groups * t["bm"] * t["bn"])
    pitch = t["bm"] + 4 if t["bm"] >= 4 else t["bm"]
    return t["minblocks"] * (FLOAT_BYTES * (2 * _SKINNY_CHUNK * pitch + ring) + 1024) <= MAX_SHARED_BYTES + 1024


SKINNY_SHAPES = Constraint(
    "skinny_shapes",
    "bm must be 1, 4, 8, 16 or 32, bn 32 to 256, bk whole rounds of the 1024 / bn groups of threads, and stages - 1 of bk at most 256",
    lambda t: (
        t["bm"] in (1, 4, 8, 16, 32)
        and t["bn"] in (32, 64, 128, 256)
        and t["bk"] % (_SKINNY_THREADS * 4 // t["bn"]) == 0
        and (t["stages"] - 1) * t["bk"] <= _SKINNY_CHUNK
        and t["stages"] >= 2
    ),
)
SKINNY_FITS = Constraint("skinny_fits", "a ring of B and two chunks of A must fit 227 KiB, minblocks times", _fits_skinny)


def count_tiny_bytes(t: Values, item_bytes: int = FLOAT_BYTES) -> int:
    """Return the shared memory of a ring of boxes of 128 bytes of k, or the sums of all slices, of the sums handed over, and of a bias."""
    depth, pad = 128 // item_bytes, 16 // item_bytes
    boxes = sum(max(depth * (t[edge] + pad), t[edge] * (depth + pad)) for edge in ("bm", "bn"))
    return max(t["stages"] * boxes * item_bytes, 4 * t["bm"] * (t["bn"] + 8) * FLOAT_BYTES) + (t["bm"] * FLOAT_BYTES + item_bytes) * t["bn"]


TINY_SHAPES = Constraint(
    "tiny_shapes", "bm and bn must be 32 or 64, and stages at least 3", lambda t: {t["bm"], t["bn"]} <= {32, 64} and t["stages"] >= 3
)
TINY_FITS = Constraint(
    "tiny_fits",
    "a ring, the sums handed over and a bias must fit 227 KiB twice",
    lambda t: 2 * max(count_tiny_bytes(t, item_bytes) for item_bytes in (2, 4)) <= MAX_SHARED_BYTES,
)
GEMV_SHAPES = Constraint(
    "gemv_shapes",
    "tn must be at most 4, and bn be 1 to 32 warps of tn columns",
    lambda t: t["tn"] <= 4 and t["bn"] % t["tn"] == 0 and t["bn"] // t["tn"] <= 32,
)
MMA_SHAPES = Constraint(
    "mma_shapes",
    "bn must be 64 or more, wm and wn divide bm and bn, and 1 to 16 warps copy the tiles evenly",
    lambda t: (
        t["bn"] >= 64
        and t["bm"] % t["wm"] == 0
        and t["bn"] % t["wn"] == 0
        and 1 <= t["bm"] // t["wm"] * (t["bn"] // t["wn"]) <= 16
        and t["bm"] * 8 % (t["bm"] // t["wm"] * (t["bn"] // t["wn"]) * 32) == 0
        and t["bn"] * 8 % (t["bm"] // t["wm"] * (t["bn"] // t["wn"]) * 32) == 0
    ),
)
MMA_SHARED = Constraint(
    "mma_shared",
    "stages of (bm + bn) * 64 16-bit floats must fit 227 KiB",
    lambda t: t["stages"] * (t["bm"] + t["bn"]) * _HALF_TILE_K * _HALF_BYTES <= MAX_SHARED_BYTES,
)
MMA_REGISTERS = Constraint("mma_registers", "a thread holds at most 128 sums: wm * wn / 32", lambda t: t["wm"] * t["wn"] // 32 <= 128)

BM = Tunable("bm", (1, 2, 4, *range(8, 209, 8), 256), "rows of Y that a block computes")
BN = Tunable("bn", (4, 8, 16, 32, 64, 128, 192, 256), "columns of Y that a block computes")
BK = Tunable("bk", (4, 8, 16, 32, 64), "depth of a tile of A and B in shared memory, in elements of K")
TM = Tunable("tm", (1, 2, 4, 8, 16), "rows of Y that a thread computes")
TN = Tunable("tn", (1, 2, 4, 8, 16), "columns of Y that a thread computes")
WM = Tunable("wm", (16, 32, 64, 128), "rows of Y that a warp computes")
WN = Tunable("wn", (16, 32, 64, 128), "columns of Y that a warp computes")
STAGES = Tunable("stages", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16), "tiles in shared memory's ring; in gemv chunks on their way")
GROUP = Tunable("group", (1, 2, 4, 8, 16), "rows of blocks that run down together before the next column (L2 locality)")
CLUSTERM = Tunable("clusterm", (1, 2), "blocks of a cluster one below the other, which share tiles of B by multicast")
CLUSTERN = Tunable("clustern", (1, 2, 4), "blocks of a cluster side by side, which share tiles of A by multicast")
SPLITS = Tunable("splits", (1, 2, 4, 8), "blocks of a cluster that share the k of one tile; in tiny, decode and boxed_evenly at most")
PINGPONG = Tunable("pingpong", (0, 1), "1: the two warp groups take turns at whole tiles; 0: each takes half of the rows of every tile")
MINBLOCKS = Tunable("minblocks", (1, 2, 3, 4, 6, 8), "blocks that must fit a multiprocessor, which caps registers")
