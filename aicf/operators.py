"""Python's operators and basic indices, for tensors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np


class Operators:
    """Arithmetic and comparisons by elementwise functions; an operand may be a number."""

    __slots__ = ()

    @property
    @abstractmethod
    def dtype(self) -> str:
        """The dtype's name."""

    @abstractmethod
    def _lift(self, other: Any) -> Self:
        """Return an operand as a tensor."""

    @abstractmethod
    def _unary(self, function: str) -> Self:
        """Return an elementwise function of this tensor."""

    @abstractmethod
    def _binary(self, function: str, other: Any) -> Self:
        """Return an elementwise function of this tensor and an operand."""

    def __add__(self, other: Any) -> Self:
        return self._binary("add", other)

    def __sub__(self, other: Any) -> Self:
        return self._binary("sub", other)

    def __mul__(self, other: Any) -> Self:
        return self._binary("mul", other)

    def __truediv__(self, other: Any) -> Self:
        return self._binary("div", other)

    def __pow__(self, other: Any) -> Self:
        return self._binary("pow", other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Self:
        return self._lift(other)._binary("sub", self)

    def __rtruediv__(self, other: Any) -> Self:
        return self._lift(other)._binary("div", self)

    def __neg__(self) -> Self:
        return self._unary("neg")

    def __abs__(self) -> Self:
        return self._unary("abs")

    def __and__(self, other: Any) -> Self:
        return self._logical("mul", other)

    def __or__(self, other: Any) -> Self:
        return self._logical("max", other)

    def __invert__(self) -> Self:
        return self._logical("eq", False)

    def _logical(self, function: str, other: Any) -> Self:
        """Return a function of booleans; raises TypeError for anything else."""
        operand = self._lift(other)
        for dtype in (self.dtype, operand.dtype):
            if dtype != "bool":
                raise TypeError(f"&, | and ~ take booleans, got {dtype}; compare first: x > 0")
        return self._binary(function, operand)

    def __eq__(self, other: object) -> Any:
        """Return where elements are equal; with anything that is no number and no array, whether it is this object."""
        return self._binary("eq", other) if isinstance(other, (Operators, int, float, np.generic, np.ndarray)) else NotImplemented

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else ~equal

    __hash__ = object.__hash__  # tensors are keys by what they are, not by their values

    def __lt__(self, other: Any) -> Self:
        return self._binary("lt", other)

    def __le__(self, other: Any) -> Self:
        return self._binary("le", other)

    def __gt__(self, other: Any) -> Self:
        return self._binary("gt", other)

    def __ge__(self, other: Any) -> Self:
        return self._binary("ge", other)


def read_key(key: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], list[bool]]:
    """Return where a basic index starts and stops along each axis, and which axes it keeps; raises IndexError or TypeError."""
    keys = key if isinstance(key, tuple) else (key,)
    if len(keys) > len(shape):
        raise IndexError(f"{len(keys)} indices for shape {shape}")
    starts: list[int] = []
    stops: list[int] = []
    kept: list[bool] = []
    for one, n in zip((*keys, *[slice(None)] * (len(shape) - len(keys))), shape, strict=True):
        if isinstance(one, slice):
            start, stop, step = one.indices(n)
            if step != 1:
                raise TypeError(f"slices have step 1, got {one.step}")
            starts, stops, kept = [*starts, start], [*stops, max(start, stop)], [*kept, True]
        elif isinstance(one, (int, np.integer)) and not isinstance(one, bool):
            if not -n <= one < n:
                raise IndexError(f"index {one} is out of range for an axis of {n}")
            starts, stops, kept = [*starts, int(one) % n], [*stops, int(one) % n + 1], [*kept, False]
        else:
            raise TypeError(f"an index is an integer or a slice, got {type(one).__name__}; rows by a tensor of indices: F.embedding")
    return tuple(starts), tuple(stops), kept
