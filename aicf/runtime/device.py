"""The device executor: a plan's launches on a GPU or the emulated device, step by step or captured once into a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicf.backends.frozen import FrozenCall, open_calls
from aicf.opset import find_dtype, find_op
from aicf.plan import Plan, Slot, Step
from aicf.plan.data import GRADIENT, STATE
from aicf.runtime.executor import Executor
from aicf.runtime.profiling import StepTime, find_roof_us
from aicf.runtime.ranges import mark, name_step
from device import DeviceArray, Event, Graph, Stream, UnavailableError, open_device
from device.runtime import RuntimeDevice
from device.settings import read_settings

Launch = Callable[[], None]


class _Target(NamedTuple):
    """Where an input goes, and what it must be."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    address: int
    size_bytes: int


def _is_of(array: Any, target: _Target) -> bool:
    return isinstance(array, DeviceArray) and array.shape == target.shape and array.dtype == target.dtype


class DeviceExecutor(Executor):
    """Runs a plan's launches. All that a launch needs is made ready here: a run allocates nothing and asks nobody.

    With ``capture`` the second run and later ones replay one graph; the first is stepwise, so that every kernel is loaded before.
    """

    def __init__(self, plan: Plan, *, capture: bool = True) -> None:
        super().__init__(plan)
        device = open_device()
        assert isinstance(device, RuntimeDevice)  # both kinds are
        self._device = device
        self.regions = {name: device.allocate(max(size, 1)) for name, size in plan.sizes.items()}
        for name in (STATE, GRADIENT):  # what lies between the members of a list is computed on, and must be zero
            if plan.sizes.get(name):
                self.regions[name].write(np.zeros(plan.sizes[name], np.uint8))
        for slot, value in plan.constants:
            self.write(slot, np.full(slot.type.shape, value, find_dtype(slot.type.dtype)))
        # Streams that wait for the default one: what callers copy in or out there is in order with the plan's work.
        self._streams = [device.create_stream(non_blocking=False) for _ in range(plan.num_streams)]
        self._targets = [_Target(s.type.shape, find_dtype(s.type.dtype), self._find_address(s), s.type.size_bytes) for _, s in plan.inputs]
        self._waited = {j for step in plan.steps for j in step.waits}
        self._events: dict[int, Event] = {}
        self.calls = [_find_call(step) for step in plan.steps]
        _build({call.seal: call for call in self.calls if call is not None}.values())
        pairs = zip(plan.steps, self.calls, strict=True)
        self._launches = [self._prepare(step, call, self._streams[step.stream]) for step, call in pairs]
        self._ranges = [mark(name_step(plan.name, i, step)) for i, step in enumerate(plan.steps)]
        self._range = mark(plan.name)
        self._captures = capture
        self._has_run = False
        self.graph: Graph | None = None

    def view(self, slot: Slot) -> DeviceArray:
        """Return a device array over a slot's bytes."""
        return self.regions[slot.region].view(slot.type.shape, find_dtype(slot.type.dtype), slot.offset)

    def put(self, arrays: Sequence[Any]) -> None:
        """Copy inputs in; raises ValueError naming the one whose type the plan was not made for.

        Arrays of the device are copied on the plan's own stream, which waits for the default one: a loop of runs switches no stream.
        """
        if len(arrays) == len(self._targets) and all(map(_is_of, arrays, self._targets)):
            for array, target in zip(arrays, self._targets, strict=True):
                self._device.copy(target.address, array.address, target.size_bytes, self._streams[0])
        else:
            super().put(arrays)

    def write(self, slot: Slot, values: Any) -> None:
        """Overwrite a slot's bytes, from the host or from a device array."""
        if isinstance(values, DeviceArray):
            self._device.copy(self._find_address(slot), values.address, slot.type.size_bytes)
        else:
            self.view(slot).copy_from_host(np.asarray(values))

    def read_bytes(self, region: str) -> NDArray[np.uint8]:
        """Return a copy of a region's bytes in host memory."""
        self._device.synchronize()
        return self.regions[region].read(0, self.plan.sizes[region])

    def write_bytes(self, region: str, data: NDArray[np.uint8]) -> None:
        """Overwrite a region's bytes."""
        self._device.synchronize()
        self.regions[region].write(data)

    def _find_address(self, slot: Slot) -> int:
        return self.regions[slot.region].address + slot.offset

    def _prepare(self, step: Step, call: FrozenCall | None, stream: Stream) -> Launch:
        """Return a step's launch with its parameters bound; without a call it is a copy."""
        outputs = [self._find_address(slot) for slot in step.outputs]
        if call is None:
            assert step.inputs[0] is not None
            source, size_bytes = self._find_address(step.inputs[0]), step.inputs[0].type.size_bytes
            return lambda: self._device.copy(outputs[0], source, size_bytes, stream)
        op = find_op(step.op)
        copies = []  # of what is changed in place, where the plan keeps the old value
        for i, made in enumerate(step.outputs):
            place = op.find_taken(i, len(step.inputs), step.attrs)
            taken = None if place is None else step.inputs[place]
            if taken is not None and self._find_address(taken) != self._find_address(made):
                copies.append((self._find_address(made), self._find_address(taken), made.type.size_bytes))
        params = call.make_params([None if slot is None else self._find_address(slot) for slot in step.inputs], outputs)
        library = call.handle.load()
        workspace = 0 if step.workspace is None else self._find_address(step.workspace)

        def launch() -> None:
            for target, source, size_bytes in copies:
                self._device.copy(target, source, size_bytes, stream)
            library.launch(params, workspace, stream.handle)

        return launch

    def time_step(self, index: int, repeats: int = 32) -> float:
        """Return what a step takes in microseconds as one of many in a graph, where it is repeated; what it writes changes.

        Raises :class:`~device.UnavailableError` on the emulated device, which has no time.
        """
        if self._device.is_emulated:
            raise UnavailableError("the emulated device has no time; profile on a GPU")
        stream = self._streams[self.plan.steps[index].stream]
        self._device.synchronize()
        with self._device.capture(stream) as graphs:
            for _ in range(repeats):
                self._launches[index]()
        begin, end = self._device.create_event(), self._device.create_event()
        times = []
        for _ in range(4):
            stream.record(begin)
            graphs[0].launch(stream)
            stream.record(end)
            end.synchronize()
            times.append(end.elapsed_us(begin) / repeats)
        return min(times[1:])

    def profile(self) -> list[StepTime]:
        """Return each step's time; raises :class:`~device.UnavailableError` on the emulated device."""
        found = []
        for i, (step, call) in enumerate(zip(self.plan.steps, self.calls, strict=True)):
            roof_us = find_roof_us(step, None if call is None else call.handle.frozen.manifest.get("prior"))
            found.append(StepTime(i, step.op, step.kernel, step.owner, self.time_step(i), step.predicted_us, roof_us))
        return found

    def read(self, slot: Slot) -> NDArray[Any]:
        """Return a copy of a slot's values in host memory."""
        self._device.synchronize()
        return self.view(slot).copy_to_host()

    def run_step(self, index: int) -> None:
        """Launch one step and wait for it."""
        self._launches[index]()
        self._device.synchronize()

    def run_steps(self) -> None:
        """Queue every step's launch, with events between streams."""
        for i, (step, launch) in enumerate(zip(self.plan.steps, self._launches, strict=True)):
            stream = self._streams[step.stream]
            for j in step.waits:
                stream.wait(self._events[j])
            with self._ranges[i]:
                launch()
            if i in self._waited:
                event = self._events.setdefault(i, self._device.create_event(timing=False))
                stream.record(event)

    def run(self) -> None:
        """Queue a run: stepwise the first time, by the captured graph after that."""
        if not self._captures or not self._has_run:
            self._has_run = True
            self.run_steps()
            return
        if self.graph is None:
            self.graph = self.capture()
        with self._range:
            self.graph.launch(self._streams[0])

    def capture(self) -> Graph:
        """Return the plan as one graph; other streams fork from the first and join it again."""
        first = self._streams[0]
        with self._device.capture(first) as graphs:
            fork = self._device.create_event(timing=False)
            first.record(fork)
            for stream in self._streams[1:]:
                stream.wait(fork)
            self.run_steps()
            for stream in self._streams[1:]:
                joined = self._device.create_event(timing=False)
                stream.record(joined)
                first.wait(joined)
        return graphs[0]


def _find_call(step: Step) -> FrozenCall | None:
    """Return the kernel that a plan names for a step; None for a copy."""
    if step.op == "Copy":
        return None
    types = [None if slot is None else slot.type for slot in step.inputs]
    return open_calls(deterministic=True).find_sealed(step.op, types, step.attrs, step.seal)


def _build(calls: Iterable[FrozenCall]) -> None:
    """Build what is not in the cache, several kernels at a time."""
    with ThreadPoolExecutor(read_settings().jobs) as pool:
        for _ in pool.map(lambda call: call.handle.build(), calls):
            pass


EXECUTOR = DeviceExecutor
