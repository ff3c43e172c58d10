"""One problem of one op in device memory: arguments that a variant can be launched on, and what it did to them.

Two layouts of memory serve two kinds of evidence:

``Layout.GUARDED``
    every tensor lies between guard bytes of a known pattern, which also fills the padding of its rows, and outputs hold a poison
    value. What a kernel overwrites beside its outputs, or leaves unwritten, shows on any device.
``Layout.EXACT``
    every tensor is an allocation of its own with not a byte more than its elements span, and the host writes nothing but the inputs'
    elements. The sanitizer of the emulated device then knows the true bounds, and which bytes nobody wrote.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from device.interface import Buffer, Device, DeviceArray, Stream
from harness.spec import Indices, Launchable, Op, Problem, Role, Tensor
from harness.spec.dtypes import find_dtype

# Bytes before and after each guarded tensor: more than a tile of rows of a small problem, and a multiple of the allocation alignment.
GUARD_BYTES = 16384
_GUARD_PATTERN = 0xA5
POISON_NAN = 0xFF
POISON_FINITE = 0x4B
_SEGMENT_ELEMS = 4096
_MAX_CLEARED_BYTES = 256 << 20
# Planned tensors are this far apart, so that they do not overlap.
_PLANNED_SPACING = 1 << 48


class Layout(StrEnum):
    """How tensors lie in device memory; see the module's description."""

    GUARDED = "guarded"
    EXACT = "exact"


@dataclass(frozen=True)
class Damage:
    """Bytes that a launch changed and should not have: ``tensor`` is the nearest one, ``offset_bytes`` counts from its first byte."""

    tensor: str
    where: str
    num_bytes: int
    offset_bytes: int

    def describe(self) -> str:
        """Say where the first overwritten byte is."""
        return f"{self.num_bytes} bytes overwritten {self.where} {self.tensor}, the first at byte offset {self.offset_bytes} from its start"


