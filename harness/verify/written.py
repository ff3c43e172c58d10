"""Which elements of an output a launch has written, as the emulated device tells it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from device.interface import DeviceArray
from device.observer import Observer
from harness.verify.findings import FaultKind, Tally
from harness.verify.places import find_indices, thin

CHECK = "sampled"
# Elements that are located.
_MAX_ELEMS = 1 << 20


@dataclass(frozen=True)
class Written:
    """Elements of an output that were written: an index array per axis (of some, where there are many), and how many there are.

    They are those of ``runs`` of bytes, [begin, end) offsets.
    """

    runs: NDArray[np.int64]
    indices: tuple[NDArray[np.intp], ...]
    num_elems: int


def count_written(observer: Observer, array: DeviceArray, name: str, tally: Tally, check: str = CHECK) -> int:
    """Return how many elements of an output were written; what was written between the rows goes into the tally."""
    if array.span_bytes > math.prod(array.shape) * array.dtype.itemsize:
        return locate_written(observer, array, name, None, tally, check).num_elems
    runs = _find_runs(observer, array)
    return int((runs[:, 1] - runs[:, 0]).sum()) // array.dtype.itemsize


def _find_runs(observer: Observer, array: DeviceArray) -> NDArray[np.int64]:
    return np.array(observer.find_written(array.address, array.span_bytes), np.int64).reshape(-1, 2)


def locate_written(observer: Observer, array: DeviceArray, name: str, before: Written | None, tally: Tally, check: str = CHECK) -> Written:
    """Return what was written of an output since that was forgotten; mostly it is what was written ``before``.

    What was written between the rows goes into the tally.
    """
    item = array.dtype.itemsize
    written = _find_runs(observer, array)
    if before is not None and np.array_equal(written, before.runs):
        return before
    count = int((written[:, 1] - written[:, 0]).sum()) // item
    runs = thin(written, _MAX_ELEMS * item)
    starts, lengths = runs[:, 0] // item, -(-(runs[:, 1] - runs[:, 0]) // item)
    rest = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
    indices, beside = find_indices(rest, array.shape, [stride // item for stride in array.strides_bytes])
    if beside.any():
        place = [int(i[np.argmax(beside)]) for i in indices]
        detail = f"{int(beside.sum())} elements in the row padding of {name}, first at {place}"
        tally.add(FaultKind.GUARD_OVERWRITTEN, check, detail)
        indices = [i[~beside] for i in indices]
    return Written(written, tuple(indices), count)
