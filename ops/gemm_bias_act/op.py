"""gemm_bias_act: ``Y = act(A B + bias)`` and optionally ``Z = A B + bias``, row-major, any sizes and row strides.

In fp32 throughout, or in bf16 or fp16 with fp32 sums; B as [K, N] or, for these two, as [N, K].
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Attribute, Constraint, Cost, Kernel, Op, Problem, Role, Tensor, Tunable

Values = Mapping[str, int]

FLOAT_BYTES = 4
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MAX_THREADS = 1024
MAX_REGISTERS = 255
REGISTERS_PER_SM = 65536
MAX_STATIC_SHARED_BYTES = 48 * 1024
MAX_SHARED_BYTES = 227 * 1024  # a block of an H100 or H200, after opting in
UNIT_ROUNDOFF = 2.0**-24
SMALLEST_SUBNORMAL = 2.0**-149
SMALLEST_NORMAL = 2.0**-126


def _dtype(problem: Problem) -> str:
    return str(problem.attributes.get("dtype", "float32"))


def _is_nk(problem: Problem) -> bool:
    return problem.attributes.get("b_layout", "kn") == "nk"


# ---------------------------------------------------------------------------------------------------------------- reference

_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_erf = np.vectorize(math.erf, otypes=[np.float64])


def activate(name: str, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Apply an activation in float64. NaN stays NaN; GELU and SiLU of -inf are NaN, as their formulas (-inf * 0) have it."""
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "relu":
            return np.where(z < 0.0, 0.0, z)
        if name == "gelu_tanh":
            return np.asarray(0.5 * z * (1.0 + np.tanh(_SQRT_2_OVER_PI * (z + 0.044715 * z**3))))
        if name == "gelu_erf":
            return np.asarray(0.5 * z * (1.0 + _erf(z / math.sqrt(2.0))))
        if name == "silu":
            return np.asarray(z / (1.0 + np.exp(-z)))
    return z


