"""Triton as a peer: one autotuned kernel, ``Y = act(A B^T + bias)`` on 16-bit floats with fp32 sums, the epilogue fused.

Blocks are numbered in groups of rows for the L2, as in Triton's own tutorial "Matrix Multiplication"; tile, warps and stages are tuned for
each problem when it is first met.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

_ACTIVATIONS = {"none": 0, "relu": 1, "gelu_tanh": 2, "gelu_erf": 3, "silu": 4}
_CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": 64, "GROUP": 8}, num_warps=warps, num_stages=stages)
    for bm, bn, warps, stages in (
        (128, 256, 8, 3),
        (128, 256, 8, 4),
        (256, 128, 8, 3),
        (128, 128, 4, 4),
        (128, 128, 8, 4),
        (64, 256, 4, 4),
    )
]


@triton.autotune(configs=_CONFIGS, key=["m", "n", "k", "ACT"], warmup=5, rep=20)
@triton.jit
def _multiply(
    a_ptr,
    b_ptr,
    bias_ptr,
    y_ptr,
    m,
    n,
    k,
    lda,
    ldb,
    ldy,
    ACT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):  # type: ignore[no-untyped-def]
    block = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    first = block // (GROUP * tiles_n) * GROUP
    rows = min(tiles_m - first, GROUP)
    tile_m = first + block % (GROUP * tiles_n) % rows
    tile_n = block % (GROUP * tiles_n) // rows
    offsets_m = (tile_m * BM + tl.arange(0, BM)) % m
    offsets_n = (tile_n * BN + tl.arange(0, BN)) % n
    offsets_k = tl.arange(0, BK)
    a = a_ptr + offsets_m[:, None] * lda + offsets_k[None, :]
    b = b_ptr + offsets_n[None, :] * ldb + offsets_k[:, None]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(k, BK)):
        left = k - step * BK
        sums = tl.dot(tl.load(a, mask=offsets_k[None, :] < left, other=0.0), tl.load(b, mask=offsets_k[:, None] < left, other=0.0), sums)
        a += BK
        b += BK
    z = sums + tl.load(bias_ptr + offsets_n)[None, :].to(tl.float32)
    if ACT == 1:
        z = tl.maximum(z, 0.0)
    elif ACT == 2:
        z = 0.5 * z * (1.0 + libdevice.tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)))
    elif ACT == 3:
        z = 0.5 * z * (1.0 + libdevice.erf(z * 0.7071067811865476))
    elif ACT == 4:
        z = z * tl.sigmoid(z)
    places_m = tile_m * BM + tl.arange(0, BM)
    places_n = tile_n * BN + tl.arange(0, BN)
    y = y_ptr + places_m[:, None] * ldy + places_n[None, :]
    tl.store(y, z.to(y_ptr.dtype.element_ty), mask=(places_m[:, None] < m) & (places_n[None, :] < n))


def multiply(a: Any, b: Any, bias: Any, y: Any, act: str) -> None:
    """Queue the product on PyTorch's current stream. a [m, k], b [n, k], bias [n], y [m, n]; the first call for a size tunes it."""
    (m, k), n = a.shape, b.shape[0]

    def count_blocks(meta: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)

    _multiply[count_blocks](a, b, bias, y, m, n, k, a.stride(0), b.stride(0), y.stride(0), ACT=_ACTIVATIONS[act])
