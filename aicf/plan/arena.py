"""Offsets for buffers, some of which must not share bytes: the best of three orders, each placed at the lowest offset that fits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aicf.plan.data import ALIGNMENT_BYTES

# Of the lower bound; another order costs more time than the rest is worth.
_GOOD_ENOUGH = 1.01
# For as many buffers a search is worth its time, some milliseconds.
_FEW, _TRIES = 64, 100


def align(size_bytes: int) -> int:
    """Return a size rounded up to the alignment of buffers."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def place(sizes: Sequence[int], spans: Sequence[int], conflicts: NDArray[np.bool_], lower_bound: int) -> tuple[list[int], int]:
    """Return offsets and the arena's size in bytes. Sizes are aligned ones; ``spans`` are how long buffers live, in steps.

    Orders are tried until one is within a hundredth of the lower bound: by size, by area (size times span), and as buffers are first
    written. Where none is, and buffers are few, those that lie on top are put earlier, as long as that does not make it worse.
    """
    bytes_ = np.asarray(sizes, dtype=np.int64)
    areas = bytes_ * np.asarray(spans, dtype=np.int64)
    orders = (np.argsort(-bytes_, kind="stable"), np.argsort(-areas, kind="stable"), np.arange(len(sizes)))
    best: NDArray[np.int64] = np.zeros(len(sizes), dtype=np.int64)
    chosen, least = orders[0], -1
    for order in orders:
        offsets = _fit(order, bytes_, conflicts)
        total = int((offsets + bytes_).max(initial=0))
        if least < 0 or total < least:
            best, chosen, least = offsets, order, total
        if least <= _GOOD_ENOUGH * lower_bound:
            break
    if least > _GOOD_ENOUGH * lower_bound and len(sizes) <= _FEW:
        best, least = _improve(chosen, best, bytes_, conflicts, lower_bound)
    return [int(offset) for offset in best], max(least, 0)


def _improve(
    order: NDArray[np.intp], offsets: NDArray[np.int64], sizes: NDArray[np.int64], conflicts: NDArray[np.bool_], lower_bound: int
) -> tuple[NDArray[np.int64], int]:
    """Return offsets after some steps of a search among orders: the same ones for the same buffers."""
    rng, least = np.random.default_rng(0), int((offsets + sizes).max(initial=0))
    for _ in range(_TRIES):
        on_top = np.flatnonzero(offsets[order] + sizes[order] == least)
        place = int(rng.choice(on_top))
        tried = np.insert(np.delete(order, place), int(rng.integers(0, max(place, 1))), order[place])
        found = _fit(tried, sizes, conflicts)
        total = int((found + sizes).max(initial=0))
        if total <= least:
            order, offsets, least = tried, found, total
        if least <= _GOOD_ENOUGH * lower_bound:
            break
    return offsets, least


def _fit(order: NDArray[np.intp], sizes: NDArray[np.int64], conflicts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return each buffer's lowest offset at which it overlaps none of those before it in the order that it must not share bytes with."""
    offsets = np.zeros(len(sizes), dtype=np.int64)
    is_placed = np.zeros(len(sizes), dtype=np.bool_)
    for i in order:
        others = np.flatnonzero(conflicts[i] & is_placed)
        if others.size:
            others = others[np.argsort(offsets[others], kind="stable")]
            starts = offsets[others]
            ends = np.maximum.accumulate(starts + sizes[others])
            free_from = np.concatenate(([0], ends[:-1]))
            fits = np.flatnonzero(starts - free_from >= sizes[i])
            offsets[i] = free_from[fits[0]] if fits.size else ends[-1]
        is_placed[i] = True
    return offsets
