"""Frozen kernels on a GPU or the emulated device. An op that no frozen kernel serves raises; nothing falls back to the host."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.backends import Backend
from aicf.backends.calls import FrozenCall
from aicf.backends.frozen import CALLS, FAILURES, FrozenCalls, open_calls
from aicf.backends.prepared import Prepared, Trace
from aicf.errors import LaunchError, NotFrozenError, UnsupportedError
from aicf.opset import Attrs, Builder, OpDef, Type, find_dtype, find_op, require_contiguous
from aicf.opset.filled import Filled, fill
from device import open_device
from device.layout import Layout, check_dtype, find_row_major
from device.memory import RuntimeArray
from device.runtime import RuntimeDevice

# Calls of as many shapes and attributes are kept; then it begins anew.
_MAX_PREPARED = 4096
# Larger constants are made anew each time, and not kept.
_MAX_CONSTANT_BYTES = 4096


class _Lowering(Builder):
    """Calls ops on device arrays, for lowering rules."""

    def __init__(self, backend: CudaBackend, trace: Trace) -> None:
        self._backend, self._trace = backend, trace

    def call(self, op: str, inputs: Sequence[Any | None], attrs: Attrs) -> tuple[Any, ...]:
        """Return the outputs of an op."""
        return self._backend.call_traced(op, inputs, find_op(op).fill(attrs), self._trace)

    def type_of(self, value: Any) -> Type:
        """Return an array's type."""
        return _find_type(value.layout)


