"""How a parameter and its optimizer state go from one structure to the next.

A unit that is copied r times: its copies are its parameters as they were, and whoever reads it takes each copy 1/r times. Gradients of the
copies are then 1/r of what the unit's was, and gradients of the weights that read them are what they were. An optimizer's update scales in
the same way if its state does (first moments as gradients, second ones as their squares), and its rate and eps: ``p_scale`` and ``g_scale``
(:mod:`aicf.opset.updates`) say by how much parameter and gradient are scaled against the network before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.backends import find_backend
from aicf.errors import RewriteError
from aicf.opset import find_dtype
from aicf.opset.updates import SCALES
from aicf.rewrite.moving import Mover, lie_along
from aicf.rewrite.records import Map, Numbers
from aicf.tensor import Tensor

# The power of a gradient that each state is an average of.
POWERS: Mapping[str, int] = {"exp_avg": 1, "exp_avg_sq": 2, "momentum": 1}
P_SCALE, G_SCALE = SCALES
Arrays = dict[str, NDArray[Any]]


def make_map(owner: str, dim: int, index: NDArray[np.int64], shares: NDArray[np.float64], op: str, *, is_read: bool) -> Map:
    """Return how units go along an axis of a parameter: one by which units are read is scaled by shares, one by which they are made is not.

    ``op`` is the optimizer's rule: that of SGD follows the gradient, the others have steps that do not depend on its scale.
    """
    ones = np.ones_like(shares)
    p, g = (shares, ones) if is_read else (ones, shares)
    scale_p, scale_m = _write(p), _write(g)
    rate = _write(p / g) if op == "SGD" else scale_p
    made = Map(owner, dim, tuple(index.tolist()), scale_p, scale_m, _write(g * g), rate, scale_m)
    made.arrays.update((id(numbers), array) for numbers, array in ((made.index, index), (scale_p, p), (scale_m, g)) if numbers is not None)
    return made


def _write(scales: NDArray[np.float64]) -> Numbers:
    return None if np.all(scales == 1.0) else tuple(scales.tolist())


def carry(p: Tensor, state: Mapping[str, Tensor], mapping: Map) -> tuple[Tensor, dict[str, Tensor]]:
    """Return a parameter and its optimizer state after a map; raises :class:`RewriteError` for a state that nobody knows how to scale."""
    if unknown := sorted(state.keys() - POWERS.keys() - set(SCALES)):
        raise RewriteError(
            f"{mapping.owner}: how optimizer state {unknown[0]!r} scales with a gradient is not known; transport.POWERS says it"
        )
    scales = {1: mapping.scale_m, 2: mapping.scale_v}
    mover = Mover(mapping)
    new = mover.take(p, mapping.scale_p)
    made = {role: mover.take(held, scales[POWERS[role]]) for role, held in state.items() if role in POWERS}
    for role, factors in ((P_SCALE, mapping.scale_p), (G_SCALE, mapping.scale_m)):
        before = state.get(role)
        scale = _carry_scale(None if before is None else before.numpy(), p.ndim, mapping, factors)
        if scale is not None:
            made[role] = Tensor.wrap(scale.astype(find_dtype(p.dtype)), find_backend("numpy"))
    return new, made


def _carry_scale(scale: NDArray[Any] | None, rank: int, mapping: Map, factors: Numbers) -> NDArray[np.float64] | None:
    """Return a scale after a map, as small as it can be; None where it is 1 everywhere."""
    if scale is None and factors is None:
        return None
    assert mapping.dim is not None and mapping.index is not None
    made = np.ones((1,) * rank, np.float64) if scale is None else scale.astype(np.float64)
    if made.shape[mapping.dim] > 1:
        made = np.take(made, mapping.read(mapping.index), axis=mapping.dim)
    if factors is not None:
        made = made * lie_along(mapping.read(factors), mapping.dim, rank)
    for axis in range(made.ndim):
        first = np.take(made, [0], axis=axis) if made.shape[axis] else made
        if made.shape[axis] > 1 and np.all(made == first):
            made = first
    # Factors r and 1/r need not give 1 exactly: what is nearer than their rounding is.
    made = np.where(np.abs(made - 1.0) < 1e-14, 1.0, made)
    return None if np.all(made == 1.0) else made
