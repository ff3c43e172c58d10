"""Units of an array in another order, times factors: where the array is, by frozen kernels on a device.

On ``cuda`` fp32 arrays of one or two dimensions stay in device memory: rows are gathered by the frozen embedding, columns between two
transposes, and factors are multiplied in by the frozen elementwise product, of an array that the embedding has repeated them to. All of
these are frozen kernels, and none is a chain that would have to be compiled; only indices and factors come from the host. Other arrays, and
those whose kernels are not in the cache where compiling is barred, go through host memory, bit for bit the same, and the log says which.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
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
    taken = np.take(array, mapping.read(mapping.index), axis=mapping.dim)
    if factors is None:
        return taken
    along = lie_along(mapping.read(factors), mapping.dim, array.ndim)
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
        self._mapping, self._dim, self._index = mapping, mapping.dim, mapping.index
        self._brought: dict[Hashable, Any] = {}

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
        backend, count, dim = tensor.backend, len(self._index), self._dim
        index = self._bring(backend, "index", lambda: self._mapping.read(self._index).astype(np.int64, copy=False))
        if tensor.ndim == 1:
            rows = _call(backend, "Reshape", tensor.data, shape=(tensor.shape[0], 1))
            taken = _call(backend, "Reshape", _call(backend, "Embedding", rows, index), shape=(count,))
        elif dim == 0:
            taken = _call(backend, "Embedding", tensor.data, index)
        else:
            taken = _turn(backend, _call(backend, "Embedding", _turn(backend, tensor.data), index))
        if factors is None:
            return taken
        shape = (*tensor.shape[:dim], count, *tensor.shape[dim + 1 :])
        one = Tensor.wrap(taken, backend) * Tensor.wrap(self._repeat(backend, factors, shape), backend)
        return one.data

    def _repeat(self, backend: Backend, factors: tuple[float, ...], shape: tuple[int, ...]) -> Any:
        """Return an array of a shape that has the factors along the map's dimension."""
        held = self._bring(backend, id(factors), lambda: self._mapping.read(factors).astype(np.float32))
        if len(shape) == 1:
            return held
        repeats = self._bring(backend, "repeats", lambda: np.zeros(shape[1 - self._dim], np.int64))
        lying = _call(backend, "Embedding", _call(backend, "Reshape", held, shape=(1, len(factors))), repeats)
        return lying if self._dim == 1 else _turn(backend, lying)

    def _bring(self, backend: Backend, name: Hashable, make: Callable[[], NDArray[Any]]) -> Any:
        """Return a host array on the device, to where it is brought once; factors by the identity of theirs, which the map keeps."""
        if name not in self._brought:
            self._brought[name] = backend.from_host(make())
        return self._brought[name]


def _turn(backend: Backend, matrix: Any) -> Any:
    return _call(backend, "Permute", matrix, order=(1, 0))


def _call(backend: Backend, op: str, *inputs: Any, **attrs: Any) -> Any:
    (made,) = backend.op_call(op, inputs, find_op(op).fill(attrs))
    return made
