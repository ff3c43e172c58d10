"""One problem of one op in device memory: arguments that a variant can be launched on, and what it did to them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from device.interface import Device, DeviceArray, Stream
from harness.spec import Indices, Launchable, Op, Preparable, Problem, Role, Tensor
from harness.spec.dtypes import find_dtype
from harness.verify.allocations import POISON_NAN, Allocation, Damage, Layout

# Planned tensors are this far apart, so that they do not overlap.
_PLANNED_SPACING = 1 << 48
# Allocations of at most this size are zeroed where they hold indices.
_MAX_CLEARED_BYTES = 256 << 20


class Case:
    """The arguments of one (op, problem) on a device. A context manager; leaving it frees the memory.

    Uploads are complete when a method returns (the device is synchronised), since pageable copies and fills are otherwise not ordered
    before work on a non-blocking stream.
    """

    def __init__(self, device: Device, op: Op, problem: Problem, layout: Layout = Layout.GUARDED) -> None:
        self.device = device
        self.op = op
        self.problem = problem
        self.layout = layout
        self._workspace: Allocation | None = None
        self._poison_byte = POISON_NAN
        self._slots = {t.name: self._place(t) for t in op.tensors if t.present(problem)}
        self._outputs = {t.name: self._slots[t.name] for t in op.outputs if t.name in self._slots}
        self._inouts = [self._slots[t.name] for t in op.outputs if t.role is Role.INOUT and t.name in self._slots]

    def _place(self, tensor: Tensor) -> Allocation:
        problem = self.problem
        slot = Allocation(
            self.device,
            tensor.name,
            tensor.resolve_shape(problem),
            tensor.resolve_dtype(problem),
            tensor.find_strides(problem),
            self.layout,
            problem.offsets.get(tensor.name, 0),
            is_inout=tensor.role is Role.INOUT,
        )
        # A launch before any upload must not follow indices out of bounds. What is larger lies in pages of its own, which are zero.
        is_small = slot.buffer.size_bytes <= _MAX_CLEARED_BYTES or self.device.observer is None
        if isinstance(tensor.resolve_values(self.problem), Indices) and self.layout is Layout.EXACT and is_small:
            slot.buffer.fill(0)
        return slot

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.free()

    @property
    def arguments(self) -> dict[str, Any]:
        """Every tensor by name (None where absent), every passed attribute and every scalar."""
        tensors: dict[str, Any] = {t.name: self._slots[t.name].array if t.name in self._slots else None for t in self.op.tensors}
        return tensors | self.op.list_passed(self.problem)

    @property
    def workspace_address(self) -> int:
        """Device address of the workspace, 0 when there is none."""
        return self._workspace.array.address if self._workspace else 0

    def ensure_workspace(self, size_bytes: int) -> None:
        """Hold exactly ``size_bytes`` of workspace from now on."""
        if self._workspace is not None:
            if self._workspace.shape == (size_bytes,):
                return
            self._workspace.buffer.free()
            self._workspace = None
        if size_bytes > 0:
            self._workspace = Allocation(self.device, "workspace", (size_bytes,), "uint8", (1,), self.layout)
            self._workspace.poison(self._poison_byte)
            self.device.synchronize()

    def upload(self, inputs: Mapping[str, NDArray[Any]], poison_byte: int = POISON_NAN) -> None:
        """Write the inputs, and poison outputs and workspace (in the exact layout those stay as they are)."""
        for tensor in self.op.inputs:
            if tensor.name in self._slots:
                self._slots[tensor.name].drop_kept()
                self._slots[tensor.name].set_elements(inputs[tensor.name])
        self.poison(poison_byte)

    @property
    def is_in_place(self) -> bool:
        """Whether a launch overwrites what it reads."""
        return bool(self._inouts)

    def restore(self) -> None:
        """Put back what the INOUT tensors held before a launch; nothing is done for an op without them."""
        for slot in self._inouts:
            slot.restore()
        if self.is_in_place:
            self.device.synchronize()

    def queue_restore(self, stream: Stream) -> None:
        """Queue the same on a stream, by copies on the device of what they held when this was first asked for."""
        for slot in self._inouts:
            slot.queue_restore(stream)

    def poison(self, byte: int) -> None:
        """Fill outputs and workspace with a byte, and restore INOUT tensors and the guards around them."""
        self._poison_byte = byte
        for slot in self._written_slots():
            slot.poison(byte)
        self.device.synchronize()

    def _written_slots(self) -> list[Allocation]:
        return [*self._outputs.values(), *([self._workspace] if self._workspace else [])]

    def launch(self, launchable: Launchable, stream: Stream) -> None:
        """Queue the variant once, with the workspace it asks for (call :meth:`prepare` before capturing)."""
        launchable.launch(workspace=self.workspace_address, stream=stream.handle, **self.arguments)

    def bind(
        self, launchable: Launchable, stream: Stream, others: Mapping[str, DeviceArray] = MappingProxyType({})
    ) -> Callable[[], object]:
        """Return what queues the variant once, with the tensors (or ``others``) and the workspace as they are now: for many launches."""
        arguments = {"workspace": self.workspace_address, "stream": stream.handle, **self.arguments, **others}
        if isinstance(launchable, Preparable):
            return launchable.prepare(**arguments)
        return functools.partial(launchable.launch, **arguments)

    def prepare(self, *launchables: Launchable) -> None:
        """Allocate the workspace that the variant asks for, or the largest of several that take turns."""
        self.ensure_workspace(max(int(each.workspace_bytes(**self.arguments)) for each in launchables))

    def read_outputs(self) -> dict[str, NDArray[Any]]:
        """Return the outputs as contiguous host arrays."""
        return {name: slot.read_elements() for name, slot in self._outputs.items()}

    @property
    def outputs(self) -> Mapping[str, Allocation]:
        """The allocations of the outputs."""
        return self._outputs

    @property
    def input_addresses(self) -> list[int]:
        """Device addresses of the allocations that hold what is read alone."""
        return [self._slots[t.name].buffer.address for t in self.op.inputs if t.role is Role.INPUT and t.name in self._slots]

    @property
    def given_addresses(self) -> list[int]:
        """Device addresses of the allocations that hold what is there before a launch, whether or not it is overwritten."""
        return [self._slots[t.name].buffer.address for t in self.op.inputs if t.name in self._slots]

    def forget_written(self) -> None:
        """Let nothing be written of outputs and workspace (emulated device); their bytes stay."""
        observer = self.device.observer
        assert observer is not None
        for slot in self._written_slots():
            if slot.buffer.address not in self.given_addresses:
                observer.forget_written(slot.buffer.address)

    def find_input(self, address: int) -> str:
        """Return the name of the input whose allocation holds an address, "" where none does."""
        for tensor in self.op.inputs:
            slot = self._slots.get(tensor.name)
            if slot is not None and 0 <= address - slot.buffer.address < slot.buffer.size_bytes:
                return tensor.name
        return ""

    def fill_outputs(self, byte: int) -> None:
        """Set every byte of the outputs' allocations, row padding included, without a copy of them on the host; restore INOUT ones."""
        for slot in self._outputs.values():
            if slot not in self._inouts:
                slot.buffer.fill(byte)
        self.restore()

    def write_elements(self, name: str, values: NDArray[Any]) -> None:
        """Write all elements of a tensor."""
        self._slots[name].set_elements(values)

    def write_grid(self, name: str, grid: Sequence[NDArray[np.intp]], values: NDArray[Any]) -> None:
        """Write ``values`` to the elements of a tensor at a grid of ascending places, and zeros to those near them in their rows."""
        self._slots[name].write_grid(grid, values)

    def read_grid(self, name: str, grid: Sequence[NDArray[np.intp]]) -> NDArray[Any]:
        """Return the elements of a tensor at a grid of places, which are given per axis, ascending; little else is read."""
        return self._slots[name].read_grid(grid)

    def find_damage(self) -> list[Damage]:
        """Return what was overwritten beside the outputs: guards and row padding of all tensors and of the workspace (guarded layout)."""
        found = []
        for slot in (*self._slots.values(), *([self._workspace] if self._workspace else [])):
            found += slot.find_damage(slot.read()[1], elements_too=False)
        return found

    def find_modified_inputs(self) -> list[Damage]:
        """Return the inputs of which an element changed, INOUT ones aside."""
        found = []
        for tensor in self.op.inputs:
            if tensor.role is Role.INPUT and (slot := self._slots.get(tensor.name)):
                values, _ = slot.read()
                expected = np.ascontiguousarray(slot.view(slot.image))
                changed = np.flatnonzero(_as_bytes(values) != _as_bytes(expected))
                if len(changed):
                    found.append(Damage(tensor.name, "in", len(changed), int(changed[0])))
        return found

    def find_touched(self) -> list[str]:
        """Return the names of outputs and workspace that differ from the poison (guarded layout): proof that something ran."""
        return [slot.name for slot in self._written_slots() if slot.find_damage(slot.read()[1], elements_too=True)]

    def find_unwritten(self, outputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.bool_]]:
        """Return per output which elements still hold the poison, or in an INOUT what they held before."""
        masks = {}
        for name, values in outputs.items():
            initial = self._slots[name].initial
            if initial is not None:
                masks[name] = (_as_bytes(values) == _as_bytes(initial)).reshape(*values.shape, -1).all(axis=-1)
                continue
            poison = np.full(values.dtype.itemsize, self._poison_byte, np.uint8).view(f"u{values.dtype.itemsize}")
            masks[name] = np.asarray(np.asarray(values, order="C").view(poison.dtype) == poison[0])
        return masks

    def free(self) -> None:
        """Free all device memory; a second call does nothing."""
        for slot in self._slots.values():
            slot.free()
        if self._workspace is not None:
            self._workspace.buffer.free()
            self._workspace = None


def _as_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


class _PlannedArray(DeviceArray):
    """An array that has an address, a shape and strides, and no memory."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], strides_bytes: tuple[int, ...]) -> None:
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.strides_bytes = strides_bytes

    def copy_to_host(self) -> NDArray[Any]:
        raise ValueError("a planned array has no memory")

    def copy_from_host(self, values: NDArray[Any]) -> None:
        raise ValueError("a planned array has no memory")


def plan_arguments(op: Op, problem: Problem) -> dict[str, Any]:
    """Return what a variant's ``supports`` is asked with, as :attr:`Case.arguments` are, without allocating any memory."""
    arguments: dict[str, Any] = dict.fromkeys((t.name for t in op.tensors), None)
    for place, tensor in enumerate(op.tensors):
        if not tensor.present(problem):
            continue
        dtype, shape = find_dtype(tensor.resolve_dtype(problem)), tensor.resolve_shape(problem)
        strides = tuple(stride * dtype.itemsize for stride in tensor.find_strides(problem))
        address = (place + 1) * _PLANNED_SPACING + problem.offsets.get(tensor.name, 0) * dtype.itemsize
        arguments[tensor.name] = _PlannedArray(address, shape, dtype, strides)
    return arguments | op.list_passed(problem)
