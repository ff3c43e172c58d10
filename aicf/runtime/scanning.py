"""Many runs of a plan as one CUDA graph: run k reads row k of stacked inputs where it is, and writes its output into row k."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.opset import find_dtype
from aicf.plan import Plan
from aicf.plan.arena import align
from aicf.plan.data import INPUT, OUTPUT
from aicf.runtime.binding import Binding, FindAddress, Launch
from aicf.runtime.intake import Intake, open_stacked
from device import Buffer, DeviceArray, Graph, Stream
from device.runtime import RuntimeDevice


class Scan:
    """The graph of ``count`` runs, with memory for their inputs and outputs; all else is in the plan's memory.

    The plan has one output, of one element. ``run`` queues the launches that it is given, as the plan's streams have them; ``intake`` are
    launches that bring an input of the caller's dtype to where the plan reads it. One launch ahead of the graph does so for all runs; where
    inputs in the plan's dtype cannot follow each other without a gap, each run has its own.
    """

    def __init__(
        self,
        device: RuntimeDevice,
        binding: Binding,
        regions: Mapping[str, Buffer],
        intake: Mapping[int, Intake],
        stream: Stream,
        run: Callable[[Sequence[Launch]], None],
        count: int,
    ) -> None:
        plan: Plan = binding.plan
        self._device, self._stream, self._count = device, stream, count
        self._types = plan.given_types
        own = [slot.type for _, slot in plan.inputs]
        whole = [i for i in intake if align(own[i].size_bytes) == own[i].size_bytes]
        self._strides = [align((own if i in whole else self._types)[i].size_bytes) for i in range(len(own))]
        self._buffers = [device.allocate(max(count * stride, 1)) for stride in self._strides]
        self._casts = {i: open_stacked(device, plan, binding.frozen, i, count, self._buffers[i].address) for i in whole}
        output = plan.outputs[0].type
        self._results = device.allocate(count * output.size_bytes)
        self.outputs: DeviceArray = self._results.view((count,), find_dtype(output.dtype))
        inputs = [(i, slot) for i, (_, slot) in enumerate(plan.inputs) if i not in intake or i in whole]

        def place(row: int) -> FindAddress:
            def find(region: str, offset: int) -> int:
                if region == OUTPUT:
                    return self._results.address + row * output.size_bytes + offset - plan.outputs[0].offset
                if region == INPUT:
                    for i, slot in inputs:
                        if slot.offset <= offset < max(slot.end, slot.offset + 1):
                            return self._find_row(i, row) + offset - slot.offset
                return regions[region].address + offset

            return find

        launches = [binding.bind_elsewhere(place(row)) for row in range(count)]
        with device.capture(stream) as graphs:
            for row in range(count):
                for i in intake.keys() - whole:
                    intake[i].take(self._find_row(i, row), stream)
                run(launches[row])
        self._graph: Graph = graphs[0]

    def _find_row(self, index: int, row: int) -> int:
        return self._buffers[index].address + row * self._strides[index]

    def put(self, stacks: Sequence[Any]) -> None:
        """Copy stacked inputs in, [count, ...] each and contiguous, from the host or from the device."""
        for i, (stack, t) in enumerate(zip(stacks, self._types, strict=True)):
            if i in self._casts:
                given = stack if isinstance(stack, DeviceArray) else self._device.asarray(np.asarray(stack, find_dtype(t.dtype)))
                self._casts[i].take(given.address, self._stream)
            elif not isinstance(stack, DeviceArray):
                self._buffers[i].write(self._pad_rows(np.asarray(stack, find_dtype(t.dtype)), i))
            elif self._strides[i] == t.size_bytes:
                self._device.copy(self._buffers[i].address, stack.address, self._count * t.size_bytes, self._stream)
            else:
                target, stride = self._buffers[i].address, self._strides[i]
                self._device.copy_rows(target, stride, stack.address, t.size_bytes, t.size_bytes, self._count, self._stream)

    def _pad_rows(self, stack: NDArray[Any], index: int) -> NDArray[np.uint8]:
        """Return a stack's bytes with each row where it is to lie."""
        rows = np.ascontiguousarray(stack).reshape(self._count, -1).view(np.uint8)
        made = np.zeros((self._count, self._strides[index]), np.uint8)
        made[:, : rows.shape[1]] = rows
        return made.reshape(-1)

    def launch(self) -> DeviceArray:
        """Queue all runs; returns their outputs, which the next launch overwrites."""
        self._graph.launch(self._stream)
        return self.outputs
