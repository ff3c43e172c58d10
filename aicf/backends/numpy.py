"""The reference: every op computed in float64, as its file in the opset defines it, and rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.backends import Backend
from aicf.opset import Attrs, find_op


class NumpyBackend(Backend):
    """Arrays are NumPy's."""

    name = "numpy"

    def op_call(self, op: str, inputs: Sequence[Any | None], attrs: Attrs) -> tuple[Any, ...]:
        """Return the outputs of an op."""
        # What is broadcast has one element in many places, and cannot be overwritten.
        return tuple(y if y.flags.writeable else y.copy() for y in find_op(op).evaluate(inputs, attrs))

    def from_host(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a copy."""
        return np.array(values)

    def to_host(self, array: Any) -> NDArray[Any]:
        """Return the array itself."""
        made: NDArray[Any] = array
        return made

    def copy_into(self, target: Any, source: Any) -> None:
        """Overwrite an array's elements."""
        np.copyto(target, source)


BACKEND = NumpyBackend
