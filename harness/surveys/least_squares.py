"""Least squares with weights of at least 0, of which only some are not 0: the best of the plain solutions on all subsets of few columns."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
# Added to the diagonal of normal equations of columns of length 1: of columns that are as good as equal, any will do.
_LIFT = 1e-10
# Squared errors of so many parts of the target's are as good as equal: the first of them is taken, on every machine.
_ALIKE = 1e-9


@cache
def _list_subsets(num_columns: int, count: int) -> NDArray[np.intp]:
    return np.array(list(itertools.combinations(range(num_columns), count)), np.intp)


def choose_columns(matrices: _Floats, target: _Floats, most: int) -> tuple[list[tuple[int, ...]], _Floats]:
    """Return for each of several matrices the columns whose solution has the least ``|matrix x - target|^2``, and that.

    ``matrices`` is [matrices, rows, columns]. At most ``most`` columns are chosen, but one at least; those that leave weights below 0 are
    not.
    """
    lengths = np.sqrt((matrices**2).sum(axis=1))
    scaled = matrices / np.where(lengths > 0.0, lengths, 1.0)[:, np.newaxis]
    products = scaled.transpose(0, 2, 1) @ scaled + _LIFT * np.eye(matrices.shape[2])
    aims = np.einsum("mri,r->mi", scaled, target)
    size = float(target @ target)
    chosen: list[tuple[int, ...]] = [()] * len(matrices)
    least = np.full(len(matrices), size)
    for count in range(1, min(matrices.shape[2], max(most, 1)) + 1):
        subsets = _list_subsets(matrices.shape[2], count)
        sides = aims[:, subsets]
        squares = products[:, subsets[:, :, np.newaxis], subsets[:, np.newaxis, :]]
        found = np.linalg.solve(squares, sides[..., np.newaxis])[..., 0]
        errors = np.where((found >= 0.0).all(axis=2), size - (found * sides).sum(axis=2), np.inf)
        first = np.argmax(errors <= errors.min(axis=1, keepdims=True) + _ALIKE * size, axis=1)
        fewest = errors[np.arange(len(errors)), first]
        for i in np.flatnonzero(fewest < least - _ALIKE * size).tolist():
            chosen[i], least[i] = tuple(subsets[first[i]].tolist()), fewest[i]
    return chosen, np.maximum(least, 0.0)


def solve_columns(matrix: _Floats, target: _Floats, columns: tuple[int, ...]) -> _Floats:
    """Return the x with the least ``|matrix x - target|^2`` that is 0 but for some columns, and nowhere below 0."""
    found = np.zeros(matrix.shape[1])
    if columns:
        found[list(columns)] = np.maximum(np.linalg.lstsq(matrix[:, columns], target, rcond=None)[0], 0.0)
    return found


def solve_nonnegative(matrix: _Floats, target: _Floats, most: int | None = None) -> _Floats:
    """Return the x >= 0 with the least ``|matrix x - target|^2``, of which at most ``most`` are not 0."""
    columns, _ = choose_columns(matrix[np.newaxis], target, matrix.shape[1] if most is None else most)
    return solve_columns(matrix, target, columns[0])
