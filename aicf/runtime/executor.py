"""What executors share: memory regions, and values read and written by name."""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.errors import UnsupportedError
from aicf.opset import find_dtype, require_contiguous, type_of
from aicf.plan import Plan, Slot
from aicf.plan.data import STATE
from aicf.runtime.profiling import StepTime

# Where plans run, by backend.
EXECUTED = {"numpy": "aicf.runtime.host", "cuda": "aicf.runtime.device"}


class MismatchError(ValueError):
    """Inputs are of other types than the plan was made for; the message names the first."""


class Executor(ABC):
    """Runs one plan in memory of its own. Inputs are copied in; outputs and states stay where they are until the next run.

    An executor that is given a ``lender`` has that one's states, which lie in the same places, and its work is in order with that one's.
    """

    def __init__(self, plan: Plan, lender: Executor | None = None) -> None:
        self.plan = plan
        if lender is not None and not has_states_of(plan, lender.plan):
            raise ValueError(f"{plan.name}: its states lie in other places than those of {lender.plan.name}")

    @abstractmethod
    def view(self, slot: Slot) -> Any:
        """Return the backend's array over a slot's bytes."""

    @abstractmethod
    def write(self, slot: Slot, values: Any) -> None:
        """Overwrite a slot's bytes with an array of the backend or of the host, of the slot's type; an input's as the caller has it."""

    @abstractmethod
    def read_bytes(self, region: str) -> NDArray[np.uint8]:
        """Return a copy of a region's bytes in host memory, behind all work."""

    @abstractmethod
    def write_bytes(self, region: str, data: Any) -> None:
        """Overwrite a region's bytes by those of host memory, or by what :meth:`copy_bytes` of an executor of this backend returned."""

    def copy_bytes(self, region: str, into: Any = None) -> Any:
        """Return a copy of a region's bytes in memory of the backend, behind all work, or in that of an older copy of the same size."""
        return self.read_bytes(region)

    def hold_bytes(self, region: str) -> NDArray[np.uint8]:
        """Return a copy of a region's bytes in host memory that is copied back fast, behind all work."""
        return self.read_bytes(region)

    @abstractmethod
    def run_step(self, index: int) -> None:
        """Run one step alone, and wait for it."""

    @abstractmethod
    def read(self, slot: Slot) -> NDArray[Any]:
        """Return a copy of a slot's values in host memory, behind all work."""

    def read_later(self, slot: Slot) -> Callable[[], NDArray[Any]]:
        """Return what returns a slot's values as they are behind the work that is queued now: later work need not wait for who reads them.

        It is to be called before this method is called again.
        """
        found = self.read(slot)
        return lambda: found

    @abstractmethod
    def run_steps(self) -> None:
        """Run the plan step by step."""

    def run(self) -> None:
        """Run the plan as fast as it can be; captured, where the backend captures."""
        self.run_steps()

    def scan(self, stacks: Sequence[Any], count: int) -> Any:
        """Run ``count`` times, on the rows of stacked inputs; returns the first outputs, [count], which have one element each."""
        found = []
        for row in range(count):
            self.put([_take_row(stack, row) for stack in stacks])
            self.run()
            found.append(self.read(self.plan.outputs[0]).reshape(()))
        return np.stack(found)

    def profile(self) -> list[StepTime]:
        """Return each step's time; raises :class:`~aicf.errors.UnsupportedError` where steps cannot be timed."""
        raise UnsupportedError(f"{self.plan.name}: is compiled for {self.plan.backend}, which has no time; compile it for cuda on a GPU")

    def describe_launches(self) -> dict[str, Any] | None:
        """Return what runs the plan without Python, as a value of JSON; None for a backend without kernels."""
        return None

    def put(self, arrays: Sequence[Any]) -> None:
        """Copy inputs in; raises :class:`MismatchError` naming the one whose type the plan was not made for, with nothing copied."""
        if len(arrays) != len(self.plan.inputs):
            names = ", ".join(name for name, _ in self.plan.inputs)
            raise ValueError(f"{self.plan.name}: takes {len(self.plan.inputs)} inputs ({names}), got {len(arrays)}")
        for (name, _), wanted, array in zip(self.plan.inputs, self.plan.given_types, arrays, strict=True):
            if type_of(array) != wanted:
                raise MismatchError(f"{self.plan.name}: {name}: compiled for {wanted}, got {type_of(array)}; compile for that type too")
            require_contiguous(array, f"{self.plan.name}: {name}")
        for (_, slot), array in zip(self.plan.inputs, arrays, strict=True):
            self.write(slot, array)

    def feed(self, loader: Iterable[Any]) -> Iterable[Any]:
        """Return a loader of the same batches, brought to where the plan runs ahead of time where that is elsewhere."""
        return loader

    def put_leading(self, arrays: Sequence[Any]) -> None:
        """Copy inputs in, of which some may have fewer rows than the plan; the rows behind are of earlier inputs, or zero."""
        for (name, slot), array in zip(self.plan.inputs, arrays, strict=True):
            require_contiguous(array, f"{self.plan.name}: {name}")
            self.write(replace(slot, type=type_of(array)), array)

    def load_states(self, values: Mapping[tuple[str, str], NDArray[Any]]) -> None:
        """Overwrite states by (owner, role), and copies by what they are made of; raises ValueError naming one that is missing."""
        sources = [(state, state) for state in self.plan.own_states] + list(self.plan.copies)
        for source, state in sources:
            found = values.get((source.owner, source.role))
            if found is None:
                raise ValueError(f"{self.plan.name}: there is no value for state {source.role} of {source.owner}")
            self.write(state.slot, found.astype(find_dtype(state.slot.type.dtype), copy=False).reshape(state.slot.type.shape))


def _take_row(stack: Any, row: int) -> Any:
    """Return a row of a contiguous array of the host or of a device."""
    if isinstance(stack, np.ndarray):
        return stack[row]
    shape = stack.shape[1:]
    size_bytes = math.prod(shape) * stack.dtype.itemsize
    return stack.buffer.view(shape, stack.dtype, stack.offset_bytes + row * size_bytes)


def has_states_of(plan: Plan, other: Plan) -> bool:
    """Whether the states of two plans are the same, in the same places."""
    places = [[(s.owner, s.role, s.slot.offset, s.slot.type) for s in each.states] for each in (plan, other)]
    return plan.backend == other.backend and places[0] == places[1] and plan.sizes.get(STATE) == other.sizes.get(STATE)


def make_executor(plan: Plan, lender: Executor | None = None, **options: Any) -> Executor:
    """Return an executor of a plan's backend, with a lender's states where there is one; options are that executor's own."""
    made: Executor = importlib.import_module(EXECUTED[plan.backend]).EXECUTOR(plan, lender, **options)
    return made
