"""Types of values (a dtype and a shape), and the attributes with which ops are called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np

Attr = bool | int | float | str | tuple[int, ...] | None
Attrs = Mapping[str, Attr]

FLOATS = ("float64", "float32", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "uint64", "uint32", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")


@cache
def find_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of that name; bfloat16 is that of ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        made: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return made
    return np.dtype(name)


@dataclass(frozen=True, slots=True)
class Type:
    """A value's dtype and shape. Elements are row-major; where bytes lie is a plan's business."""

    dtype: str
    shape: tuple[int, ...]
    is_float: bool = field(init=False, repr=False, compare=False)  # whether it can have a gradient

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise TypeError(f"dtype {self.dtype!r} is unknown; there are: {', '.join(DTYPES)}")
        if any(n < 0 for n in self.shape):
            raise ValueError(f"shape {self.shape}: extents must not be negative")
        object.__setattr__(self, "is_float", self.dtype in FLOATS)  # asked of each output of each call

    @property
    def num_elems(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """How many bytes its elements take, one behind the other."""
        return self.num_elems * find_dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def reshape(self, shape: Sequence[int]) -> Type:
        """Return the type with another shape."""
        return Type(self.dtype, tuple(shape))

    def cast(self, dtype: str) -> Type:
        """Return the type with another dtype."""
        return Type(dtype, self.shape)


def freeze(attrs: Attrs) -> tuple[Any, ...]:
    """Return attributes as a key: zeros have signs in it, and True is not 1."""
    types = tuple(map(type, attrs.values()))
    if float in types:
        return types, *attrs, *[value.hex() if isinstance(value, float) else value for value in attrs.values()]
    return types, *attrs, *attrs.values()


def type_of(array: Any) -> Type:
    """Return the type of anything with ``dtype`` and ``shape``."""
    return _find_type(array.dtype, tuple(array.shape))


def require_contiguous(array: Any, name: str) -> None:
    """Raise ValueError, which begins with ``name``, for a device array with gaps between its rows: a type says nothing of strides."""
    if not getattr(array, "is_contiguous", True):
        strides = ", ".join(map(str, array.strides_bytes))
        raise ValueError(
            f"{name}: an array of shape {tuple(array.shape)} with strides of {strides} bytes is not contiguous; pass a contiguous copy"
        )


@lru_cache(maxsize=16384)
def _find_type(dtype: Any, shape: tuple[int, ...]) -> Type:
    return Type(dtype if isinstance(dtype, str) else dtype.name, shape)


def normalise_axes(axes: int | Sequence[int] | None, rank: int, op: str) -> tuple[int, ...]:
    """Return axes as sorted non-negative numbers, all of them for None; raises ValueError for one that is not there or is there twice."""
    given = range(rank) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    found = []
    for axis in given:
        if not -rank <= axis < rank:
            raise ValueError(f"{op}: axis {axis} is out of range for {rank} dimensions")
        found.append(axis % rank)
    if len(set(found)) < len(found):
        raise ValueError(f"{op}: axes {tuple(given)} name one axis twice")
    return tuple(sorted(found))


def broadcast_shapes(op: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that NumPy's broadcasting gives; raises ValueError naming the op and the shapes."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"{op}: shapes {' and '.join(map(str, shapes))} do not broadcast") from None
