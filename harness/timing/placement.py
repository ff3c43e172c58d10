"""One problem at many places in device memory, for launches so short that the place matters.

A cold launch of 5 us takes 4.6 us or 5.0 us on an H200, depending on where its buffers lie: the same in every sample of a place, and
another in the next process, which gets other memory (``profiles/timing/h200.md``). So a short launch is timed over many
places in turn, and its median is that of all of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from device.interface import Device, Stream
from harness.spec import Launchable, Op, Problem
from harness.timing.batches import InPlaceLaunch, Launch, Mode
from harness.verify.case import Case

NUM_PLACES = 16
# Of more data than this a launch takes longer than the place of a few pages can show.
_MAX_BYTES = 32 << 20
# Between two places lie up to this many bytes, so that they differ in more than their neighbours do.
_MAX_SPACE_BYTES = 64 << 20


class Placements:
    """Copies of a problem's tensors, each an allocation elsewhere; what :class:`Case` is for one. Leaving it frees the memory.

    A problem of more than 32 MiB has one place. ``arguments``, :meth:`launch` and :meth:`read_outputs` are of the first, which is home to
    what is timed with a warm cache; the other methods act on all of them.
    """

    def __init__(self, device: Device, op: Op, problem: Problem, num_places: int = NUM_PLACES) -> None:
        self.device = device
        self.op = op
        self.problem = problem
        cost = op.cost(problem)
        count = num_places if cost.bytes_moved <= _MAX_BYTES else 1
        rng = random.Random(problem.name)
        spacers = []
        self._cases: list[Case] = []
        for _ in range(count):
            self._cases.append(Case(device, op, problem))
            spacers.append(device.allocate(rng.randrange(1, _MAX_SPACE_BYTES)) if count > 1 else None)
        for spacer in spacers:
            if spacer is not None:
                spacer.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for case in self._cases:
            case.free()

    @property
    def num_places(self) -> int:
        """How many copies there are."""
        return len(self._cases)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments at home; see :attr:`Case.arguments`."""
        return self._cases[0].arguments

    def upload(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Write the inputs, and poison what is written."""
        for case in self._cases:
            case.upload(inputs)
            if case.is_in_place:
                stream = self.device.create_stream()
                case.queue_restore(stream)
                stream.synchronize()

    def prepare(self, *launchables: Launchable) -> None:
        """Allocate the largest workspace that is asked for."""
        for case in self._cases:
            case.prepare(*launchables)

    def poison(self, byte: int) -> None:
        """Fill outputs and workspace with a byte."""
        for case in self._cases:
            case.poison(byte)

    def launch(self, launchable: Launchable, stream: Stream) -> None:
        """Queue the variant once, at home."""
        self._cases[0].launch(launchable, stream)

    def choose(self, launchable: Launchable, mode: Mode) -> Launch:
        """Return what is to be timed: cold launches take the places in turn, hot ones stay at home, where the cache is warm."""
        if mode is Mode.COLD:
            return self._rotate(launchable)
        home = self._cases[0]
        return self._make_launch(lambda stream: home.launch(launchable, stream), home.queue_restore)

    def _rotate(self, launchable: Launchable) -> Launch:
        turn = 0

        def launch(stream: Stream) -> None:
            nonlocal turn
            case = self._cases[turn % len(self._cases)]
            turn += 1
            case.launch(launchable, stream)

        return self._make_launch(launch, lambda stream: self._cases[turn % len(self._cases)].queue_restore(stream))

    def _make_launch(self, run: Launch, restore: Launch) -> Launch:
        return InPlaceLaunch(run, restore) if self._cases[0].is_in_place else run

    def read_outputs(self) -> dict[str, NDArray[Any]]:
        """Return the outputs at home."""
        return self._cases[0].read_outputs()

    def find_unwritten(self, outputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.bool_]]:
        """Return per output which elements still hold the poison."""
        return self._cases[0].find_unwritten(outputs)
