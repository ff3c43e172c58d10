"""Where the elements of a strided array lie: shapes in elements, strides in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Shape, dtype and strides in bytes. Those that :func:`find_layout` returns are the same object where they are equal."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides_bytes: tuple[int, ...]
    size_bytes: int  # of the elements, without what lies between them


@lru_cache(maxsize=16384)
def find_layout(shape: tuple[int, ...], dtype: np.dtype[Any], strides_bytes: tuple[int, ...]) -> Layout:
    """Return the layout of an array."""
    return Layout(shape, dtype, strides_bytes, math.prod(shape) * dtype.itemsize)


def find_row_major(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
    """Return the layout of an array without gaps."""
    return find_layout(shape, dtype, contiguous_strides(shape, dtype.itemsize))


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the row-major strides, in bytes, of an array without gaps."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def check_dtype(dtype: np.dtype[Any]) -> None:
    """Refuse elements that device memory cannot hold: Python objects, and numbers in the other byte order."""
    if dtype.hasobject:
        raise ValueError(f"dtype {dtype}: only numbers can live in device memory")
    if not dtype.isnative:
        raise ValueError(f"dtype {dtype.str}: a device reads numbers in the machine's byte order; use {dtype.newbyteorder('=').str}")


def check_unmasked(name: str, values: NDArray[Any]) -> None:
    """Refuse a masked array, whose mask a copy of its elements would lose."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask, got a masked array; fill it first: values.filled(0)")


def check_strides(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse strides that are not one per axis, not a multiple of the alignment, or that lay two elements over each other."""
    if len(strides) != len(shape):
        raise ValueError(f"strides_bytes {strides}: shape {shape} needs {len(shape)} of them")
    end = dtype.itemsize
    for stride, size in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < end or stride % dtype.alignment:
            raise ValueError(f"strides_bytes {strides}: elements of {dtype}{list(shape)} would overlap, run backwards or be misaligned")
        end += (size - 1) * stride


def split_rows(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the bytes of a contiguous row, and (count, stride in bytes) of the axes around it, neighbours merged where they can be."""
    axes: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = (axes[-1][0] * size, stride)
        else:
            axes.append((size, stride))
    if axes and axes[-1][1] == itemsize:
        return axes.pop()[0] * itemsize, axes
    return itemsize, axes