def _find_preactivation(inputs: Arrays, problem: Problem) -> NDArray[np.float64]:
    b = inputs["b"].T if _is_nk(problem) else inputs["b"]
    z: NDArray[np.float64] = np.matmul(inputs["a"].astype(np.float64), b.astype(np.float64))
    if "bias" in inputs:
        z += inputs["bias"].astype(np.float64)
    return z


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return Y, and Z where the problem saves it, in float64 from float64 inputs."""
    with np.errstate(invalid="ignore"):
        z = _find_preactivation(inputs, problem)
    y = activate(str(problem.attributes.get("act", "none")), z)
    return {"y": y, "z": z} if problem.attributes.get("save_z", False) else {"y": y}


# ---------------------------------------------------------------------------------------------------------------- tolerance

# Largest slope of each activation: an error in z comes out at most this much larger.
_LIPSCHITZ = {"none": 1.0, "relu": 1.0, "gelu_tanh": 1.13, "gelu_erf": 1.13, "silu": 1.1}
# Error of the activation itself in units of u |z|. x sigmoid(t): rounding t costs at most 0.3 * 4, expf, the sum and the division 2 ulp
# each; erfcf is good to 4 ulp and its argument's rounding costs 1. none and relu are exact.
_ACTIVATION_ROUNDINGS = {"none": 0.0, "relu": 0.0, "gelu_tanh": 12.0, "gelu_erf": 12.0, "silu": 12.0}
# Chance that a right kernel breaks the bound anywhere in one problem.
_FAILURE_PROBABILITY = 1e-9


def find_rounding_factor(num_roundings: int, num_elems: int) -> float:
    """Return g such that ``num_roundings`` successive roundings err by at most g times the sum of magnitudes.

    The smaller of the deterministic n u / (1 - n u) and the probabilistic exp(l sqrt(n) u + n u^2 / (1 - u)) - 1 of N. J. Higham and
    T. Mary, "A new approach to probabilistic rounding error analysis" (SIAM J. Sci. Comput. 41, 2019), Theorem 2.4, with l chosen so
    that all ``num_elems`` results together hold it with probability 1 - 1e-9. Both hold for every order of summation, fused or not.
    """
    n, u = num_roundings, UNIT_ROUNDOFF
    spread = math.sqrt(2.0 * math.log(2.0 * n * num_elems / _FAILURE_PROBABILITY))
    return min(n * u / (1.0 - n * u), math.expm1(spread * math.sqrt(n) * u + n * u * u / (1.0 - u)))


# Rounding to a 16-bit output: unit roundoff, and half of the distance of its subnormals.
_OUTPUT_ROUNDOFF = {"float32": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11}
_OUTPUT_UNDERFLOW = {"float32": 0.0, "bfloat16": 2.0**-134, "float16": 2.0**-25}
# Error of apply_rough_activation in units of |z|: ops/common/activations.cuh.
_ROUGH_ACTIVATION = 3.0 * 2.0**-13


def find_sum_error(dtype: str, k: int, num_elems: int) -> float:
    """Return the error of z, before it is rounded to its own dtype, in units of ``|A| |B| + |bias|``.

    fp32: :func:`find_rounding_factor`. 16-bit floats have exact products, which tensor cores add in groups of at least 4 (8 or 16 on
    known GPUs), each group aligned to its largest term and cut off below fp32's last bit or finer: 2^-23 of the magnitudes at most
    (M. Fasi et al., "Numerical behavior of NVIDIA tensor cores", PeerJ Comput. Sci. 7, 2021). The cut has a sign, so that it is summed
    in full.
    """
    if dtype == "float32":
        return find_rounding_factor(k + 1, num_elems)
    cuts = (math.ceil(k / 4) + 1) * 2.0**-23
    return cuts / (1.0 - cuts)


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return absolute bounds for Y and Z.

    Z: :func:`find_sum_error` times ``|A| |B| + |bias|``, plus a subnormal for each of the K + 1 roundings (underflow).
    Y: that times the activation's slope, plus the activation's own error. Both are then rounded to their dtype, where that is no fp32.
    Where Z is infinite the result has no rounding error.
    """
    act, dtype = str(problem.attributes.get("act", "none")), _dtype(problem)
    m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
    is_smooth = _ACTIVATION_ROUNDINGS[act] > 0.0
    own_error = _ACTIVATION_ROUNDINGS[act] * UNIT_ROUNDOFF if dtype == "float32" else is_smooth * _ROUGH_ACTIVATION
    with np.errstate(invalid="ignore", over="ignore"):
        b = inputs["b"].T if _is_nk(problem) else inputs["b"]
        magnitudes = np.matmul(np.abs(inputs["a"]), np.abs(b))
        if "bias" in inputs:
            magnitudes = magnitudes + np.abs(inputs["bias"])
        z = outputs["z"] if "z" in outputs else _find_preactivation(inputs, problem)
        bound_z = find_sum_error(dtype, k, m * n) * magnitudes + (k + 1) * SMALLEST_SUBNORMAL
        bound_y = _LIPSCHITZ[act] * bound_z + own_error * np.abs(z) + is_smooth * SMALLEST_NORMAL
        bounds = {
            name: bound + _OUTPUT_ROUNDOFF[dtype] * (np.abs(exact) + bound) + _OUTPUT_UNDERFLOW[dtype]
            for name, bound, exact in (("y", bound_y, outputs["y"]), ("z", bound_z, z))
        }
    finite = np.isfinite(z)
    return {name: np.where(finite, bounds[name], 0.0) for name in outputs}


# --------------------------------------------------------------------------------------------------------------------- cost

# Arithmetic of the activations per element, an exponential, error function or division counted as one.
_ACTIVATION_FLOPS = {"none": 0, "relu": 1, "gelu_tanh": 8, "gelu_erf": 4, "silu": 4}


def cost(problem: Problem) -> Cost:
    """Return 2MNK flops plus the epilogue's, and each tensor moved once."""
    m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
    with_bias = bool(problem.attributes.get("with_bias", False))
    save_z = bool(problem.attributes.get("save_z", False))
    act = str(problem.attributes.get("act", "none"))
    item_bytes = ITEM_BYTES[_dtype(problem)]
    return Cost(
        flops=2.0 * m * n * k + m * n * (_ACTIVATION_FLOPS[act] + int(with_bias)),
        bytes_read=float(item_bytes * (m * k + k * n + (n if with_bias else 0))),
        bytes_written=float(item_bytes * m * n * (2 if save_z else 1)),
        # bf16 and fp16 share the tensor cores' rate.
        flop_unit="fp32" if item_bytes == FLOAT_BYTES else "bf16_tensor",
    )