class _Slot:
    """One tensor's allocation, with the host's copy of what its bytes should be."""

    def __init__(
        self,
        device: Device,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        strides: tuple[int, ...],
        layout: Layout,
        offset_elems: int = 0,
        *,
        is_inout: bool = False,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = find_dtype(dtype)
        self.layout = layout
        self._device = device
        self.strides = tuple(stride * self.dtype.itemsize for stride in strides)
        self.initial: NDArray[Any] | None = None
        self._kept: Buffer | None = None
        self._is_inout = is_inout
        self.span_bytes = self.dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, self.strides, strict=True))
        guard_bytes = GUARD_BYTES if layout is Layout.GUARDED else 0
        self.start_bytes = guard_bytes + offset_elems * self.dtype.itemsize
        size_bytes = self.start_bytes + self.span_bytes + guard_bytes
        self.buffer: Buffer = device.allocate(size_bytes)
        self.array: DeviceArray = self.buffer.view(shape, self.dtype, self.start_bytes, self.strides)
        # An exact allocation may be far larger than the host's memory, where its rows lie far apart.
        self.image: NDArray[np.uint8] = np.full(size_bytes if layout is Layout.GUARDED else 0, _GUARD_PATTERN, np.uint8)

    def _view(self, image: NDArray[np.uint8]) -> NDArray[Any]:
        return np.ndarray(self.shape, self.dtype, image.data, self.start_bytes, self.strides)

    def set_elements(self, values: NDArray[Any]) -> None:
        if self._is_inout:
            self.initial = np.array(values, order="C")
        if self.layout is Layout.EXACT:
            self.array.copy_from_host(np.asarray(values, order="C"))
            return
        self._view(self.image)[...] = values
        self.buffer.write(self.image)

    def poison(self, byte: int) -> None:
        if self._is_inout:
            self.restore()
        elif self.layout is Layout.GUARDED:
            self._view(self.image)[...] = np.full(self.dtype.itemsize, byte, np.uint8).view(self.dtype)
            self.buffer.write(self.image)

    def restore(self) -> None:
        """Put back what an INOUT held before it was launched on."""
        if self.initial is not None:
            self.set_elements(self.initial)

    def queue_restore(self, stream: Stream) -> None:
        """Put back on a stream what the allocation held when this was first asked for."""
        if self._kept is None:
            self._kept = self._device.allocate(self.buffer.size_bytes)
            self._kept.copy_from(self.buffer, stream)
        self.buffer.copy_from(self._kept, stream)

    def free(self) -> None:
        self.buffer.free()
        self.drop_kept()

    def drop_kept(self) -> None:
        if self._kept is not None:
            self._kept.free()
            self._kept = None

    def read_elements(self) -> NDArray[Any]:
        """Return the elements as they are now, contiguous."""
        return self.array.copy_to_host() if self.layout is Layout.EXACT else self.read()[0]

    def read(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Return the elements (contiguous) and all bytes of the allocation as they are now (guarded layout)."""
        now = np.ascontiguousarray(self.buffer.read())
        return np.asarray(self._view(now), order="C"), now

    def _find_row(self, index: Sequence[int]) -> int:
        """Return the byte offset of a row in the buffer, by its index along the leading axes."""
        return self.start_bytes + sum(int(i) * stride for i, stride in zip(index, self.strides[:-1], strict=True))

    def _find_place(self, index: Sequence[int]) -> int:
        """Return the byte offset of an element in the buffer."""
        return self.start_bytes + sum(int(i) * stride for i, stride in zip(index, self.strides, strict=True))

    @property
    def _is_row_major(self) -> bool:
        """Whether elements lie in the order of their indices, with those of the last dimension beside each other."""
        return list(self.strides) == sorted(self.strides, reverse=True) and self.strides[-1] == self.dtype.itemsize

    def write_grid(self, grid: Sequence[NDArray[np.intp]], values: NDArray[Any]) -> None:
        if not grid or self.strides[-1] != self.dtype.itemsize:
            for index, element in zip(itertools.product(*grid), values.reshape(-1), strict=True):
                self.buffer.write(np.array([element], self.dtype), self._find_place(index))
            return
        dense = (
            self._is_row_major
            and all(len(places) == n for places, n in zip(grid, self.shape, strict=True))
            and self.span_bytes == values.nbytes
        )
        if dense and all((np.diff(places) == 1).all() for places in grid):
            self.buffer.write(np.ascontiguousarray(values), self.start_bytes)
            return
        rows = values.reshape(-1, values.shape[-1])
        segments = _find_segments(grid[-1])
        for index, elements in zip(itertools.product(*grid[:-1]), rows, strict=True):
            start = self._find_row(index)
            for segment in segments:
                places = grid[-1][segment]
                part = np.zeros(int(places[-1] - places[0]) + 1, self.dtype)
                part[places - places[0]] = elements[segment]
                self.buffer.write(part, start + int(places[0]) * self.dtype.itemsize)

    def read_grid(self, grid: Sequence[NDArray[np.intp]]) -> NDArray[Any]:
        if not grid or self.strides[-1] != self.dtype.itemsize:
            places_bytes = [self._find_place(index) for index in itertools.product(*grid)]
            elements = [self.buffer.read(place, self.dtype.itemsize).view(self.dtype) for place in places_bytes]
            return np.concatenate(elements).reshape(tuple(map(len, grid)))
        parts = []
        segments = _find_segments(grid[-1])
        for index in itertools.product(*grid[:-1]):
            start = self._find_row(index)
            for segment in segments:
                places = grid[-1][segment]
                first, size = int(places[0]), int(places[-1] - places[0]) + 1
                read = self.buffer.read(start + first * self.dtype.itemsize, size * self.dtype.itemsize)
                parts.append(read.view(self.dtype)[places - first])
        return np.concatenate(parts).reshape(tuple(map(len, grid)))

    def find_damage(self, now: NDArray[np.uint8], *, elements_too: bool) -> list[Damage]:
        changed = now != self.image
        if not elements_too:
            kept = np.ndarray((*self.shape, self.dtype.itemsize), np.bool_, changed.data, self.start_bytes, (*self.strides, 1))
            kept[...] = False
        if not changed.any():
            return []
        end = self.start_bytes + self.span_bytes
        regions = (("before", 0, self.start_bytes), ("inside", self.start_bytes, end), ("after", end, len(changed)))
        found = []
        for where, start, stop in regions:
            places = np.flatnonzero(changed[start:stop])
            if len(places):
                label = "in the row padding of" if where == "inside" and not elements_too else where
                found.append(Damage(self.name, label, len(places), start + int(places[0]) - self.start_bytes))
        return found


def _find_segments(places: NDArray[np.intp]) -> list[slice]:
    """Return the parts of ascending places between which there is more than a copy of its own is worth."""
    edges = [0, *(np.flatnonzero(np.diff(places) > _SEGMENT_ELEMS) + 1), len(places)]
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]


def read_outputs_bits(outputs: Mapping[str, NDArray[Any]]) -> dict[str, bytes]:
    """Return the outputs' bytes, for comparisons bit by bit."""
    return {name: array.tobytes() for name, array in outputs.items()}


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
        self._workspace: _Slot | None = None
        self._poison_byte = POISON_NAN
        self._slots = {t.name: self._place(t) for t in op.tensors if t.present(problem)}

    def _place(self, tensor: Tensor) -> _Slot:
        problem = self.problem
        slot = _Slot(
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
            self._workspace = _Slot(self.device, "workspace", (size_bytes,), "uint8", (1,), self.layout)
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
    def _inouts(self) -> list[_Slot]:
        return [self._slots[t.name] for t in self.op.outputs if t.role is Role.INOUT and t.name in self._slots]

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

    def _written_slots(self) -> list[_Slot]:
        slots = [self._slots[t.name] for t in self.op.outputs if t.name in self._slots]
        return slots + ([self._workspace] if self._workspace else [])

    def launch(self, launchable: Launchable, stream: Stream) -> None:
        """Queue the variant once, with the workspace it asks for (call :meth:`prepare` before capturing)."""
        launchable.launch(workspace=self.workspace_address, stream=stream.handle, **self.arguments)

    def bind(self, launchable: Launchable, stream: Stream) -> Callable[[], object]:
        """Return what queues the variant once, with the tensors and the workspace as they are now: for launches by the thousand."""
        return functools.partial(launchable.launch, workspace=self.workspace_address, stream=stream.handle, **self.arguments)

    def prepare(self, *launchables: Launchable) -> None:
        """Allocate the workspace that the variant asks for, or the largest of several that take turns."""
        self.ensure_workspace(max(int(each.workspace_bytes(**self.arguments)) for each in launchables))

    def read_outputs(self) -> dict[str, NDArray[Any]]:
        """Return the outputs as contiguous host arrays."""
        return {t.name: self._slots[t.name].read_elements() for t in self.op.outputs if t.name in self._slots}

    @property
    def input_addresses(self) -> list[int]:
        """Device addresses of the allocations that hold what is read alone."""
        return [self._slots[t.name].buffer.address for t in self.op.inputs if t.role is Role.INPUT and t.name in self._slots]

    def find_input(self, address: int) -> str:
        """Return the name of the input whose allocation holds an address, "" where none does."""
        for tensor in self.op.inputs:
            slot = self._slots.get(tensor.name)
            if slot is not None and 0 <= address - slot.buffer.address < slot.buffer.size_bytes:
                return tensor.name
        return ""

    def fill_outputs(self, byte: int) -> None:
        """Set every byte of the outputs' allocations, row padding included, without a copy of them on the host; restore INOUT ones."""
        for tensor in self.op.outputs:
            if tensor.name in self._slots and tensor.role is Role.OUTPUT:
                self._slots[tensor.name].buffer.fill(byte)
        self.restore()

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
                expected = np.ascontiguousarray(slot._view(slot.image))
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
