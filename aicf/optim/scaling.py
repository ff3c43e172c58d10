"""Loss scaling for float16, whose numbers end at 6e-8 and at 65504, made of tensor functions: a plan computes all of it on its device.

The backward pass begins with a scale in the place of 1, and updates divide by it again. A step whose gradients are not finite is left out:
parameters, optimizer state and the step count stay as they are, and the scale is reduced; after a number of steps that were taken in a row
it grows (P. Micikevicius et al., "Mixed Precision Training", 2018). Scales are powers of two by default, so that dividing is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from aicf import functional as F
from aicf.backends import find_backend
from aicf.opset.updates import LOSS_SCALE
from aicf.optim.clipping import find_factor
from aicf.tensor import Tensor

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Scaled:
    """What scaling makes of a step's gradients: scalars, float32.

    ``factor`` is what updates multiply the gradients by, and 0 where the step is left out. ``norm`` is that of all gradients as they would
    be without scaling, infinite or NaN where it is left out. ``scale`` and ``streak`` are those of the next step.
    """

    factor: Tensor
    norm: Tensor
    scale: Tensor
    streak: Tensor


class LossScale:
    """The scale of a loss, and how it changes.

    It begins at ``initial``. A step whose gradients overflow is left out, and multiplies it by ``backoff``; ``interval`` steps that were
    taken in a row multiply it by ``growth``; 1 for both keeps it constant. It stays between ``floor`` and ``ceiling``. ``scale`` and
    ``streak``, the steps taken since it changed last, are float32 scalars, which a compiled step keeps in its memory.

    Raises ValueError naming a number that makes no sense.
    """

    def __init__(
        self,
        initial: float = 2.0**16,
        *,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
        floor: float = 2.0**-14,
        ceiling: float = 2.0**24,
    ) -> None:
        if not 0.0 < floor <= initial <= ceiling < math.inf:
            raise ValueError(f"floor={floor}, initial={initial}, ceiling={ceiling}: must be positive, finite, and in this order")
        if not 1.0 <= growth < math.inf:
            raise ValueError(f"growth={growth}: must be at least 1 and finite")
        if not 0.0 < backoff <= 1.0:
            raise ValueError(f"backoff={backoff}: must be above 0 and at most 1")
        if not 1 <= interval < 2**24:  # steps are counted in fp32
            raise ValueError(f"interval={interval}: must be at least 1 step, and fewer than 2**24")
        self.growth, self.backoff, self.interval, self.floor, self.ceiling = growth, backoff, interval, floor, ceiling
        host = find_backend("numpy")
        self.scale = Tensor(np.float32(initial), backend=host)
        self.streak = Tensor(np.float32(0), backend=host)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What a step keeps of it, by the owner in its states."""
        return {LOSS_SCALE: self.scale, f"{LOSS_SCALE}_streak": self.streak}

    def __repr__(self) -> str:
        return f"LossScale(growth={self.growth}, backoff={self.backoff}, interval={self.interval})"

    def apply(self, total: Tensor, scale: Tensor, streak: Tensor, clip_norm: float | None) -> Scaled:
        """Return what becomes of a step where ``total`` is the sum of the squares of all gradients, as they are scaled.

        A gradient that is infinite or NaN makes the sum so. With ``clip_norm`` the factor bounds the norm without scaling by it.
        """
        is_finite = total <= _LARGEST  # not where it is NaN
        norm = F.sqrt(total) / scale
        factor = 1.0 / scale if clip_norm is None else find_factor(norm, clip_norm) / scale
        longer = streak + 1.0
        grows = longer >= float(self.interval)
        grown = F.where(grows, F.minimum(scale * self.growth, self.ceiling), scale)
        reduced = F.maximum(scale * self.backoff, self.floor)
        return Scaled(
            F.where(is_finite, factor, 0.0),
            norm,
            F.where(is_finite, grown, reduced),
            F.where(is_finite, F.where(grows, 0.0, longer), 0.0),
        )
