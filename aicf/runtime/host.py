"""The NumPy executor: a plan run in host memory by the ops' meanings, with its regions as arrays of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.opset import find_dtype, find_op
from aicf.plan import Plan, Slot
from aicf.plan.data import ALIGNMENT_BYTES, ARENA, STATE
from aicf.runtime.executor import Executor

_POISON = 0xFF  # every float of these bytes is NaN


class HostExecutor(Executor):
    """Runs a plan's steps in order. With ``poison`` bytes of the arena are NaN before they are written and after their last use."""

    def __init__(self, plan: Plan, lender: Executor | None = None, *, poison: bool = False) -> None:
        super().__init__(plan, lender)
        assert lender is None or isinstance(lender, HostExecutor)
        lent = {} if lender is None else {STATE: lender.regions[STATE]}
        self.regions: dict[str, NDArray[np.uint8]] = {
            name: lent[name] if name in lent else _allocate(size) for name, size in plan.sizes.items()
        }
        self._poison = poison
        for slot, value in plan.constants:
            self.view(slot)[...] = value
        if poison:
            self.regions[ARENA][:] = _POISON
        self._calls = [
            (find_op(s.op), [None if x is None else self.view(x) for x in s.inputs], s.attrs, [self.view(x) for x in s.outputs])
            for s in plan.steps
        ]
        self._freed = _find_last_uses(plan) if poison else {}

    def view(self, slot: Slot) -> NDArray[Any]:
        """Return a NumPy array over a slot's bytes."""
        dtype = find_dtype(slot.type.dtype)
        made: NDArray[Any] = np.ndarray(slot.type.shape, dtype, self.regions[slot.region].data, slot.offset)
        return made

    def write(self, slot: Slot, values: Any) -> None:
        """Overwrite a slot's bytes."""
        self.view(slot)[...] = values

    def read_bytes(self, region: str) -> NDArray[np.uint8]:
        """Return a copy of a region's bytes."""
        return self.regions[region].copy()

    def write_bytes(self, region: str, data: NDArray[np.uint8]) -> None:
        """Overwrite a region's bytes."""
        self.regions[region][:] = data

    def read(self, slot: Slot) -> NDArray[Any]:
        """Return a copy of a slot's values."""
        return self.view(slot).copy()

    def run_step(self, index: int) -> None:
        """Run a step's op as it is meant, and put its results in their places."""
        op, inputs, attrs, outputs = self._calls[index]
        for output, made in zip(outputs, op.evaluate(inputs, attrs), strict=True):
            output[...] = made
        for slot in self._freed.get(index, ()):
            self.regions[ARENA][slot.offset : slot.end] = _POISON

    def run_steps(self) -> None:
        """Run the steps in order."""
        for index in range(len(self._calls)):
            self.run_step(index)


def _allocate(size_bytes: int) -> NDArray[np.uint8]:
    """Return zeroed bytes that begin at an aligned address."""
    whole = np.zeros(size_bytes + ALIGNMENT_BYTES, np.uint8)
    skip = -whole.ctypes.data % ALIGNMENT_BYTES
    return whole[skip : skip + size_bytes]


def _find_last_uses(plan: Plan) -> dict[int, list[Slot]]:
    """Return the arena's slots whose last use each step is, but for those whose bytes the step's outputs took."""
    last: dict[int, tuple[int, Slot]] = {}
    for i, step in enumerate(plan.steps):
        for slot in (*step.reads, *step.writes):
            if slot.region == ARENA:
                last[slot.buffer] = (i, slot)
    freed: dict[int, list[Slot]] = {}
    for i, slot in last.values():
        if any(slot != made and (slot.region, slot.offset) == (made.region, made.offset) for made in plan.steps[i].outputs):
            continue
        freed.setdefault(i, []).append(slot)
    return freed


EXECUTOR = HostExecutor
