"""What happens before what: steps on streams in order, and waits between streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Clocks:
    """Vector clocks of steps as they are added: how many steps of each stream are over when a step begins."""

    def __init__(self, num_streams: int) -> None:
        self._ends: list[list[int]] = []  # by step: the clock when it is over
        self._last: list[list[int]] = [[0] * num_streams for _ in range(num_streams)]
        self._counts = [0] * num_streams
        self.begins: list[list[int]] = []
        self.places: list[tuple[int, int]] = []  # by step: its stream, and its number there

    def add(self, stream: int, depends: Sequence[int]) -> tuple[int, ...]:
        """Add a step that runs behind others; returns those of other streams that it has to wait for, no more than needed."""
        clock = list(self._last[stream])
        waits = []
        for step in sorted(set(depends), reverse=True):  # a later step's clock tells of earlier ones
            other, number = self.places[step]
            if clock[other] <= number:
                waits.append(step)
                clock = [max(a, b) for a, b in zip(clock, self._ends[step], strict=True)]
        self.begins.append(clock)
        self.places.append((stream, self._counts[stream]))
        self._counts[stream] += 1
        end = list(clock)
        end[stream] = self._counts[stream]
        self._ends.append(end)
        self._last[stream] = end
        return tuple(sorted(waits))

    def to_array(self) -> NDArray[np.int32]:
        """Return the clocks at which steps begin, [steps, streams]."""
        return np.array(self.begins, dtype=np.int32).reshape(len(self.begins), len(self._counts))


def find_conflicts(clocks: Clocks, writers: Sequence[int], accesses: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Return which pairs of buffers must not share bytes, [buffers, buffers].

    Two may share where all accesses of one (its writer's among them) are over before the other one's writer begins, on whatever streams.
    """
    begins = clocks.to_array()
    num_streams = begins.shape[1]
    last = np.full((len(writers), num_streams), -1, dtype=np.int32)
    for i, steps in enumerate(accesses):
        for step in steps:
            stream, number = clocks.places[step]
            last[i, stream] = max(last[i, stream], number)
    starts = begins[np.asarray(writers, dtype=np.intp)].reshape(len(writers), num_streams)
    before = np.ones((len(writers), len(writers)), dtype=np.bool_)
    for s in range(num_streams):
        before &= last[:, s, None] < starts[None, :, s]
    conflicts: NDArray[np.bool_] = ~(before | before.T)
    np.fill_diagonal(conflicts, False)
    return conflicts


def find_lower_bound(clocks: Clocks, writers: Sequence[int], accesses: Sequence[Sequence[int]], sizes: Sequence[int]) -> int:
    """Return bytes that are alive together at some step: no arena is smaller.

    A buffer is alive at a step behind its writer, or that step itself, as long as an access of it is not over when the step begins: two
    such buffers cannot share bytes.
    """
    if not writers:
        return 0
    begins = clocks.to_array()
    places = np.array(clocks.places, dtype=np.int32)
    streams, numbers = places[np.asarray(writers), 0], places[np.asarray(writers), 1]
    last = np.full((len(writers), begins.shape[1]), -1, dtype=np.int32)
    for i, steps in enumerate(accesses):
        for step in steps:
            stream, number = clocks.places[step]
            last[i, stream] = max(last[i, stream], number)
    bytes_ = np.asarray(sizes, dtype=np.int64)
    best = 0
    for step in sorted(set(writers)):
        stream, number = clocks.places[step]
        is_made = (begins[step][streams] > numbers) | ((streams == stream) & (numbers == number))
        is_needed = (last >= begins[step][None, :]).any(axis=1)
        best = max(best, int(bytes_[is_made & is_needed].sum()))
    return best
