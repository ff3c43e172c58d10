"""Where ops run: ``numpy`` (the reference), ``cuda`` (frozen kernels on a GPU or the emulated device) or ``torch`` (PyTorch's kernels).

One method: ``op_call``.
"""

from __future__ import annotations

import importlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.opset import Attrs, Type, find_dtype, type_of

BACKENDS = ("numpy", "cuda", "torch")


class Backend(ABC):
    """Runs ops on arrays of its own. It knows neither gradients nor layers."""

    name: str

    @abstractmethod
    def op_call(self, op: str, inputs: Sequence[Any | None], attrs: Attrs) -> tuple[Any, ...]:
        """Return the outputs of an op, new arrays or views of the inputs; attributes are complete.

        Raises TypeError or ValueError for inputs that the op does not take, and :class:`~aicf.errors.UnsupportedError` where no kernel
        serves the call.
        """

    @abstractmethod
    def from_host(self, values: NDArray[Any]) -> Any:
        """Return an array of this backend with the values of a host array, a copy."""

    @abstractmethod
    def to_host(self, array: Any) -> NDArray[Any]:
        """Return an array's values in host memory; a view where that is possible."""

    @abstractmethod
    def copy_into(self, target: Any, source: Any) -> None:
        """Overwrite an array's elements with those of another one of this backend, of the same type."""

    def type_of(self, array: Any) -> Type:
        """Return an array's type."""
        return type_of(array)


class RecordingBackend(Backend):
    """Makes nodes of a graph of calls; what modules and generators do meanwhile is told to it."""

    @abstractmethod
    def lift(self, tensor: Any) -> Any:
        """Return a tensor of the program as one whose array is a value of the graph."""

    @abstractmethod
    def draw(self, generator: Any) -> tuple[Any, int]:
        """Return a generator's counter as a tensor of the graph, and which draw of a run this is."""

    @abstractmethod
    def scope(self, module: Any) -> AbstractContextManager[None]:
        """Make the block's nodes a module's."""


class _Default:
    name = "numpy"


_opening = threading.RLock()
_opened: dict[str, Backend] = {}


def find_backend(name: str) -> Backend:
    """Return a backend by name, opened when it is first asked for. Any thread may call it.

    Raises ValueError for an unknown one, ImportError without PyTorch.
    """
    if (found := _opened.get(name)) is not None:
        return found
    if name not in BACKENDS:
        raise ValueError(f"no backend {name!r}; there are: {', '.join(BACKENDS)}")
    with _opening:  # there is one of each: tensors of two would not go together
        if name not in _opened:
            try:
                module = importlib.import_module(f"aicf.backends.{name}")
            except ModuleNotFoundError as error:
                if error.name != name:
                    raise
                raise ImportError(f"backend {name!r} needs PyTorch, which is not installed: pip install torch") from error
            _opened[name] = module.BACKEND()
        return _opened[name]


def find_default() -> Backend:
    """Return the backend of new tensors."""
    return find_backend(_Default.name)


def set_backend(name: str) -> None:
    """Make new tensors on a backend: ``numpy``, ``cuda`` or ``torch``."""
    find_backend(name)
    _Default.name = name


@contextmanager
def use_backend(name: str) -> Iterator[Backend]:
    """Make the block's new tensors on a backend."""
    before = _Default.name
    set_backend(name)
    try:
        yield find_backend(name)
    finally:
        _Default.name = before


def read_host(values: Any, dtype: str | None) -> NDArray[Any]:
    """Return what users give as an array: Python floats become float32, a given dtype is obeyed."""
    is_array = hasattr(values, "dtype")
    made = np.asarray(values)
    if dtype is not None:
        return made.astype(find_dtype(dtype), copy=False)
    return made.astype(np.float32) if made.dtype == np.float64 and not is_array else made
