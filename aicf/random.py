"""Random numbers by counter: a seed and an offset that moves on with each call, so that a run can be repeated and resumed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aicf.backends import find_backend
from aicf.modes import MODES
from aicf.opset.dropout import draw_uniform
from aicf.tensor import Tensor


class Generator:
    """Where dropout's masks come from. ``counter`` is a tensor of uint64[2], seed and offset, on the host or in a plan's memory."""

    def __init__(self, seed: int = 0) -> None:
        self.counter = Tensor(np.array([seed, 0], np.uint64), backend=find_backend("numpy"))

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self.counter.numpy()[0])

    @property
    def offset(self) -> int:
        """How many calls have drawn."""
        return int(self.counter.numpy()[1])

    def _move(self, seed: int, offset: int) -> None:
        self.counter.copy_(Tensor(np.array([seed, offset], np.uint64), backend=self.counter.backend))

    def draw(self, like: Tensor) -> tuple[Tensor, int]:
        """Return the counter, and how far behind its offset one call's numbers are; the offset moves on by one."""
        if MODES.recorder is not None:
            return MODES.recorder.draw(self)
        counter = Tensor(self.counter.numpy(), backend=like.backend)
        self._move(self.seed, self.offset + 1)
        return counter, 0

    def uniform(self, shape: Sequence[int], low: float, high: float) -> NDArray[np.float32]:
        """Return numbers in [low, high) for a new parameter, in host memory; the offset moves on by one."""
        seed, offset = self.seed, self.offset
        self._move(seed, offset + 1)
        drawn = draw_uniform(math.prod(shape), seed, offset).reshape(tuple(shape))
        return (low + (high - low) * drawn).astype(np.float32)

    def normal(self, shape: Sequence[int], deviation: float) -> NDArray[np.float32]:
        """Return normally distributed numbers for a new parameter, in host memory, by Box and Muller's transform."""
        first, second = (self.uniform(shape, 0.0, 1.0).astype(np.float64) for _ in range(2))
        made: NDArray[np.float32] = (deviation * np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second)).astype(np.float32)
        return made

    def state_dict(self) -> dict[str, int]:
        """Return what :meth:`load_state_dict` takes."""
        return {"seed": self.seed, "offset": self.offset}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where a state was taken."""
        self._move(state["seed"], state["offset"])


_generator = Generator()


def find_generator() -> Generator:
    """Return the generator that calls without one of their own use."""
    return _generator


def manual_seed(seed: int) -> Generator:
    """Start the generator that calls without one of their own use from a seed."""
    _generator.load_state_dict({"seed": seed, "offset": 0})
    return _generator
