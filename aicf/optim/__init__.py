"""Optimizers, learning rates as expressions of the step, and clipping. An optimizer knows only parameters and gradients."""

from aicf.optim.clipping import clip_grad_norm
from aicf.optim.optimizer import Group, Optimizer
from aicf.optim.rules import SGD, Adam, AdamW, Lion
from aicf.optim.scaling import LossScale
from aicf.optim.schedules import Schedule, constant, cosine, linear, one_cycle

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Group",
    "Lion",
    "LossScale",
    "Optimizer",
    "Schedule",
    "clip_grad_norm",
    "constant",
    "cosine",
    "linear",
    "one_cycle",
]
