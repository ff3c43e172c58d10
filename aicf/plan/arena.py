"""Offsets for buffers, some of which must not share bytes: the best of three orders, each placed at the lowest offset that fits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aicf.plan.data import ALIGNMENT_BYTES

# Of the lower bound; another order costs more time than the rest is worth.
_GOOD_ENOUGH = 1.01
# For as many buffers a search is worth its time: at most as many orders are tried, of as many buffers in all (a tenth of a second).
_FEW, _TRIES, _NUM_PLACED = 400, 200, 12_000
# How much of the lower bound an order may lose at first in that search.
_SLACK = 0.15


def align(size_bytes: int) -> int:
    """Return a size rounded up to the alignment of buffers."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def place(sizes: Sequence[int], spans: Sequence[int], conflicts: NDArray[np.bool_], lower_bound: int) -> tuple[list[int], int]:
    """Return offsets and the arena's size in bytes. Sizes are aligned ones; ``spans`` are how long buffers live, in steps.

    Orders are tried until one is within a hundredth of the lower bound: by size, by area (size times span), and as buffers are first
    written. Where none is, and buffers are few, a search goes on from the best of them.
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
    """Return the best offsets that a search among orders finds: the same ones for the same buffers.

    A buffer that ends above the bound is put earlier at a time; what is worse is accepted at first, less and less (G. Dueck and T. Scheuer,
    "Threshold accepting", J. Comput. Phys. 90, 1990).
    """
    rng, total = np.random.default_rng(0), int((offsets + sizes).max(initial=0))
    best, least, current = offsets, total, offsets
    num_tries = min(_TRIES, _NUM_PLACED // len(sizes))
    for i in range(num_tries):
        above = np.flatnonzero(current[order] + sizes[order] > lower_bound)
        place = int(rng.choice(above))
        tried = np.insert(np.delete(order, place), int(rng.integers(0, max(place, 1))), order[place])
        found = _fit(tried, sizes, conflicts)
        new_total = int((found + sizes).max(initial=0))
        if new_total <= total + _SLACK * (1.0 - i / num_tries) * lower_bound:
            order, current, total = tried, found, new_total
        if total < least:
            best, least = current, total
        if least <= _GOOD_ENOUGH * lower_bound:
            break
    return best, least


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
