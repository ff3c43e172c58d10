"""The device executor: a plan's launches on a GPU or the emulated device, step by step or captured once into a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicf.backends.calls import FrozenCall
from aicf.opset import find_dtype
from aicf.plan import Plan, Slot
from aicf.plan.data import CONSTANT, GRADIENT, INPUT, STATE
from aicf.runtime.binding import Binding, Launch
from aicf.runtime.executor import Executor
from aicf.runtime.feeding import Feed
from aicf.runtime.intake import describe_calls, open_intake
from aicf.runtime.launches import describe_launches
from aicf.runtime.profiling import StepTime, find_roof_us
from aicf.runtime.ranges import mark, name_step
from aicf.runtime.scanning import Scan
from device import Buffer, DeviceArray, Event, Graph, Stream, UnavailableError, open_device
from device.layout import contiguous_strides, find_row_major
from device.memory import RuntimeArray
from device.runtime import RuntimeDevice

# Graphs of many runs that are kept, by their number.
_MAX_SCANS = 2
_NO_TIME = "the emulated device has no time; profile on a GPU"


class _Target(NamedTuple):
    """Where an input goes, and what it must be."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides_bytes: tuple[int, ...]
    address: int
    size_bytes: int


def _is_of(array: Any, target: _Target) -> bool:
    if not isinstance(array, DeviceArray):
        return False
    return array.shape == target.shape and array.dtype == target.dtype and array.strides_bytes == target.strides_bytes


def _lie_alike(arrays: Sequence[Any], targets: Sequence[_Target]) -> bool:
    """Whether arrays are parts of one buffer, as far apart as their targets are: one copy brings all of them, and what lies between."""
    buffer, apart = arrays[0].buffer, arrays[0].queued_address - targets[0].address
    return all(a.buffer is buffer and a.queued_address - t.address == apart for a, t in zip(arrays, targets, strict=True))


def _lay_out(plan: Plan) -> NDArray[np.uint8]:
    """Return the bytes of a plan's constants, each in its place."""
    made = np.zeros(plan.sizes[CONSTANT], np.uint8)
    with np.errstate(over="ignore"):  # what float16 cannot hold is infinite, as on the device
        for slot, value in plan.constants:
            np.ndarray(slot.type.shape, find_dtype(slot.type.dtype), made.data, slot.offset)[...] = value
    return made


