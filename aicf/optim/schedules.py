"""Learning rates as expressions of the step, made of tensor functions: a plan computes them on its device, without a callback.

``total`` and ``warmup`` count steps. In step ``s`` (from 0 on) a warm-up has the rate ``peak (s + 1) / warmup``, until it ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from aicf import functional as F
from aicf.backends import find_backend
from aicf.tensor import Tensor


@dataclass(frozen=True)
class Schedule:
    """A rate as a function of the number of steps done, a float32 scalar."""

    name: str
    expression: Callable[[Tensor], Tensor]

    def __call__(self, steps_done: Tensor) -> Tensor:
        """Return the rate of the next step, a float32 scalar."""
        return self.expression(steps_done)

    def at(self, steps_done: int) -> float:
        """Return the rate as a number, for tables and pictures."""
        return float(self.expression(Tensor(float(steps_done), backend=find_backend("numpy"))))


def constant(rate: float, *, warmup: int = 0) -> Schedule:
    """Return a rate that stays, after a warm-up."""
    return Schedule(f"constant({rate})", _with_warmup(lambda s: s * 0.0 + rate, rate, warmup))


def linear(peak: float, *, total: int, warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Return a rate that falls on a line from ``peak`` to ``floor`` at step ``total``."""
    return Schedule(f"linear({peak})", _with_warmup(lambda s: (1.0 - _progress(s, warmup, total)) * (peak - floor) + floor, peak, warmup))


def cosine(peak: float, *, total: int, warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Return a rate that falls on half a cosine from ``peak`` to ``floor`` at step ``total``."""
    return Schedule(f"cosine({peak})", _with_warmup(lambda s: _half_cosine(_progress(s, warmup, total), peak, floor), peak, warmup))


def one_cycle(peak: float, *, total: int, rise: float = 0.3, start: float = 0.04, end: float = 4e-6) -> Schedule:
    """Return a rate that rises on half a cosine from ``start peak`` to ``peak`` in the first part, ``rise``, and falls to ``end peak``."""
    turn = max(round(total * rise), 1)

    def expression(s: Tensor) -> Tensor:
        up = _half_cosine(_progress(s, 0, turn), start * peak, peak)
        return F.where(s < float(turn), up, _half_cosine(_progress(s, turn, total), peak, end * peak))

    return Schedule(f"one_cycle({peak})", expression)


def _progress(s: Tensor, begin: int, end: int) -> Tensor:
    """Return how much of the steps from ``begin`` to ``end`` are done, 0 to 1."""
    return F.minimum(F.maximum((s - float(begin)) * (1.0 / max(end - begin, 1)), 0.0), 1.0)


def _half_cosine(progress: Tensor, first: float, last: float) -> Tensor:
    return (F.cos(progress * math.pi) + 1.0) * (0.5 * (first - last)) + last


def _with_warmup(after: Callable[[Tensor], Tensor], peak: float, warmup: int) -> Callable[[Tensor], Tensor]:
    if warmup < 0:
        raise ValueError(f"warmup={warmup}: must be at least 0 steps")
    if warmup == 0:
        return after
    return lambda s: F.where(s < float(warmup), (s + 1.0) * (peak / warmup), after(s))
