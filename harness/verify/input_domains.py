"""Random values within a tensor's domain, for every distribution: indices below a size, booleans, probabilities, ranges.

A distribution keeps its point where the domain has room for it: ``ties`` draws few values, the ``largest_`` ones put one value of each row
above the others, at the place that they name; the others draw evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.spec import Booleans, Indices, Positive, Probabilities, Problem, Tensor, Uniform, Values
from harness.spec.dtypes import is_float

# Of indices one in so many is one of those that are allowed beside the range.
_ALSO_EVERY = 8
_Array = NDArray[Any]


def find_limit(tensor: Tensor, problem: Problem) -> int:
    """Return what the indices of a tensor lie below, 0 where it holds none."""
    values = tensor.resolve_values(problem)
    if not isinstance(values, Indices):
        return 0
    below = values.below
    return below if isinstance(below, int) else problem.sizes[below]


def draw_in_domain(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], distribution: str, values: Values, limit: int
) -> _Array:
    """Return values of a domain; rows are all along the last axis."""
    if isinstance(values, Indices):
        drawn = _draw_range(rng, shape, distribution, 0, limit - 1)
        others = values.also if distribution == "uniform" else (*values.also, *values.wrong)
        also = np.array(others or (0,), np.int64)
        return np.where(rng.random(shape) < 1 / _ALSO_EVERY, rng.choice(also, shape), drawn) if others else drawn
    if isinstance(values, Booleans):
        return _draw_range(rng, shape, distribution, 0, 1)
    if isinstance(values, Positive):
        low, high = np.log(values.low), np.log(values.high)
        return np.asarray(np.clip(np.exp(low + (high - low) * _draw_shares(rng, shape, distribution)), values.low, values.high))
    if isinstance(values, Uniform):
        if not is_float(dtype):
            return _draw_range(rng, shape, distribution, int(np.ceil(values.low)), int(np.floor(values.high)))
        return values.low + (values.high - values.low) * _draw_shares(rng, shape, distribution)
    assert isinstance(values, Probabilities)
    shares = _draw_shares(rng, shape, distribution)
    if not values.rows_sum_to_one:
        return shares
    return np.asarray((shares + 1e-3) / (shares + 1e-3).sum(axis=-1, keepdims=True))


def _draw_range(rng: np.random.Generator, shape: tuple[int, ...], distribution: str, low: int, high: int) -> _Array:
    """Return integers from ``low`` to ``high``."""
    if distribution == "ties":
        return rng.choice(np.array(sorted({low, (low + high) // 2, high}), np.int64), shape)
    if distribution in _PLACES:
        return _raise_one(rng, shape, distribution, np.int64(low), np.int64(high))
    return rng.integers(low, high, shape, np.int64, endpoint=True)


def _draw_shares(rng: np.random.Generator, shape: tuple[int, ...], distribution: str) -> _Array:
    """Return numbers from 0 to 1, both of them possible."""
    if distribution == "ties":
        return rng.choice(np.array([0.0, 0.25, 0.5, 1.0]), shape)
    if distribution in _PLACES:
        return _raise_one(rng, shape, distribution, np.float64(0.0), np.float64(1.0))
    return rng.random(shape)


_PLACES: dict[str, Callable[[np.random.Generator, int, int], _Array]] = {
    "largest_first": lambda rng, num_rows, columns: np.zeros(num_rows, np.int64),
    "largest_last": lambda rng, num_rows, columns: np.full(num_rows, columns - 1),
    "largest_middle": lambda rng, num_rows, columns: np.full(num_rows, columns // 2),
    "largest_anywhere": lambda rng, num_rows, columns: np.resize(rng.permutation(columns), num_rows),
    "one_differs": lambda rng, num_rows, columns: np.resize(rng.permutation(columns), num_rows),
}


def _raise_one(rng: np.random.Generator, shape: tuple[int, ...], distribution: str, low: Any, high: Any) -> _Array:
    """Return rows that are ``low`` but for one place that is ``high``."""
    rows = np.full(shape, low).reshape(-1, shape[-1])
    rows[np.arange(len(rows)), _PLACES[distribution](rng, len(rows), shape[-1])] = high
    return rows.reshape(shape)
