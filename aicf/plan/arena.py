"""Offsets for buffers, some of which must not share bytes: the best of three orders, each placed at the lowest offset that fits."""

from __future__ import annotations

import math
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
    others = [np.flatnonzero(row).tolist() for row in conflicts]
    bytes_ = np.asarray(sizes, dtype=np.int64)
    areas = bytes_ * np.asarray(spans, dtype=np.int64)
    orders = (np.argsort(-bytes_, kind="stable"), np.argsort(-areas, kind="stable"), np.arange(len(sizes)))
    best: list[int] = []
    chosen, least = orders[0].tolist(), -1
    for order in (order.tolist() for order in orders):
        offsets, total = _fit(order, sizes, others)
        if least < 0 or total < least:
            best, chosen, least = offsets, order, total
        if least <= _GOOD_ENOUGH * lower_bound:
            break
    if least > _GOOD_ENOUGH * lower_bound and len(sizes) <= _FEW:
        best, least = _improve(chosen, best, least, sizes, others, lower_bound)
    return best, max(least, 0)


def _improve(
    order: list[int], offsets: list[int], total: int, sizes: Sequence[int], conflicts: Sequence[Sequence[int]], lower_bound: int
) -> tuple[list[int], int]:
    """Return the best offsets that a search among orders finds: the same ones for the same buffers.

    A buffer that ends above the bound is put earlier at a time; what is worse is accepted at first, less and less (G. Dueck and T. Scheuer,
    "Threshold accepting", J. Comput. Phys. 90, 1990). What stands before it stays where it is.
    """
    rng = np.random.default_rng(0)
    best, least, current = offsets, total, offsets
    num_tries = min(_TRIES, _NUM_PLACED // len(sizes))
    for i in range(num_tries):
        above = [place for place, buffer in enumerate(order) if current[buffer] + sizes[buffer] > lower_bound]
        place = above[rng.integers(len(above))]
        earlier = int(rng.integers(max(place, 1)))
        tried = [*order[:earlier], order[place], *order[earlier:place], *order[place + 1 :]]
        most = total + _SLACK * (1.0 - i / num_tries) * lower_bound
        found, new_total = _fit(tried, sizes, conflicts, current, earlier, most)
        if new_total <= most:
            order, current, total = tried, found, new_total
        if total < least:
            best, least = current, total
        if least <= _GOOD_ENOUGH * lower_bound:
            break
    return best, least


def _fit(
    order: Sequence[int],
    sizes: Sequence[int],
    conflicts: Sequence[Sequence[int]],
    kept: Sequence[int] = (),
    num_kept: int = 0,
    most: float = math.inf,
) -> tuple[list[int], int]:
    """Return each buffer's lowest offset at which it overlaps none of those before it in the order that it must not share bytes with.

    Beside them where the last of all ends. The first ``num_kept`` of the order stay at their offsets of ``kept``. With the first that ends
    above ``most`` fitting ends; the offsets of those behind it say nothing.
    """
    offsets = list(kept) if num_kept else [0] * len(sizes)
    ends = [0] * len(sizes)  # 0: not placed
    for i in order[:num_kept]:
        ends[i] = offsets[i] + sizes[i]
    for i in order[num_kept:]:
        size, free = sizes[i], 0
        for begin, end in sorted([(offsets[j], ends[j]) for j in conflicts[i] if ends[j]]):
            if begin - free >= size:
                break
            if end > free:
                free = end
        offsets[i], ends[i] = free, free + size
        if ends[i] > most:
            break
    return offsets, max(ends, default=0)