# ------------------------------------------------------------------------------------------------------------------ kernels


def _num_threads(t: Values) -> int:
    return t["bm"] // t["tm"] * (t["bn"] // t["tn"])


def _fits_shared(t: Values, row_padding: int = 0) -> bool:
    """Tiles of A and B share their memory with the tile of Y that the epilogue stages."""
    tiles = (t["bm"] + row_padding + t["bn"]) * t["bk"] * t.get("stages", 1)
    return FLOAT_BYTES * max(tiles, t["bm"] * t["bn"]) <= MAX_SHARED_BYTES


def _copies_evenly(t: Values) -> bool:
    """Each thread copies as many elements of A as any other, and of B, as float4 and one by one."""
    threads = _num_threads(t)
    if threads % 8 or t["bm"] % 32 or t["bk"] % 8 or t["bm"] % (threads // 8):
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
EVEN_COPIES = Constraint("even_copies", "bm must be a multiple of 32, bk of 8, and threads divide the copies of A and B", _copies_evenly)
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


def _count_wgmma_bytes(t: Values) -> int:
    ring = t["stages"] * ((t["bm"] + t["bn"]) * _HALF_TILE_K * _HALF_BYTES + 2 * 8)
    return ring + 8 * 2 * _SLAB_BYTES + 2 * 2 * t["bn"] * _HALF_BYTES


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
DECODE_FITS = Constraint(
    "decode_fits",
    "bm must be a multiple of 8 from 8 to 128, bn 64 or 128, and stages of (bm + bn) * 64 elements fit 227 KiB",
    lambda t: (
        t["bm"] % 8 == 0
        and t["bm"] <= 128
        and t["bn"] in (64, 128)
        and t["stages"] * ((t["bm"] + t["bn"]) * _HALF_TILE_K * _HALF_BYTES + 16) <= MAX_SHARED_BYTES
        and t["bm"] * (t["bn"] + 4) * FLOAT_BYTES <= MAX_SHARED_BYTES - 16 * t["stages"]
    ),
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

BM = Tunable("bm", (1, 2, 4, 8, 16, 32, 64, 128, 256), "rows of Y that a block computes")
BN = Tunable("bn", (4, 8, 16, 32, 64, 128, 192, 256), "columns of Y that a block computes")
BK = Tunable("bk", (4, 8, 16, 32, 64), "depth of a tile of A and B in shared memory, in elements of K")
TM = Tunable("tm", (1, 2, 4, 8, 16), "rows of Y that a thread computes")
TN = Tunable("tn", (1, 2, 4, 8, 16), "columns of Y that a thread computes")
WM = Tunable("wm", (16, 32, 64, 128), "rows of Y that a warp computes")
WN = Tunable("wn", (16, 32, 64, 128), "columns of Y that a warp computes")
STAGES = Tunable("stages", (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16), "tiles in the ring of shared memory; in gemv chunks on their way")
GROUP = Tunable("group", (1, 2, 4, 8, 16), "rows of blocks that run down together before the next column (L2 locality)")
CLUSTERM = Tunable("clusterm", (1, 2), "blocks of a cluster one below the other, which share tiles of B by multicast")
CLUSTERN = Tunable("clustern", (1, 2), "blocks of a cluster side by side, which share tiles of A by multicast")
SPLITS = Tunable("splits", (1, 2, 4, 8), "blocks of a cluster that share the k of one tile")
PINGPONG = Tunable("pingpong", (0, 1), "1: the two warp groups take turns at whole tiles; 0: each takes half of the rows of every tile")
MINBLOCKS = Tunable("minblocks", (1, 2, 3, 4, 6, 8), "blocks that must fit a multiprocessor, which caps registers")


def _bind(names: tuple[str, ...], *rows: tuple[int, ...]) -> tuple[dict[str, int], ...]:
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


_WARP_NAMES = ("bm", "bn", "bk", "wm", "wn", "tm", "tn")

KERNELS = (
    Kernel(
        "naive",
        "a thread per element; neighbouring lanes walk down a column of Y",
        (BM, BN),
        (THREADS_PER_BLOCK,),
        _bind(("bm", "bn"), (16, 16), (32, 32)),
    ),
    Kernel(
        "coalesced",
        "neighbouring lanes walk along a row: whole sectors of B and Y",
        (BM, BN),
        (THREADS_PER_BLOCK,),
        _bind(("bm", "bn"), (8, 32), (4, 64), (1, 256)),
    ),
    Kernel(
        "smem_tiled",
        "a block shares tiles of A and B in shared memory",
        (BM, BN, BK),
        (THREADS_PER_BLOCK, STATIC_SHARED),
        _bind(("bm", "bn", "bk"), (16, 16, 16), (32, 32, 32), (16, 32, 32)),
    ),
    Kernel(
        "reg_tiled",
        "a thread owns a patch of Y in registers",
        (BM, BN, BK, TM, TN),
        (PATCHES_FILL_TILE, WHOLE_WARPS, SHARED_MEMORY),
        _bind(("bm", "bn", "bk", "tm", "tn"), (64, 64, 16, 4, 4), (128, 64, 8, 8, 4), (128, 128, 8, 8, 8)),
    ),
    Kernel(
        "vectorised",
        "float4 everywhere; A is transposed on its way to shared memory",
        (BM, BN, BK, TM, TN),
        (PATCHES_FILL_TILE, WHOLE_WARPS, VECTOR_PATCHES, SHARED_MEMORY),
        _bind(("bm", "bn", "bk", "tm", "tn"), (64, 64, 16, 4, 4), (128, 128, 8, 8, 8), (128, 128, 16, 8, 8)),
    ),
    Kernel(
        "warp_tiled",
        "a warp owns a compact tile, so that its lanes read few float4 without bank conflicts",
        (BM, BN, BK, WM, WN, TM, TN),
        (PATCHES_FILL_TILE, WARPS_FILL_TILE, LANES_FILL_WARP, WHOLE_WARPS, VECTOR_PATCHES, SHARED_MEMORY),
        _bind(
            _WARP_NAMES,
            (64, 64, 16, 32, 16, 4, 4),
            (128, 128, 8, 32, 64, 8, 8),
            (128, 128, 16, 64, 32, 8, 8),
            (128, 128, 16, 64, 64, 8, 16),
        ),
    ),
    Kernel(
        "pipelined",
        "cp.async fills a ring of stages, and fragments are read one step ahead",
        (BM, BN, BK, WM, WN, TM, TN, STAGES, GROUP, MINBLOCKS),
        (PATCHES_FILL_TILE, WARPS_FILL_TILE, LANES_FILL_WARP, WHOLE_WARPS, VECTOR_PATCHES, EVEN_COPIES, SHARED_MEMORY, REGISTERS),
        _bind(
            (*_WARP_NAMES, "stages", "group", "minblocks"),
            (128, 128, 8, 64, 64, 8, 16, 4, 8, 2),
            (128, 256, 8, 64, 64, 8, 16, 4, 8, 1),
            (64, 128, 8, 32, 64, 8, 8, 4, 8, 4),
            (64, 64, 16, 32, 64, 8, 8, 3, 8, 4),
        ),
    ),
    Kernel(
        "mma",
        "bf16 and fp16: tensor cores by mma.sync, fragments by ldmatrix from swizzled tiles; any alignment",
        (BM, BN, WM, WN, STAGES, GROUP),
        (MMA_SHAPES, MMA_SHARED, MMA_REGISTERS),
        _bind(("bm", "bn", "wm", "wn", "stages", "group"), (128, 128, 64, 32, 3, 8), (64, 64, 32, 32, 4, 8)),
    ),
    Kernel(
        "gemv",
        "bf16 and fp16, at most 4 rows of A: a warp streams rows of B [N, K] once and keeps a sum for each row of A",
        (BN, TN, STAGES),
        (GEMV_SHAPES,),
        _bind(("bn", "tn", "stages"), (8, 4, 2), (4, 1, 4), (8, 2, 4)),
    ),
    Kernel(
        "decode",
        "bf16 and fp16 on Hopper, tens of rows of A: B is the 64-row operand of wgmma, blocks of a cluster split k",
        (BM, BN, STAGES, SPLITS),
        (DECODE_FITS,),
        _bind(
            ("bm", "bn", "stages", "splits"),
            (8, 64, 10, 2),
            (16, 64, 6, 1),
            (32, 64, 6, 1),
            (32, 64, 10, 2),
            (64, 64, 8, 2),
            (128, 64, 8, 2),
            (16, 64, 10, 2),
        ),
        min_arch=90,
    ),
    Kernel(
        "wgmma",
        "bf16 and fp16 on Hopper: tensor copies fill a ring that two warp groups multiply from, in persistent clusters",
        (BM, BN, STAGES, CLUSTERM, CLUSTERN, PINGPONG, GROUP),
        (GROUP_ROWS, GROUP_SUMS, CLUSTER_SIZE, RING_FITS),
        _bind(
            ("bm", "bn", "stages", "clusterm", "clustern", "pingpong", "group"),
            (128, 256, 4, 2, 1, 0, 8),
            (256, 128, 4, 1, 2, 0, 8),
            (128, 192, 4, 2, 1, 1, 8),
            (128, 64, 7, 1, 1, 0, 8),
            (64, 128, 7, 1, 1, 1, 8),
            (64, 64, 8, 1, 1, 1, 8),
            (128, 128, 6, 2, 1, 1, 8),
        ),
        min_arch=90,
    ),
)

# ----------------------------------------------------------------------------------------------------------------- problems


def _problem(
    suite: str,
    m: int,
    n: int,
    k: int,
    act: str = "none",
    *,
    bias: bool = False,
    z: bool = False,
    padding: Mapping[str, int] | None = None,
    kind: str = "",
) -> Problem:
    """``kind`` is a 16-bit dtype and the layout of B, "bfloat16 nk"; empty for fp32."""
    attributes: dict[str, bool | int | float | str] = {"act": act}
    attributes |= dict(zip(("dtype", "b_layout"), kind.split(), strict=False))
    attributes |= {"with_bias": True} if bias else {}
    attributes |= {"save_z": True} if z else {}
    return Problem({"M": m, "N": n, "K": k}, attributes, padding or {}, frozenset(suite.split()))


PROBLEMS = (
    _problem("verify", 1, 1, 1),
    _problem("verify", 1, 65, 7, "relu", bias=True),
    _problem("verify", 37, 29, 1, "silu", z=True),
    _problem("verify", 15, 17, 31, "gelu_tanh", bias=True),
    _problem("verify", 33, 31, 32, "gelu_erf", bias=True, z=True),
    _problem("verify", 64, 64, 64, "relu"),
    _problem("verify", 63, 65, 16, "none", bias=True, z=True),
    _problem("verify", 65, 63, 17, "silu", bias=True, padding={"a": 3, "b": 1, "y": 1}),
    _problem("verify", 127, 128, 36, "gelu_tanh", bias=True, z=True, padding={"a": 4, "b": 4, "y": 4, "z": 4}),
    _problem("verify", 129, 100, 24, "relu", z=True, padding={"b": 8}),
    _problem("verify", 128, 257, 20, "gelu_erf"),
    _problem("verify", 5, 300, 131, "none", bias=True),
    _problem("verify", 131, 2, 100, "gelu_tanh", bias=True),
    _problem("verify", 97, 101, 103, "silu", bias=True, z=True),
    _problem("verify", 1, 8, 8, bias=True, kind="bfloat16 nk"),
    _problem("verify", 64, 64, 64, "relu", kind="bfloat16 nk"),
    _problem("verify", 65, 40, 1, "none", bias=True, padding={"a": 7, "b": 7}, kind="float16 nk"),
    _problem("verify", 33, 31, 29, "silu", bias=True, z=True, kind="bfloat16 kn"),
    _problem("verify", 5, 301, 131, "none", bias=True, kind="float16 nk"),
    _problem("verify", 130, 72, 200, "gelu_tanh", bias=True, z=True, kind="float16 kn"),
    _problem("verify", 257, 264, 72, "silu", bias=True, padding={"a": 8, "y": 8}, kind="bfloat16 kn"),
    _problem("verify", 129, 136, 136, "gelu_erf", bias=True, z=True, padding={"b": 8, "z": 8}, kind="float16 nk"),
    _problem("verify", 300, 328, 456, "gelu_tanh", bias=True, kind="bfloat16 nk"),
    # More tiles than multiprocessors: a block gets a second one.
    _problem("verify", 3, 200, 1000, "silu", bias=True, z=True, kind="float16 nk"),
    _problem("verify", 7, 88, 328, "gelu_erf", bias=True, kind="bfloat16 kn"),
    _problem("verify", 17800, 40, 72, "relu", bias=True, kind="bfloat16 nk"),
    _problem("emulated", 256, 256, 256),
    _problem("emulated", 384, 256, 320, "gelu_tanh", bias=True, kind="bfloat16 nk"),
    _problem("emulated", 200, 130, 77, "gelu_tanh", bias=True),
    _problem("bench", 1024, 1024, 1024),
    _problem("bench sweep", 2048, 2048, 2048),
    _problem("bench", 4096, 4096, 4096),
    _problem("bench", 4096, 4096, 4096, "gelu_tanh", bias=True),
    _problem("bench", 4095, 4097, 1023),
    _problem("bench", 16, 4096, 4096, "gelu_tanh", bias=True),
    _problem("bench", 1, 4096, 4096),
    _problem("bench sweep", 8192, 128, 1000),
    *(
        _problem("bench", m, n, k, act, bias=True, kind="bfloat16 nk")
        for m, n, k in (
            (512, 512, 512),
            (1024, 1024, 1024),
            (2048, 2048, 2048),
            (4096, 4096, 4096),
            (8192, 8192, 8192),
            (8192, 16384, 4096),
            (8192, 4096, 16384),
            (8192, 3072, 768),
            (16384, 4096, 1024),
        )
        for act in ("relu", "gelu_tanh")
    ),
    *(
        _problem("bench", m, n, k, "silu", bias=True, kind="bfloat16 nk")
        for m, n, k in ((4096, 4096, 4096), (8192, 3072, 768), (16384, 4096, 1024))
    ),
    _problem("bench", 8192, 3072, 768, "gelu_erf", bias=True, kind="bfloat16 nk"),
    *(
        _problem("bench", m, n, k, "gelu_tanh", bias=True, kind="bfloat16 nk")
        for n, k in ((4096, 4096), (12288, 2560), (2560, 4096), (14336, 4096))
        for m in (1, 2, 4, 8, 16, 32)
    ),
    *(_problem("bench", m, n, k, "gelu_tanh", bias=True, kind="bfloat16 nk") for m, n, k in ((128, 4096, 4096), (64, 16384, 4096))),
    _problem("bench", 4096, 4096, 4096, "gelu_tanh", bias=True, kind="bfloat16 kn"),
    _problem("bench", 4096, 4096, 4096, "gelu_tanh", bias=True, kind="float16 nk"),
    _problem("bench", 8192, 3072, 768, "gelu_erf", bias=True, z=True, kind="bfloat16 nk"),
    _problem("bench", 4095, 4097, 1023, "relu", bias=True, kind="bfloat16 nk"),
)


def _name_b(problem: Problem) -> tuple[str, ...]:
    return ("N", "K") if _is_nk(problem) else ("K", "N")


OP = Op(
    name="gemm_bias_act",
    summary="Y = act(A B + bias) in fp32, bf16 or fp16, row-major; the pre-activation Z on request",
    tensors=(
        Tensor("a", ("M", "K"), Role.INPUT, _dtype, can_pad_rows=True),
        Tensor("b", _name_b, Role.INPUT, _dtype, can_pad_rows=True),
        Tensor("bias", ("N",), Role.INPUT, _dtype, present=lambda p: bool(p.attributes.get("with_bias", False))),
        Tensor("y", ("M", "N"), Role.OUTPUT, _dtype, can_pad_rows=True),
        Tensor("z", ("M", "N"), Role.OUTPUT, _dtype, present=lambda p: bool(p.attributes.get("save_z", False)), can_pad_rows=True),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    attributes=(
        Attribute("act", ("none", "relu", "gelu_tanh", "gelu_erf", "silu"), "none"),
        Attribute("dtype", ("float32", "bfloat16", "float16"), "float32", passed=False),
        Attribute("b_layout", ("kn", "nk"), "kn"),
        Attribute("with_bias", (False, True), False, passed=False),
        Attribute("save_z", (False, True), False, passed=False),
    ),
)
