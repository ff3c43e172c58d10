"""An optimizer that tests on a device share, where what it updates by is not the point."""

from __future__ import annotations

from aicf import nn, optim


def make_shared_adamw(model: nn.Module) -> optim.Optimizer:
    """Return AdamW with the numbers of ``profiles/rewrite``: they are part of kernels, which all who have the same ones compile once."""
    return optim.AdamW(model.parameters(), lr=1e-3, eps=1e-8, weight_decay=0.1)