class CudaBackend(Backend):
    """Arrays are the device's. Work goes to its default stream."""

    name = "cuda"

    def __init__(self) -> None:
        device = open_device()
        assert isinstance(device, RuntimeDevice)  # both kinds are
        self._device = device
        self._calls: FrozenCalls | None = None
        self._num_refused = 0
        # Of kernels that these calls found; by the number of an op and its attributes, and each input's shape, dtype and strides.
        self._prepared: dict[Hashable, Prepared] = {}

    def type_of(self, array: Any) -> Type:
        """Return an array's type."""
        return _find_type(array.layout)

    def op_call(self, op: str, inputs: Sequence[Any | None], attrs: Attrs) -> tuple[Any, ...]:
        """Return the outputs of an op: launched if it is frozen, else lowered to frozen ones; a call made before is just launched."""
        calls = CALLS[True]
        if calls is not self._calls or calls.num_refused != self._num_refused:
            self._forget(calls)
        filled = attrs if type(attrs) is Filled else fill(find_op(op), attrs)
        words: list[Hashable] = [filled.number]
        for x in inputs:
            words.append(None if x is None else x.layout)  # noqa: PERF401  # a comprehension is a call, in Python 3.11
        key = tuple(words)
        prepared = self._prepared.get(key)
        if prepared is not None and (done := prepared.run(self._device, inputs)) is not None:
            return done
        for i, x in enumerate(inputs):
            if x is not None:
                require_contiguous(x, f"{op}: input {i}")
        # An array that is given twice is two inputs.
        given = [None if x is None else x.reshaped(x.layout) for x in inputs]
        trace = Trace(given)
        outputs = self.call_traced(op, given, attrs, trace)
        if op == "Full" and outputs[0].span_bytes <= _MAX_CONSTANT_BYTES:
            # Made again it is copied in device memory, which the host does not wait for; what goes out may be overwritten.
            outputs = (self._clone(outputs[0], trace),)
        if calls.num_refused == self._num_refused and (made := trace.finish(outputs)) is not None:
            if len(self._prepared) >= _MAX_PREPARED:
                self._prepared.clear()
            self._prepared[key] = made
        return outputs

    def _forget(self, calls: FrozenCalls) -> None:
        """Prepare calls anew, by kernels that are found from now on."""
        self._calls, self._num_refused = calls, calls.num_refused
        self._prepared.clear()

    def call_traced(self, op: str, inputs: Sequence[Any | None], attrs: Attrs, trace: Trace) -> tuple[Any, ...]:
        """Return the outputs of an op, and note what was done for them."""
        known = find_op(op)
        types = [None if x is None else _find_type(x.layout) for x in inputs]
        results = known.find_types(types, attrs)
        if known.is_frozen:
            return self._launch(known, inputs, types, attrs, results, trace)
        if known.is_view:
            source = inputs[0]
            assert isinstance(source, RuntimeArray)
            viewed = source.reshaped(find_row_major(results[0].shape, source.dtype))
            trace.view(source, viewed)
            return (viewed,)
        if op == "Full":
            made = self.from_host(np.full(results[0].shape, attrs["value"], find_dtype(results[0].dtype)))
            trace.keep(made)
            return (made,)
        if op == "Copy":
            return (self._clone(inputs[0], trace),)
        lowered = None if known.lower is None else known.lower(_Lowering(self, trace), inputs, attrs)
        if lowered is None:
            raise UnsupportedError(describe_unserved(op, types, attrs))
        # What came out as it went in is still an array of its own: one may be overwritten without the other.
        taken = {x.queued_address for x in inputs if x is not None}
        return tuple(self._clone(x, trace) if x.queued_address in taken else x for x in lowered)

    def _launch(
        self, op: OpDef, inputs: Sequence[Any | None], types: Sequence[Type | None], attrs: Attrs, results: Sequence[Type], trace: Trace
    ) -> tuple[Any, ...]:
        calls = open_calls(deterministic=True)
        while True:
            try:
                call = calls.find(op.name, types, attrs)
            except NotFrozenError as error:
                raise UnsupportedError(f"{describe_unserved(op.name, types, attrs)} ({error})") from error
            try:
                return self._launch_call(call, op, inputs, attrs, results, trace)
            except LaunchError as error:
                if not error.is_refused_at_load:
                    raise
                calls.refuse(call, error)
            except FAILURES as error:
                calls.refuse(call, error)

    def _launch_call(
        self, call: FrozenCall, op: OpDef, inputs: Sequence[Any | None], attrs: Attrs, results: Sequence[Type], trace: Trace
    ) -> tuple[Any, ...]:
        misplaced = call.find_misplaced([None if x is None else x.queued_address for x in inputs])
        inputs = [self._clone_once(x, trace) if i in misplaced else x for i, x in enumerate(inputs)]
        places = [op.find_taken(i, len(inputs), attrs) for i in range(len(results))]
        sources = [None if i is None else inputs[i] for i in places]
        outputs = tuple(self._device.empty_queued(find_row_major(t.shape, find_dtype(t.dtype))) for t in results)
        for output, source in zip(outputs, sources, strict=True):
            if source is not None:  # a kernel that works in place gets a copy: what it overwrites is still the caller's
                self.copy_into(output, source)
        params = call.make_params([None if x is None else x.queued_address for x in inputs], [x.queued_address for x in outputs])
        wanted = call.handle.workspace_bytes
        workspace = self._device.allocate_queued(wanted) if wanted else None
        call.launch(params, 0 if workspace is None else workspace.queued_address, 0)
        trace.launch(call, inputs, outputs, sources)
        return outputs

    def _clone_once(self, array: Any, trace: Trace) -> RuntimeArray:
        """Return a copy that lies where any kernel takes it; other arrays of the same layouts do not need it."""
        trace.drop()
        return self._clone(array, trace)

    def _clone(self, array: Any, trace: Trace) -> RuntimeArray:
        made = self._device.empty_queued(array.layout)
        self.copy_into(made, array)
        trace.make([made], [array])
        return made

    def from_host(self, values: NDArray[Any]) -> RuntimeArray:
        """Return a copy on the device."""
        native = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False)).reshape(values.shape)
        check_dtype(native.dtype)
        made = self._device.empty_queued(find_row_major(native.shape, native.dtype))
        made.copy_from_host(native)
        return made

    def to_host(self, array: Any) -> NDArray[Any]:
        """Return a copy in host memory, behind all work on the default stream."""
        made: NDArray[Any] = array.copy_to_host()
        return made

    def copy_into(self, target: Any, source: Any) -> None:
        """Queue a copy from one array to another."""
        if target.queued_address != source.queued_address:
            self._device.copy(target.queued_address, source.queued_address, source.span_bytes)


@lru_cache(maxsize=16384)
def _find_type(layout: Layout) -> Type:
    return Type(layout.dtype.name, layout.shape)


def describe_unserved(op: str, types: Sequence[Type | None], attrs: Attrs) -> str:
    """Return a message for a call that no kernel serves: op, problem and remedy."""
    problem = ", ".join("none" if t is None else str(t) for t in types)
    settings = "".join(f", {name}={value!r}" for name, value in attrs.items())
    return f"{op}({problem}{settings}): no frozen kernel serves it on the cuda backend; use backend numpy, or freeze an op for it"


BACKEND = CudaBackend
