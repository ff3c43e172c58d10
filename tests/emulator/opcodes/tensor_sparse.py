"""Metadata of sparse A: which elements are stored, and the lanes' words that say so. PTX ISA, "Sparse matrix storage".

A unit of k is an element, or of the 4-bit types a pair. Of every four units two are stored; of tf32 one of two.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray


def draw_units(name: str, cases: int, m: int, units: int, is_tf32: bool) -> NDArray[np.int64]:
    """Return the units [cases, m, units / 2] that are stored, in order."""
    rng = np.random.default_rng(zlib.crc32(name.encode()) ^ 2)
    if is_tf32:
        return np.arange(units // 2) * 2 + rng.integers(0, 2, (cases, m, units // 2))
    pairs = np.array([(i, j) for j in range(4) for i in range(j)])
    chosen = pairs[rng.integers(0, len(pairs), (cases, m, units // 4))]
    return (chosen + np.arange(units // 4)[:, None] * 4).reshape(cases, m, -1)


def pack_metadata(stored: NDArray[np.int64], bits: int, selector: int) -> NDArray[np.uint32]:
    """Return words [warps, 32] for rows [warps, 16, stored units]; lanes that do not count hold garbage."""
    warps, _, count = stored.shape
    words = np.full((warps, 32), 0xDEADBEEF, np.uint32)
    codes = stored % 4 if bits != 32 else np.where(stored % 2, 0b1110, 0b0100)
    width = 4 if bits == 32 else 2
    per_word = 32 // width // (2 if bits >= 16 else 1)  # stored units of a row that a lane has: those of 16-bit types share a word by rows
    parts = count // per_word
    for row in range(16):
        quad, upper = row % 8 * 4, row // 8
        for part in range(parts):
            mine = codes[:, row, part * per_word : (part + 1) * per_word].astype(np.uint64)
            value = (mine << (np.arange(per_word, dtype=np.uint64) * np.uint64(width))).sum(-1).astype(np.uint32)
            if bits >= 16:
                lane = quad + (selector if parts == 1 else 2 * selector + part)
                keep = np.uint32(0xFFFF << (16 * (1 - upper)))
                words[:, lane] = words[:, lane] & keep | value << np.uint32(16 * upper)
            else:
                words[:, quad + upper + 2 * (selector if parts == 1 else part)] = value
    return words


def expand(values: NDArray[np.float64], stored: NDArray[np.int64], k: int, per_unit: int) -> NDArray[np.float64]:
    """Return the whole matrix [cases, m, k] of stored values [cases, m, k / 2]; the rest is zeros."""
    at = (stored[..., None] * per_unit + np.arange(per_unit)).reshape(*stored.shape[:2], -1)
    whole = np.zeros((*values.shape[:2], k))
    np.put_along_axis(whole, at, values, -1)
    return whole
