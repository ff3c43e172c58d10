"""Losses as modules: scalars of outputs and targets."""

from __future__ import annotations

from aicf import functional as F
from aicf.nn.module import Module
from aicf.tensor import Tensor


class CrossEntropyLoss(Module):
    """Cross-entropy of logits and class indices."""

    def __init__(self, *, reduction: str = "mean", ignore_index: int = -100, label_smoothing: float = 0.0) -> None:
        self.reduction, self.ignore_index, self.label_smoothing = reduction, ignore_index, label_smoothing

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss."""
        return F.cross_entropy(
            logits, labels, reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing
        )


class MSELoss(Module):
    """Mean of squared differences."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.mse_loss(x, target)


class BCEWithLogitsLoss(Module):
    """Mean binary cross-entropy of logits and targets in [0, 1]."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return F.bce_with_logits(logits, target)
