"""Activations as modules."""

from __future__ import annotations

from aicf import functional as F
from aicf.nn.module import Module
from aicf.tensor import Tensor


class ReLU(Module):
    """``max(x, 0)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation."""
        return F.relu(x)


class GELU(Module):
    """``x Phi(x)``, with ``approximate="tanh"`` by the tanh formula."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation."""
        return F.gelu(x, approximate=self.approximate)

    def describe(self) -> str:
        """Return the formula."""
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """``x sigmoid(x)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation."""
        return F.silu(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation."""
        return F.tanh(x)


class Sigmoid(Module):
    """``1 / (1 + e^-x)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation."""
        return F.sigmoid(x)


class Softmax(Module):
    """Softmax over the last axis."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the weights."""
        return F.softmax(x)
