"""The launches of a plan's steps: kernels with their parameters bound, in memory and on streams that are there already."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from aicf.backends.calls import FrozenCall
from aicf.backends.frozen import FAILURES, FrozenCalls, open_calls
from aicf.errors import LaunchError
from aicf.kernels.library import KernelLibrary
from aicf.opset import Type
from aicf.plan import Plan, Slot, Step
from aicf.runtime.launches import SavedLaunch, read_steps
from aicf.runtime.places import find_joined, list_copies
from device import Buffer, Stream
from device.runtime import RuntimeDevice
from device.settings import read_settings

Launch = Callable[[], None]
# Where an offset of a region is in device memory.
FindAddress = Callable[[str, int], int]


class Binding:
    """A plan's launches. All that a launch needs is made ready here; launches that were ``saved`` with the plan are made as described.

    The registry is asked only where there are none, or one cannot be made. ``plan`` names the kernels that run: one that cannot be loaded
    has been replaced.
    """

    def __init__(
        self, plan: Plan, device: RuntimeDevice, regions: Mapping[str, Buffer], streams: Sequence[Stream], saved: Mapping[str, Any] | None
    ) -> None:
        self.plan = plan
        self.frozen = open_calls(deterministic=True)
        self._device, self._streams = device, streams
        self._find: FindAddress = lambda region, offset: regions[region].address + offset
        self._found: list[FrozenCall | None] | None = None
        self._workspaces: dict[int, Buffer] = {}  # by step: of kernels that want more than the plan has for them
        self._sources: dict[int, _Source] = {}  # by step: what its launch was made of
        self.launches: list[Launch] = self._bind_saved(saved) or self._bind_all()
        self._join_copies(self.launches)

    def find_address(self, slot: Slot) -> int:
        """Return where a slot's bytes begin in device memory."""
        return self._find(slot.region, slot.offset)

    def bind_elsewhere(self, find_address: FindAddress) -> list[Launch]:
        """Return the same launches for memory that is elsewhere; workspaces are shared, so both are for one order of launches."""
        moved = copy.copy(self)
        moved._find = find_address
        launches = [moved._bind_source(i, self._sources[i]) for i in range(len(self.plan.steps))]
        moved._join_copies(launches)
        return launches

    def _join_copies(self, launches: list[Launch]) -> None:
        """Have one launch for copies that follow each other in memory, on both sides without a gap, as they do in the plan."""
        for group in find_joined(self.plan.steps):
            first, last = self.plan.steps[group[0]], self.plan.steps[group[-1]]
            assert first.inputs[0] is not None
            target, source = self.find_address(first.outputs[0]), self.find_address(first.inputs[0])
            size_bytes = last.outputs[0].end - first.outputs[0].offset
            launches[group[0]] = partial(self._device.copy, target, source, size_bytes, self._streams[first.stream])
            for i in group[1:]:
                launches[i] = _do_nothing

    def launch(self, index: int) -> None:
        """Queue a step's launch. A kernel that the device refuses to load has done nothing: the next one that serves takes its place."""
        while True:
            try:
                return self.launches[index]()
            except LaunchError as error:
                if not error.is_refused_at_load:
                    raise
                self._replace(index, error)

    @property
    def calls(self) -> list[FrozenCall | None]:
        """The kernels that the plan names, by step; None for a copy. Raises :class:`~aicf.errors.SelectionError` for one that is lost."""
        if self._found is None:
            self._found = [_find_call(self.frozen, step) for step in self.plan.steps]
        return self._found

    def _bind_saved(self, saved: Mapping[str, Any] | None) -> list[Launch]:
        """Return launches as they were saved; none where there are none, or a kernel cannot be had."""
        if saved is None:
            return []
        try:
            launches = read_steps(saved)
            with ThreadPoolExecutor(read_settings().jobs) as pool:
                libraries = list(pool.map(lambda each: None if each is None else each.load(), launches))
        except FAILURES:
            return []  # asked one by one, the registry says what is wrong, or has another kernel
        pairs = enumerate(zip(launches, libraries, strict=True))
        self._sources = {i: None if each is None or library is None else (each, library) for i, (each, library) in pairs}
        return [self._bind_source(i, source) for i, source in self._sources.items()]

    def _bind_source(self, index: int, source: _Source) -> Launch:
        if isinstance(source, tuple):
            launch, library = source
            return self._bind_params(index, library, *self._place(index, launch))
        return self.bind(index, source)

    def _place(self, index: int, launch: SavedLaunch) -> tuple[Any, int]:
        """Return a saved launch's parameters, and its workspace's address."""
        params = launch.make_params(self._find)
        if launch.workspace is None:
            return params, self._find_workspace(index, launch.own_workspace_bytes)
        return params, self._find(*launch.workspace)

    def _bind_all(self) -> list[Launch]:
        """Return launches of the kernels that the plan names; those that cannot be had are replaced."""
        failed = {call.seal: error for call, error in self.frozen.build(call for call in self.calls if call is not None)}
        self.launches = []
        for i, call in enumerate(self.calls):
            self.launches.append(_do_nothing)
            if call is not None and call.seal in failed:
                self._replace(i, failed[call.seal])
            else:
                self._sources[i] = call
                self.launches[i] = self.bind(i, call)
        return self.launches

    def _replace(self, index: int, error: Exception) -> None:
        """Give a step the next kernel that serves it, loudly; the plan names that one from now on. Raises where there is none."""
        step, failed = self.plan.steps[index], self.calls[index]
        assert failed is not None
        self.frozen.refuse(failed, error)
        call = self.calls[index] = self.frozen.find_ready(step.op, _list_types(step), step.attrs)
        changed = replace(step, kernel=call.handle.kernel, seal=call.seal, predicted_us=call.predicted_us)
        self.plan = replace(self.plan, steps=(*self.plan.steps[:index], changed, *self.plan.steps[index + 1 :]))
        self._sources[index] = call
        self.launches[index] = self.bind(index, call)

    def _find_workspace(self, index: int, wanted: int) -> int:
        """Return the address of a step's workspace, in the arena where the plan has enough there."""
        slot = self.plan.steps[index].workspace
        if slot is not None and slot.type.size_bytes >= wanted:
            return self.find_address(slot)
        if wanted == 0:
            return 0
        held = self._workspaces.get(index)
        if held is None or held.size_bytes < wanted:
            held = self._workspaces[index] = self._device.allocate(wanted)
        return held.address

    def bind(self, index: int, call: FrozenCall | None) -> Launch:
        """Return a step's launch by a kernel, in the plan's memory; without a kernel it is a copy."""
        step, device = self.plan.steps[index], self._device  # a launch that held all this would keep memory until the collector comes
        if call is None:
            ((target, source, size_bytes),) = self._list_copies(step)
            stream = self._streams[step.stream]
            return lambda: device.copy(target, source, size_bytes, stream)
        inputs = [None if slot is None else self.find_address(slot) for slot in step.inputs]
        params = call.make_params(inputs, [self.find_address(slot) for slot in step.outputs])
        library = call.handle.load()
        return self._bind_params(index, library, params, self._find_workspace(index, call.handle.workspace_bytes))

    def _bind_params(self, index: int, library: KernelLibrary, params: Any, workspace: int) -> Launch:
        step, device = self.plan.steps[index], self._device
        stream, copies = self._streams[step.stream], self._list_copies(step)

        def launch() -> None:
            for target, source, size_bytes in copies:
                device.copy(target, source, size_bytes, stream)
            library.launch(params, workspace, stream.handle)

        return launch

    def _list_copies(self, step: Step) -> list[tuple[int, int, int]]:
        return [(self.find_address(target), self.find_address(source), n) for target, source, n in list_copies(step)]


def _do_nothing() -> None:
    pass


# A launch as it was saved, with its library; a kernel that was chosen; None for a copy.
_Source = tuple[SavedLaunch, KernelLibrary] | FrozenCall | None


def _list_types(step: Step) -> list[Type | None]:
    return [None if slot is None else slot.type for slot in step.inputs]


def _find_call(calls: FrozenCalls, step: Step) -> FrozenCall | None:
    """Return the kernel that a plan names for a step; None for a copy."""
    return None if step.op == "Copy" else calls.find_sealed(step.op, _list_types(step), step.attrs, step.seal)
