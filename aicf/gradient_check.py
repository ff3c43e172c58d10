"""Gradients checked against finite differences: what shows that the gradient rule of an op is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.autograd import grad
from aicf.errors import GradientError
from aicf.tensor import Tensor

STEP = 1e-5
# Central differences: the third derivative's share and rounding's, of values of about 1; both are below 1e-9 at this step.
BOUND = 2e-7


def find_slope(function: Callable[[Any], float], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the gradient of a function of an array by central differences."""
    x, found = np.array(x), np.zeros_like(x)
    for at in np.ndindex(x.shape):
        before = x[at]
        x[at] = before + STEP
        above = function(x)
        x[at] = before - STEP
        found[at] = (above - function(x)) / (2.0 * STEP)
        x[at] = before
    return found


def gradcheck(function: Callable[..., Tensor], inputs: Sequence[Tensor], *, bound: float = BOUND) -> None:
    """Hold a function's gradients with respect to all inputs against central differences; twice as many calls as there are elements.

    Inputs are float64 and not near a kink or jump of the function; its output is weighted so that no two elements count alike. ``bound`` is
    the largest error over one plus the largest gradient. Raises TypeError for other inputs, and :class:`~aicf.errors.GradientError` naming
    the input, the element and both values where they differ.
    """
    for i, x in enumerate(inputs):
        if x.dtype != "float64":
            raise TypeError(f"gradcheck: input {i} is {x.dtype}; differences need float64: x.cast('float64')")
    backend = inputs[0].backend
    weights: list[Tensor] = []

    def weigh(*values: Tensor) -> Tensor:
        made = function(*values)
        if not weights:
            weights.append(Tensor(np.random.default_rng(11).uniform(0.5, 1.5, size=made.shape), backend=backend))
        return (made * weights[0]).sum()

    found = grad(weigh, range(len(inputs)))(*inputs)
    for i, gradient in enumerate(found):
        before, after = inputs[:i], inputs[i + 1 :]

        def value(x: Any, before: Sequence[Tensor] = before, after: Sequence[Tensor] = after) -> float:
            return float(weigh(*before, Tensor(x, backend=backend), *after).item())

        expected, given = find_slope(value, inputs[i].numpy()), gradient.numpy()
        errors = np.abs(given - expected)
        # So that NaN fails.
        if not errors.max(initial=0.0) <= bound * (1.0 + np.abs(expected).max(initial=0.0)):
            at = tuple(int(n) for n in np.unravel_index(np.argmax(np.where(np.isnan(errors), np.inf, errors)), errors.shape))
            raise GradientError(f"gradcheck: input {i} at {at}: the gradient is {given[at]:.9g}, and differences say {expected[at]:.9g}")
