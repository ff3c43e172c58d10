"""Arguments at and beyond the limits of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col, and reductions with their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

if __package__:
    from .tma_device import MAP_BYTES, aligned_bytes
    from .tma_model import BF16, F16, F32, F64, I32, I64, U8, U16, U32, U64, Bytes, Copy
else:
    from tma_device import MAP_BYTES, aligned_bytes
    from tma_model import BF16, F16, F32, F64, I32, I64, U8, U16, U32, U64, Bytes, Copy

TILE = Copy("tile", F16, (64, 32, 8), (128, 4096), (32, 16, 4), (0, 0, 0))
PIXELS = Copy("pixels", F16, (64, 14, 14, 4), (128, 1792, 25088), (64, 32), (0, 0, 0, 0), lower=(-1, -1), upper=(-1, -1), offsets=(0, 0))


def _u64(*values: int) -> Any:
    return np.array(values, np.uint64)


def _u32(*values: int) -> Any:
    return np.array(values, np.uint32)


def _i32(*values: int) -> Any:
    return np.array(values, np.int32)


def encode_cases(address: int) -> list[tuple[str, Copy, dict[str, Any]]]:
    """Return (name, copy, changed arguments); `address` is of device memory, 256-byte aligned."""
    cases: list[tuple[str, Copy, dict[str, Any]]] = [
        ("valid", TILE, {}),
        ("null map", TILE, {"map": None}),
        ("map aligned to 32", TILE, {"map": aligned_bytes(32 + MAP_BYTES, 64)[32:]}),
        ("null address", TILE, {"address": None}),
        ("address aligned to 8", TILE, {"address": address + 8}),
        ("address aligned to 16", TILE, {"address": address + 16}),
        ("null dims", TILE, {"dims": None}),
        ("null strides", TILE, {"strides": None}),
        ("null box", TILE, {"box": None}),
        ("null steps", TILE, {"steps": None}),
        ("rank 0", TILE, {"rank": 0}),
        ("rank 6", TILE, {"rank": 6}),
        ("rank 1, null strides", TILE, {"rank": 1, "strides": None}),
        ("dim 0", TILE, {"dims": _u64(64, 0, 8)}),
        ("dim 2^32", TILE, {"dims": _u64(64, 1 << 32, 8)}),
        ("dim 2^32 + 1", TILE, {"dims": _u64(64, (1 << 32) + 1, 8)}),
        ("stride of 8", TILE, {"strides": _u64(136, 4096)}),
        ("stride 0", TILE, {"strides": _u64(0, 4096)}),
        ("stride below the row", TILE, {"strides": _u64(64, 4096)}),
        ("strides that overlap", TILE, {"strides": _u64(128, 1024)}),
        ("stride 2^40", TILE, {"strides": _u64(128, 1 << 40)}),
        ("stride 2^40 - 16", TILE, {"strides": _u64(128, (1 << 40) - 16)}),
        ("box 0", TILE, {"box": _u32(32, 0, 4)}),
        ("box 256", TILE, {"box": _u32(32, 256, 4)}),
        ("box 257", TILE, {"box": _u32(32, 257, 4)}),
        ("box beyond the tensor", TILE, {"box": _u32(128, 64, 16)}),
        ("inner box of 8 bytes", TILE, {"box": _u32(4, 16, 4)}),
        ("inner box of 24 bytes", TILE, {"box": _u32(12, 16, 4)}),
        ("box of more than shared memory", TILE, {"box": _u32(256, 256, 256)}),
        ("step 0", TILE, {"steps": _u32(1, 0, 1)}),
        ("step 0 of dimension 0", TILE, {"steps": _u32(0, 1, 1)}),
        ("step 8", TILE, {"steps": _u32(1, 8, 1)}),
        ("step 9", TILE, {"steps": _u32(1, 9, 1)}),
        ("step 9 of dimension 0", TILE, {"steps": _u32(9, 1, 1)}),
        ("step 2 of dimension 0", TILE, {"steps": _u32(2, 1, 1)}),
        ("type 13", TILE, {"type": 13}),
        ("type 16", TILE, {"type": 16}),
        ("type -1", TILE, {"type": -1}),
        ("interleave 3", TILE, {"interleave": 3}),
        ("swizzle 7", TILE, {"swizzle": 7}),
        ("promotion 3", TILE, {"promotion": 3}),
        ("promotion 4", TILE, {"promotion": 4}),
        ("fill NaN", TILE, {"fill": 1}),
        ("fill 2", TILE, {"fill": 2}),
        ("interleave of rank 2", TILE, {"interleave": 1, "rank": 2}),
        ("interleave 16B", TILE, {"interleave": 1}),
        ("interleave 16B, inner box of 16 bytes", TILE, {"interleave": 1, "box": _u32(8, 16, 4)}),
        ("interleave 32B without swizzle", TILE, {"interleave": 2}),
        ("interleave 32B, swizzle 32B", TILE, {"interleave": 2, "swizzle": 1}),
        ("interleave 32B, swizzle 64B", TILE, {"interleave": 2, "swizzle": 2}),
        ("interleave 32B, address aligned to 16", TILE, {"interleave": 2, "swizzle": 1, "address": address + 16}),
        ("interleave 32B, stride of 16", TILE, {"interleave": 2, "swizzle": 1, "strides": _u64(144, 144 * 32)}),
    ]
    for swizzle, most in ((1, 16), (2, 32), (3, 64)):
        cases.append((f"swizzle {swizzle}, widest box", TILE, {"swizzle": swizzle, "box": _u32(most, 16, 4)}))
        cases.append((f"swizzle {swizzle}, box too wide", TILE, {"swizzle": swizzle, "box": _u32(most + 8, 16, 4)}))
    cases += [(f"swizzle {swizzle} of newer chips", TILE, {"swizzle": swizzle}) for swizzle in (4, 5, 6)]
    cases += [
        (f"NaN fill of type {kind}", TILE, {"type": kind, "fill": 1}) for kind in (U8, U16, U32, I32, U64, I64, F32, F64, BF16, 10, 11, 12)
    ]
    cases += [
        ("im2col", PIXELS, {}),
        ("im2col of rank 2", PIXELS, {"rank": 2}),
        ("im2col of rank 6", PIXELS, {"rank": 6}),
        ("im2col, null lower", PIXELS, {"lower": None}),
        ("im2col, null upper", PIXELS, {"upper": None}),
        ("im2col, 256 channels", PIXELS, {"channels": 256}),
        ("im2col, 257 channels", PIXELS, {"channels": 257}),
        ("im2col, 0 channels", PIXELS, {"channels": 0}),
        ("im2col, 4 channels", PIXELS, {"channels": 4}),
        ("im2col, 1024 pixels", PIXELS, {"pixels": 1024}),
        ("im2col, 1025 pixels", PIXELS, {"pixels": 1025}),
        ("im2col, 0 pixels", PIXELS, {"pixels": 0}),
        ("im2col, lower -128", PIXELS, {"lower": _i32(-128, -1)}),
        ("im2col, lower -129", PIXELS, {"lower": _i32(-129, -1)}),
        ("im2col, upper 127", PIXELS, {"upper": _i32(127, -1)}),
        ("im2col, upper 128", PIXELS, {"upper": _i32(128, -1)}),
        ("im2col, empty pixel box", PIXELS, {"lower": _i32(0, 0), "upper": _i32(-14, 0)}),
        ("im2col, crossed pixel box", PIXELS, {"lower": _i32(0, 0), "upper": _i32(-20, 0)}),
        ("im2col, swizzle 64B of 128 bytes", PIXELS, {"swizzle": 2}),
        ("im2col, swizzle 128B", PIXELS, {"swizzle": 3}),
        ("im2col, step 8", PIXELS, {"steps": _u32(1, 8, 1, 1)}),
        ("im2col, step 9", PIXELS, {"steps": _u32(1, 9, 1, 1)}),
        ("im2col, step 0", PIXELS, {"steps": _u32(1, 0, 1, 1)}),
    ]
    return cases


OPERATIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec")


def _values(random: np.random.Generator, count: int, kind: int, dtype: np.dtype[Any], op: int) -> Bytes:
    """Return the bytes of random numbers of the kind; small ones where the operation wraps around."""
    if kind in (F16, BF16, F32):
        single = (random.standard_normal(count) * 8).astype(np.float32)
        if kind == BF16:
            return (single.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return single.astype(dtype).view(np.uint8)
    if OPERATIONS[op] in ("inc", "dec"):
        return random.integers(0, 12, count, dtype).view(np.uint8)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, count, dtype, endpoint=True).view(np.uint8)


def reduction_cases() -> list[tuple[str, Copy, int, Bytes, Bytes]]:
    """Return (name, copy, operation, tensor, image) of the reductions that PTX names."""
    random = np.random.default_rng(11)
    out: list[tuple[str, Copy, int, Bytes, Bytes]] = []
    kinds: dict[int, tuple[int, ...]] = {
        U32: (0, 1, 2, 3, 4, 5, 6, 7),
        I32: (0, 1, 2, 3, 4, 5),
        U64: (0, 1, 2, 3, 4, 5),
        I64: (1, 2, 3, 4, 5),
        F16: (0, 1, 2),
        BF16: (0, 1, 2),
        F32: (0,),
    }
    dtypes = {U32: np.uint32, I32: np.int32, U64: np.uint64, I64: np.int64, F16: np.float16, F32: np.float32, BF16: np.uint16}
    for kind, operations in kinds.items():
        dtype = np.dtype(dtypes[kind])
        for op in operations:
            copy = Copy(f"{OPERATIONS[op]}_{kind}", kind, (32, 6), (32 * dtype.itemsize,), (16, 4), (24, 3))
            image = np.zeros(2048, np.uint8)
            image[: copy.box_bytes] = _values(random, 64, kind, dtype, op)
            out.append((copy.name, copy, op, _values(random, 32 * 6, kind, dtype, op), image))
    return out
