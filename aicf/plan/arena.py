"""Offsets for buffers, some of which must not share bytes: the best of three orders, each placed at the lowest offset that fits."""

from __future__ import annotations

import math
import operator
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
    lengths, rows = [int(size) for size in sizes], [np.flatnonzero(row).tolist() for row in conflicts]
    bytes_ = np.asarray(lengths, dtype=np.int64)
    areas = bytes_ * np.asarray(spans, dtype=np.int64)
    orders = (np.argsort(-bytes_, kind="stable"), np.argsort(-areas, kind="stable"), np.arange(len(sizes)))
    best: list[int] = []
    chosen, least = orders[0].tolist(), -1
    for order in (order.tolist() for order in orders):
        offsets = _fit(order, lengths, rows)
        assert offsets is not None
        total = _measure(offsets, lengths)
        if least < 0 or total < least:
            best, chosen, least = offsets, order, total
        if least <= _GOOD_ENOUGH * lower_bound:
            break
    if least > _GOOD_ENOUGH * lower_bound and len(sizes) <= _FEW:
        best, least = _improve(chosen, best, lengths, rows, lower_bound)
    return best, max(least, 0)


def _measure(offsets: Sequence[int], sizes: Sequence[int]) -> int:
    return max(map(operator.add, offsets, sizes), default=0)


def _improve(
    order: list[int], offsets: list[int], sizes: Sequence[int], conflicts: Sequence[Sequence[int]], lower_bound: int
) -> tuple[list[int], int]:
    """Return the best offsets that a search among orders finds: the same ones for the same buffers.

    A buffer that ends above the bound is put earlier at a time; what is worse is accepted at first, less and less (G. Dueck and T. Scheuer,
    "Threshold accepting", J. Comput. Phys. 90, 1990). What stands before it stays where it is.
    """
    rng, total = np.random.default_rng(0), _measure(offsets, sizes)
    best, least, current = offsets, total, offsets
    num_tries = min(_TRIES, _NUM_PLACED // len(sizes))
    for i in range(num_tries):
        above = [place for place, buffer in enumerate(order) if current[buffer] + sizes[buffer] > lower_bound]
        place = above[rng.integers(len(above))]
        earlier = int(rng.integers(max(place, 1)))
        tried = [*order[:earlier], order[place], *order[earlier:place], *order[place + 1 :]]
        found = _fit(tried, sizes, conflicts, current, earlier, total + _SLACK * (1.0 - i / num_tries) * lower_bound)
        if found is not None:
            order, current, total = tried, found, _measure(found, sizes)
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
) -> list[int] | None:
    """Return each buffer's lowest offset at which it overlaps none of those before it in the order that it must not share bytes with.

    The first ``num_kept`` of the order stay at their offsets of ``kept``. None where one would end above ``most``.
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
        if free + size > most:
            return None
        offsets[i], ends[i] = free, free + size
    return offsets
