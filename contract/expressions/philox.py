"""Philox 4x32-10 (J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in NumPy, bit for bit as on the device.

Element i of draw k has word ``i % 4`` of the block whose counter is (i / 4, the upper half with k in its top byte; offset), under the key
``seed``. So a mask follows from seed, offset and an element's number alone, whatever kernel makes it and in whichever order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# Blocks that are made together: what the rounds pass on stays in the cache.
_AT_A_TIME = 1 << 13

Words = NDArray[np.uint64]


def make_blocks(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Return the four words of the blocks with these counters, each word in the lower half of a uint64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = np.uint64(_MULTIPLIERS[0]) * c0, np.uint64(_MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = (second >> _HALF) ^ c1 ^ np.uint64(k0), second & _LOW, (first >> _HALF) ^ c3 ^ np.uint64(k1), first & _LOW
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def draw_words(elements: NDArray[Any], seed: int, offset: int, draw: int = 0) -> NDArray[np.uint32]:
    """Return the random word of each element, by its number; seed and offset are taken modulo 2^64."""
    index = np.asarray(elements, np.int64).astype(np.uint64)
    words = np.empty(index.shape, np.uint32)
    for part in _cut(index.size):
        numbers = index.reshape(-1)[part]
        drawn = _draw_blocks(numbers >> np.uint64(2), seed, offset, draw)
        words.reshape(-1)[part] = np.choose((numbers & np.uint64(3)).astype(np.intp), drawn)
    return words


def draw_sequence(num_elems: int, seed: int, offset: int, draw: int = 0) -> NDArray[np.uint32]:
    """Return what :func:`draw_words` returns of elements 0, 1, ..., with each block drawn once for its four."""
    words = np.empty(((num_elems + 3) // 4, 4), np.uint32)
    for part in _cut(len(words)):
        for place, word in enumerate(_draw_blocks(np.arange(part.start, part.stop, dtype=np.uint64), seed, offset, draw)):
            words[part, place] = word
    return words.reshape(-1)[:num_elems]


def _cut(count: int) -> Iterator[slice]:
    return (slice(start, min(start + _AT_A_TIME, count)) for start in range(0, count, _AT_A_TIME))


def _draw_blocks(block: Words, seed: int, offset: int, draw: int) -> tuple[Words, Words, Words, Words]:
    seed, offset = int(seed) % 2**64, int(offset) % 2**64
    low, high = block & _LOW, (block >> _HALF) | np.uint64(draw << 24)
    counter = (low, high, np.full_like(low, offset & 0xFFFFFFFF), np.full_like(low, offset >> 32))
    return make_blocks(counter, (seed & 0xFFFFFFFF, seed >> 32))


def find_kept(words: NDArray[np.uint32], share: float) -> NDArray[np.bool_]:
    """Return which elements are kept when a share of them is dropped: words from ``share * 2^32`` on, none from a share of 1 on."""
    share = float(np.float32(share))
    if not share < 1.0:
        return np.zeros(words.shape, np.bool_)
    return np.asarray(words >= np.uint32(int(max(share, 0.0) * 2.0**32)))
