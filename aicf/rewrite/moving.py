"""Units of an array in another order, times factors: where the array is, by frozen kernels on a device.

On ``cuda`` fp32 arrays of one or two dimensions stay in device memory: rows are gathered by the frozen embedding, columns between two
transposes, and factors are multiplied in by the frozen elementwise product, of an array that the embedding has repeated them to. All of
these are frozen kernels, and none is a chain that would have to be compiled; only indices and factors come from the host. Other arrays, and
those whose kernels are not in the cache where compiling is barred, go through host memory, bit for bit the same, and the log says which.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.backends import Backend, find_backend
from aicf.errors import UnsupportedError
from aicf.opset import find_op
from aicf.rewrite.records import Map, Numbers
from aicf.tensor import Tensor
from contract.building import NotBuiltError

_log = logging.getLogger("aicf.rewrite")


def take(array: NDArray[Any], mapping: Map, factors: Numbers) -> NDArray[Any]:
    """Return a host array with the units that a map names, each times its factor, rounded once.

    Factors of fp32 arrays are rounded to fp32 first, as those of a device are; those of fp16 and bf16 are not.
    """
    assert mapping.dim is not None and mapping.index is not None
    taken = np.take(array, np.asarray(mapping.index, np.int64), axis=mapping.dim)
    if factors is None:
        return taken
    along = lie_along(np.asarray(factors), mapping.dim, array.ndim)
    if array.dtype in (np.float32, np.float64):
        made: NDArray[Any] = taken * along.astype(array.dtype)
        return made
    return (taken.astype(np.float64) * along).astype(array.dtype)


def lie_along(factors: NDArray[np.float64], dim: int, rank: int) -> NDArray[np.float64]:
    """Return a vector as an array of ``rank`` dimensions that lies along one of them."""
    return factors.reshape([-1 if axis == dim else 1 for axis in range(rank)])


class Mover:
    """Takes units as one map says: of a parameter and of its states, which need the same indices and factors on a device."""

    def __init__(self, mapping: Map) -> None:
        assert mapping.dim is not None and mapping.index is not None
        self._mapping, self._dim = mapping, mapping.dim
        self._index = np.asarray(mapping.index, np.int64)
        self._uploaded: dict[tuple[tuple[int, ...], str, bytes], Any] = {}

    def take(self, tensor: Tensor, factors: Numbers) -> Tensor:
        """Return what :func:`take` does of a tensor's values, where the tensor is."""
        if tensor.backend.name == "cuda" and tensor.dtype == "float32" and tensor.ndim in (1, 2):
            try:
                return Tensor.wrap(self._take_there(tensor, factors), tensor.backend)
            except (NotBuiltError, UnsupportedError) as error:
                _log.warning("%s goes through host memory: %s", self._mapping.owner, error)
        return Tensor.wrap(take(tensor.numpy(), self._mapping, factors), find_backend("numpy"))

    def _take_there(self, tensor: Tensor, factors: Numbers) -> Any:
        """Return the backend's array of the units that the map names, each times its factor."""
        backend, index, dim = tensor.backend, self._index, self._dim
        if tensor.ndim == 1:
            rows = _call(backend, "Reshape", tensor.data, shape=(tensor.shape[0], 1))
            taken = _call(backend, "Reshape", self._gather(backend, rows, index), shape=(len(index),))
        elif dim == 0:
            taken = self._gather(backend, tensor.data, index)
        else:
            taken = _turn(backend, self._gather(backend, _turn(backend, tensor.data), index))
        if factors is None:
            return taken
        shape = (*tensor.shape[:dim], len(index), *tensor.shape[dim + 1 :])
        repeated = self._repeat(backend, np.asarray(factors, np.float32), shape)
        one = Tensor.wrap(taken, backend) * Tensor.wrap(repeated, backend)
        return one.data

    def _repeat(self, backend: Backend, factors: NDArray[np.float32], shape: tuple[int, ...]) -> Any:
        """Return an array of a shape that has the factors along the map's dimension."""
        if len(shape) == 1:
            return self._upload(backend, factors)
        repeats = np.zeros(shape[1 - self._dim], np.int64)
        lying = self._gather(backend, self._upload(backend, factors[None]), repeats)
        return lying if self._dim == 1 else _turn(backend, lying)

    def _gather(self, backend: Backend, rows: Any, index: NDArray[np.int64]) -> Any:
        return _call(backend, "Embedding", rows, self._upload(backend, index))

    def _upload(self, backend: Backend, values: NDArray[Any]) -> Any:
        """Return a host array on the device, where it is brought once."""
        key = values.shape, values.dtype.name, values.tobytes()
        if key not in self._uploaded:
            self._uploaded[key] = backend.from_host(values)
        return self._uploaded[key]


def _turn(backend: Backend, matrix: Any) -> Any:
    return _call(backend, "Permute", matrix, order=(1, 0))


def _call(backend: Backend, op: str, *inputs: Any, **attrs: Any) -> Any:
    (made,) = backend.op_call(op, inputs, find_op(op).fill(attrs))
    return made