class DeviceExecutor(Executor):
    """Runs a plan's launches. All that a launch needs is made ready before: a run allocates nothing and asks nobody.

    With ``capture`` the second run and later ones replay one graph; the first is stepwise, so that every kernel is loaded before.
    ``saved`` are launches that were saved with the plan, see :class:`~aicf.runtime.binding.Binding`.
    """

    def __init__(self, plan: Plan, lender: Executor | None = None, *, capture: bool = True, saved: Mapping[str, Any] | None = None) -> None:
        super().__init__(plan, lender)
        device = open_device()
        assert isinstance(device, RuntimeDevice)  # both kinds are
        assert lender is None or isinstance(lender, DeviceExecutor)
        self._device = device
        lent = {} if lender is None else {STATE: lender.regions[STATE]}
        made = {name: device.allocate(max(size, 1)) for name, size in plan.sizes.items() if name not in lent}
        self.regions: dict[str, Buffer] = lent | made
        # What lies between the members of a list is computed on, and rows of an input may be left out: both are zero.
        for name in {STATE, GRADIENT, INPUT} & made.keys():
            if plan.sizes.get(name):
                self.regions[name].fill(0)
        if plan.constants:
            self.regions[CONSTANT].write(_lay_out(plan))
        # Streams that wait for the default one: what callers copy in or out there is in order with the plan's work.
        lent_streams: list[Stream] = [] if lender is None else lender._streams[: plan.num_streams]
        new = plan.num_streams - len(lent_streams)
        self._streams: list[Stream] = [*lent_streams, *(device.create_stream(non_blocking=False) for _ in range(new))]
        self._targets = [
            _Target(
                given.shape,
                dtype := find_dtype(given.dtype),
                contiguous_strides(given.shape, dtype.itemsize),
                self._find_address(slot),
                given.size_bytes,
            )
            for (_, slot), given in zip(plan.inputs, plan.given_types, strict=True)
        ]
        self._waited = {j for step in plan.steps for j in step.waits}
        self._events: dict[int, Event] = {}
        self._binding = Binding(plan, device, self.regions, self._streams, saved)
        self.plan = self._binding.plan
        self._intake_rows: list[dict[str, Any]] = describe_calls(plan, self._binding.frozen) if saved is None else saved.get("intake", [])
        self._intake = open_intake(device, plan, self._intake_rows, lambda region, offset: self.regions[region].address + offset)
        self._ranges = [mark(name_step(plan.name, i, step)) for i, step in enumerate(plan.steps)]
        self._range = mark(plan.name)
        self._captures = capture
        self._has_run = False
        self.graph: Graph | None = None
        self._scans: dict[int, Scan] = {}
        self._pinned: NDArray[np.uint8] | None = None

    def view(self, slot: Slot) -> DeviceArray:
        """Return a device array over a slot's bytes."""
        return self.regions[slot.region].view(slot.type.shape, find_dtype(slot.type.dtype), slot.offset)

    def put(self, arrays: Sequence[Any]) -> None:
        """Copy inputs in; raises ValueError naming the one whose type the plan was not made for.

        Arrays of the device are copied on the plan's own stream, which waits for the default one: a loop of runs switches no stream. A
        batch in one buffer, laid out as the plan's inputs are, is one copy: :meth:`feed` brings such ones.
        """
        if len(arrays) == len(self._targets) and all(map(_is_of, arrays, self._targets)):
            if len(arrays) > 1 and not self._intake and _lie_alike(arrays, self._targets):
                begin, last = self._targets[0].address, self._targets[-1]
                size_bytes = last.address + last.size_bytes - begin
                self._device.copy(begin, arrays[0].address, size_bytes, self._streams[0])
                return
            for i, (array, target) in enumerate(zip(arrays, self._targets, strict=True)):
                if i in self._intake:
                    self._intake[i].take(array.address, self._streams[0])
                else:
                    self._device.copy(target.address, array.address, target.size_bytes, self._streams[0])
        else:
            super().put(arrays)

    def feed(self, loader: Iterable[Any]) -> Iterable[Any]:
        """Return a loader whose batches come on the device, copied while the plan runs."""
        return Feed(loader, self._device, list(self.plan.given_types), self._streams[0])

    def write(self, slot: Slot, values: Any) -> None:
        """Overwrite a slot's bytes, from the host or from a device array, which must be contiguous; raises ValueError for other sizes."""
        dtype = find_dtype(slot.type.dtype)
        if not isinstance(values, RuntimeArray):
            with np.errstate(over="ignore"):  # what float16 cannot hold is infinite, as on the device
                host = np.asarray(values).astype(dtype, copy=False)
            self.view(slot).copy_from_host(host)
        elif values.dtype == dtype:
            if values.span_bytes != slot.type.size_bytes:
                raise ValueError(f"{self.plan.name}: expected {slot.type}, got {values.dtype.name}{list(values.shape)}")
            # On the default stream, where the values' memory may go to later work at once.
            self._device.copy(self._find_address(slot), values.queued_address, slot.type.size_bytes)
        else:
            inputs = [own for _, own in self.plan.inputs]
            self._intake[inputs.index(slot)].take(values.address, self._streams[0])

    def read_bytes(self, region: str) -> NDArray[np.uint8]:
        """Return a copy of a region's bytes in host memory."""
        self._device.synchronize()
        return self.regions[region].read(0, self.plan.sizes[region])

    def write_bytes(self, region: str, data: Any) -> None:
        """Overwrite a region's bytes, from the host or by one copy on the device."""
        self._device.synchronize()
        if isinstance(data, RuntimeArray):
            self._device.copy(self.regions[region].address, data.queued_address, data.span_bytes)
            self._device.synchronize()
        else:
            self.regions[region].write(data)

    def copy_bytes(self, region: str, into: Any = None) -> DeviceArray:
        """Return a copy of a region's bytes in device memory, of its own or an older copy's: one copy at the memory's speed.

        It is queued on the default stream, behind all that was queued before and ahead of what comes: nobody waits for it here. The memory
        is that of a pool: it goes to the next copy of the size when this one is given up.
        """
        size = self.plan.sizes[region]
        is_fit = isinstance(into, RuntimeArray) and into.shape == (size,)
        made: RuntimeArray = into if is_fit else self._device.empty_queued(find_row_major((size,), np.dtype(np.uint8)))
        self._device.copy(made.queued_address, self.regions[region].address, size)
        return made

    def hold_bytes(self, region: str) -> NDArray[np.uint8]:
        """Return a copy of a region's bytes in pinned host memory."""
        self._device.synchronize()
        size = self.plan.sizes[region]
        made = self._device.allocate_pinned(max(size, 1))[:size]
        self.regions[region].read_into(made)
        return made

    def describe_launches(self) -> dict[str, Any]:
        """Return what runs the plan without Python, as a value of JSON."""
        return describe_launches(self.plan, self._binding.calls, self._intake_rows)

    def _find_address(self, slot: Slot) -> int:
        return self.regions[slot.region].address + slot.offset

    def time_step(self, index: int, repeats: int = 32) -> float:
        """Return what a step takes in microseconds as one of many in a graph, where it is repeated; what it writes changes.

        Raises :class:`~device.UnavailableError` on the emulated device, which has no time.
        """
        return min(self._time(index, self._binding.launches[index], repeats, 3))

    def reach(self, index: int) -> None:
        """Run the steps before one: its inputs are what they are in a run."""
        for i in range(index):
            self.run_step(i)

    def time_call(self, index: int, call: FrozenCall) -> list[float]:
        """Return times in microseconds of a step by a kernel, in the plan's own buffers; what it writes changes. Raises as time_step."""
        return self._time(index, self._binding.bind(index, call), 16, 9)

    def time_run(self, count: int = 15) -> list[float]:
        """Return times of replays in microseconds, behind a warm-up; states change. Raises as :meth:`time_step`."""
        if self._device.is_emulated:
            raise UnavailableError(_NO_TIME)
        for _ in range(3):
            self.run()
        return self._time_graph(self.graph or self.capture(), self._streams[0], count)

    def _time(self, index: int, launch: Launch, repeats: int, count: int) -> list[float]:
        if self._device.is_emulated:
            raise UnavailableError(_NO_TIME)
        stream = self._streams[self.plan.steps[index].stream]
        launch()  # loads the kernel
        self._device.synchronize()
        with self._device.capture(stream) as graphs:
            for _ in range(repeats):
                launch()
        return [us / repeats for us in self._time_graph(graphs[0], stream, count)]

    def _time_graph(self, graph: Graph, stream: Stream, count: int) -> list[float]:
        begin, end = self._device.create_event(), self._device.create_event()
        times = []
        for _ in range(count + 1):
            stream.record(begin)
            graph.launch(stream)
            stream.record(end)
            end.synchronize()
            times.append(end.elapsed_us(begin))
        return times[1:]  # the first one warms up

    def profile(self) -> list[StepTime]:
        """Return each step's time; raises :class:`~device.UnavailableError` on the emulated device."""
        found = []
        for i, (step, call) in enumerate(zip(self.plan.steps, self._binding.calls, strict=True)):
            roof_us = find_roof_us(step, None if call is None else call.handle.frozen.manifest.get("prior"))
            found.append(StepTime(i, step.op, step.kernel, step.owner, self.time_step(i), step.predicted_us, roof_us))
        return found

    def read(self, slot: Slot) -> NDArray[Any]:
        """Return a copy of a slot's values in host memory."""
        self._device.synchronize()
        return self.view(slot).copy_to_host()

    def read_later(self, slot: Slot) -> Callable[[], NDArray[Any]]:
        """Queue a copy to pinned memory; returns what waits for that, and for nothing behind it."""
        size = slot.type.size_bytes
        if self._pinned is None or self._pinned.nbytes != size:
            self._pinned = self._device.allocate_pinned(size)
        pinned, copied = self._pinned, self._device.create_event(timing=False)
        self._device.download(pinned, self._find_address(slot), self._streams[0])
        self._streams[0].record(copied)

        def finish() -> NDArray[Any]:
            copied.synchronize()
            return pinned.copy().view(find_dtype(slot.type.dtype)).reshape(slot.type.shape)

        return finish

    def run_step(self, index: int) -> None:
        """Launch one step and wait for it."""
        self._launch(index)
        self._device.synchronize()

    def run_steps(self) -> None:
        """Queue every step's launch."""
        self._run_forked(None)

    def _run_forked(self, launches: Sequence[Launch] | None) -> None:
        """Queue launches, the plan's own by default, with events between streams; other streams fork from the first and join it again."""
        if len(self._streams) > 1:
            fork = self._device.create_event(timing=False)
            self._streams[0].record(fork)
            for stream in self._streams[1:]:
                stream.wait(fork)
        self._run_steps(launches)
        for stream in self._streams[1:]:
            joined = self._device.create_event(timing=False)
            stream.record(joined)
            self._streams[0].wait(joined)

    def _run_steps(self, launches: Sequence[Launch] | None) -> None:
        for i, step in enumerate(self.plan.steps):
            stream = self._streams[step.stream]
            for j in step.waits:
                stream.wait(self._events[j])
            with self._ranges[i]:
                if launches is None:
                    self._launch(i)
                else:
                    launches[i]()
            if i in self._waited:
                event = self._events.setdefault(i, self._device.create_event(timing=False))
                stream.record(event)

    def _launch(self, index: int) -> None:
        self._binding.launch(index)
        self.plan = self._binding.plan  # a kernel that the device refuses to load has been replaced

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

    def scan(self, stacks: Sequence[Any], count: int) -> Any:
        """Queue ``count`` runs as one graph, captured when as many were run before; returns their outputs, [count], overwritten later."""
        if not self._captures or not self._has_run:  # loads the kernels
            return self._device.asarray(super().scan(stacks, count))
        scan = self._scans.pop(count, None)
        if scan is None:
            while len(self._scans) >= _MAX_SCANS:
                del self._scans[next(iter(self._scans))]
            scan = Scan(self._device, self._binding, self.regions, self._intake, self._streams[0], self._run_forked, count)
        self._scans[count] = scan  # the last one that was used
        scan.put(stacks)
        with self._range:
            return scan.launch()

    def capture(self) -> Graph:
        """Return the plan as one graph."""
        with self._device.capture(self._streams[0]) as graphs:
            self.run_steps()
        return graphs[0]


EXECUTOR = DeviceExecutor
