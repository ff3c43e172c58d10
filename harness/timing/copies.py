"""What a copy on the device takes, by the bytes that it moves: the rate that memory gives, beside the peak that nothing reaches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # whoever reads times needs no device
    from device.interface import Device, Stream
    from harness.timing.timer import Timer

# Bytes read and written together. A launch that moves less is over before memory is busy; beyond the last the rate stays what it is.
SIZES_BYTES = tuple(1 << n for n in range(24, 31))
_TILE_BYTES = 1 << 24

# Bytes that were moved, and the cold median in microseconds, smallest first.
Copies = tuple[tuple[int, float], ...]


def measure_copies(device: Device, timer: Timer, sizes_bytes: Sequence[int] = SIZES_BYTES) -> Copies:
    """Time ``cudaMemcpyAsync`` from device to device, cold, of noise: half of each of ``sizes_bytes`` is read, half written."""
    # What noise does to the power that is drawn, zeros do not.
    tile = np.random.default_rng(0).integers(0, 256, _TILE_BYTES, dtype=np.uint8)
    return tuple((size, _time_copy(device, timer, tile, size // 2)) for size in sizes_bytes)


def _time_copy(device: Device, timer: Timer, tile: NDArray[Any], num_bytes: int) -> float:
    source, target = device.allocate(num_bytes), device.allocate(num_bytes)
    try:
        for offset in range(0, num_bytes, len(tile)):
            source.write(tile[: num_bytes - offset], offset)

        def launch(stream: Stream) -> None:
            target.copy_from(source, stream)

        return timer.measure_cold(launch).summary.median
    finally:
        source.free()
        target.free()


def find_copy_us(copies: Copies, moved_bytes: float) -> float | None:
    """Return what a copy takes that moves so many bytes, between those that were timed by rate; None of less than the smallest."""
    if not copies or moved_bytes < copies[0][0]:
        return None
    for (low, low_us), (high, high_us) in pairwise(copies):
        if moved_bytes <= high:
            share = log(moved_bytes / low) / log(high / low)
            return moved_bytes / ((1 - share) * low / low_us + share * high / high_us)
    last, last_us = copies[-1]
    return moved_bytes * last_us / last
