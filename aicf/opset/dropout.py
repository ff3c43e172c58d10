"""Dropout by counter: which elements stay depends on a seed, an offset and an element's index alone (Philox 4x32-10).

The mask is never stored: the backward pass makes it again from the same counter.
J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.opset.definition import REQUIRED, Arrays, Backward, OpDef, Types, V, same_floats
from aicf.opset.types import Attrs, Type

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(counters: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return four 32-bit words per counter of four words ([..., 4]), as uint64."""
    c = [counters[..., i].astype(np.uint64) for i in range(4)]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(_ROUNDS):
        first, second = c[0] * np.uint64(_MULTIPLIERS[0]), c[2] * np.uint64(_MULTIPLIERS[1])
        c = [(second >> _HALF) ^ c[1] ^ np.uint64(key[0]), second & _LOW, (first >> _HALF) ^ c[3] ^ np.uint64(key[1]), first & _LOW]
        key = [(k + w) & 0xFFFFFFFF for k, w in zip(key, _WEYL, strict=True)]
    return np.stack(c, axis=-1)


def draw_uniform(num_elems: int, seed: int, offset: int) -> NDArray[np.float64]:
    """Return numbers in [0, 1) with 24 bits, one per element: word i % 4 of the counter (i // 4, offset)."""
    groups = np.arange((num_elems + 3) // 4, dtype=np.uint64)
    high = np.full_like(groups, offset & 0xFFFFFFFF), np.full_like(groups, offset >> 32 & 0xFFFFFFFF)
    words = philox(np.stack([groups & _LOW, groups >> _HALF, *high], axis=-1), seed)
    made: NDArray[np.float64] = (words.reshape(-1)[:num_elems] >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return made


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x, *counters = types
    assert x is not None
    same_floats("Dropout", ("x",), (x,))
    p = attrs["p"]
    if not isinstance(p, (int, float)) or not 0.0 <= p < 1.0:
        raise ValueError(f"Dropout: p: expected a number in [0, 1), got {p!r}")
    for name, found in zip(("seed", "offset"), counters, strict=True):
        if found != Type("uint64", ()):
            raise TypeError(f"Dropout: {name}: expected uint64[], got {found}")
    return (x,)


def _drop(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    x, seed, offset = arrays
    p, skip = attrs["p"], attrs["skip"]
    assert isinstance(p, (int, float)) and isinstance(skip, int)
    stays = draw_uniform(x.size, int(seed), int(offset) + skip).reshape(x.shape) >= p
    return (np.where(stays, x / (1.0 - p), 0.0),)


def _differentiate(g: Backward, dy: V) -> tuple[V, None, None]:
    return g.one("Dropout", dy, g["seed"], g["offset"], p=g.attrs["p"], skip=g.attrs["skip"]), None, None


OPS = (
    OpDef(
        "Dropout",
        ("x", "seed", "offset"),
        ("y",),
        _infer,
        _drop,
        {"p": REQUIRED, "skip": 0},
        _differentiate,
        lambda attrs, needed: {"seed", "offset"},
    ),
)
