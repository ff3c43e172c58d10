"""Clipping by the common norm of all gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aicf import functional as F
from aicf.modes import no_grad
from aicf.opset.updates import SCALES
from aicf.tensor import Tensor, apply

_EPS = 1e-6  # keeps a norm of zero from dividing


def find_norm(grads: Sequence[Tensor]) -> Tensor:
    """Return the root of the sum of all squares."""
    (total,) = apply("SumSquares", grads)
    return F.sqrt(total)


def weigh(gradient: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    """Return a gradient so that copied units count in a norm as they did before they were copied.

    A unit of r copies has r gradients of 1/r where its own parameters are, and of 1 where it is read: their squares count r and 1/r.
    """
    p_scale, g_scale = (state.get(name) for name in SCALES)
    if g_scale is not None:
        weight = 1.0 / g_scale if p_scale is None else p_scale / g_scale
    elif p_scale is not None:
        weight = p_scale
    else:
        return gradient
    return gradient * F.sqrt(weight).cast(gradient.dtype)


def find_factor(norm: Tensor, max_norm: float) -> Tensor:
    """Return what gradients are multiplied by so that their norm is at most ``max_norm``; 1 where it is."""
    return F.minimum(max_norm / (norm + _EPS), 1.0)


def clip_grad_norm(params: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale gradients in place so that their norm together is at most ``max_norm``; returns the norm that they had."""
    held = [p for p in params if p.grad is not None]
    if not held:
        raise ValueError("clip_grad_norm: no parameter has a gradient; call it after backward()")
    with no_grad():
        grads = [p.grad for p in held if p.grad is not None]
        norm = find_norm(grads)
        factor = find_factor(norm, max_norm)
        for p, gradient in zip(held, grads, strict=True):
            p.grad = gradient * factor
    return norm
