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
    """Where dropout's masks come from. ``seed`` and ``offset`` are host tensors, uint64 scalars."""

    def __init__(self, seed: int = 0) -> None:
        host = find_backend("numpy")
        self.seed = Tensor(np.uint64(seed), backend=host)
        self.offset = Tensor(np.uint64(0), backend=host)

    def draw(self, like: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return seed, offset and how far behind the offset one call's numbers are; the offset moves on by one."""
        if MODES.recorder is not None:
            return MODES.recorder.draw(self)
        seed, offset = (Tensor(t.numpy(), backend=like.backend) for t in (self.seed, self.offset))
        self.offset.copy_(int(self.offset.item()) + 1)
        return seed, offset, 0

    def uniform(self, shape: Sequence[int], low: float, high: float) -> NDArray[np.float32]:
        """Return numbers in [low, high) for a new parameter, in host memory; the offset moves on by one."""
        offset = int(self.offset.item())
        self.offset.copy_(offset + 1)
        drawn = draw_uniform(math.prod(shape), int(self.seed.item()), offset).reshape(tuple(shape))
        return (low + (high - low) * drawn).astype(np.float32)

    def normal(self, shape: Sequence[int], deviation: float) -> NDArray[np.float32]:
        """Return normally distributed numbers for a new parameter, in host memory, by Box and Muller's transform."""
        first, second = (self.uniform(shape, 0.0, 1.0).astype(np.float64) for _ in range(2))
        made: NDArray[np.float32] = (deviation * np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second)).astype(np.float32)
        return made

    def state_dict(self) -> dict[str, int]:
        """Return what :meth:`load_state_dict` takes."""
        return {"seed": int(self.seed.item()), "offset": int(self.offset.item())}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where a state was taken."""
        self.seed.copy_(state["seed"])
        self.offset.copy_(state["offset"])


_generator = Generator()


def find_generator() -> Generator:
    """Return the generator that calls without one of their own use."""
    return _generator


def manual_seed(seed: int) -> Generator:
    """Start the generator that calls without one of their own use from a seed."""
    _generator.load_state_dict({"seed": seed, "offset": 0})
    return _generator
