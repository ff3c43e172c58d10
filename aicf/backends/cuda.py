"""Frozen kernels on a GPU or the emulated device. An op that no frozen kernel serves raises; nothing falls back to the host."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.backends import Backend
from aicf.backends.calls import FrozenCall
from aicf.backends.frozen import FAILURES, FrozenCalls, open_calls
from aicf.backends.prepared import PreparedCall, make_key
from aicf.errors import LaunchError, NotFrozenError, UnsupportedError
from aicf.opset import Attrs, Builder, OpDef, Type, find_dtype, find_op, require_contiguous, type_of
from device import DeviceArray, open_device
from device.memory import RuntimeArray
from device.runtime import RuntimeDevice

# Calls of as many shapes and attributes are kept; then it begins anew.
_MAX_PREPARED = 4096


class _Lowering(Builder):
    """Calls ops on device arrays, for lowering rules."""

    def __init__(self, backend: CudaBackend) -> None:
        self._backend = backend

    def call(self, op: str, inputs: Sequence[Any | None], attrs: Attrs) -> tuple[Any, ...]:
        """Return the outputs of an op."""
        return self._backend.op_call(op, inputs, find_op(op).fill(attrs))

    def type_of(self, value: Any) -> Type:
        """Return an array's type."""
        return type_of(value)


class CudaBackend(Backend):
    """Arrays are the device's. Work goes to its default stream."""

    name = "cuda"

    def __init__(self) -> None:
        device = open_device()
        assert isinstance(device, RuntimeDevice)  # both kinds are
        self._device = device
        self._calls: FrozenCalls | None = None
        self._prepared: dict[Hashable, PreparedCall] = {}  # of kernels that these calls found

    def op_call(self, op: str, inputs: Sequence[Any | None], attrs: Attrs) -> tuple[Any, ...]:
        """Return the outputs of an op: launched if it is frozen, else lowered to frozen ones."""
        calls = open_calls(deterministic=True)
        if calls is not self._calls:
            self._calls = calls
            self._prepared.clear()
        key = make_key(op, inputs, attrs)
        prepared = self._prepared.get(key)
        if prepared is not None and (done := self._launch_again(prepared, inputs)) is not None:
            return done
        known = find_op(op)
        for i, x in enumerate(inputs):
            if x is not None:
                require_contiguous(x, f"{op}: input {i}")
        types = [None if x is None else type_of(x) for x in inputs]
        results = known.find_types(types, attrs)
        if known.is_frozen:
            return self._launch(calls, known, inputs, types, attrs, results, key)
        if known.is_view:
            return (_reshape(inputs[0], results[0]),)
        if op == "Full":
            return (self.from_host(np.full(results[0].shape, attrs["value"], find_dtype(results[0].dtype))),)
        if op == "Copy":
            return (self._clone(inputs[0]),)
        made = None if known.lower is None else known.lower(_Lowering(self), inputs, attrs)
        if made is None:
            raise UnsupportedError(describe_unserved(op, types, attrs))
        # What came out as it went in is still an array of its own: one may be overwritten without the other.
        taken = {x.address for x in inputs if x is not None}
        return tuple(self._clone(x) if x.address in taken else x for x in made)

    def _launch_again(self, prepared: PreparedCall, inputs: Sequence[Any | None]) -> tuple[Any, ...] | None:
        """Return the outputs of a call that was made before; None where its kernel cannot take these addresses."""
        empty = self._device.empty
        outputs = tuple(
            [
                empty(shape, dtype) if taken is None or (source := inputs[taken]) is None else self._clone(source)
                for (shape, dtype), taken in zip(prepared.results, prepared.taken, strict=True)
            ]
        )
        addresses = [0 if x is None else x.address for x in inputs]
        addresses += [x.address for x in outputs]
        workspace = self._device.allocate(prepared.workspace_bytes) if prepared.workspace_bytes else None
        done = prepared.launch(addresses, 0 if workspace is None else workspace.address)
        return outputs if done else None

    def _launch(
        self,
        calls: FrozenCalls,
        op: OpDef,
        inputs: Sequence[Any | None],
        types: Sequence[Type | None],
        attrs: Attrs,
        results: Sequence[Type],
        key: Hashable,
    ) -> tuple[Any, ...]:
        while True:
            try:
                call = calls.find(op.name, types, attrs)
            except NotFrozenError as error:
                raise UnsupportedError(f"{describe_unserved(op.name, types, attrs)} ({error})") from error
            try:
                outputs = self._launch_call(call, op, inputs, attrs, results)
                if len(self._prepared) >= _MAX_PREPARED:
                    self._prepared.clear()
                self._prepared[key] = PreparedCall(call, op, len(inputs), attrs, results)
                return outputs
            except LaunchError as error:
                if not error.is_refused_at_load:
                    raise
                calls.refuse(call, error)
            except FAILURES as error:
                calls.refuse(call, error)

    def _launch_call(
        self, call: FrozenCall, op: OpDef, inputs: Sequence[Any | None], attrs: Attrs, results: Sequence[Type]
    ) -> tuple[Any, ...]:
        places = [op.find_taken(i, len(inputs), attrs) for i in range(len(results))]
        sources = [None if i is None else inputs[i] for i in places]
        # A kernel that works in place gets a copy: what it overwrites is still the caller's.
        outputs = tuple(
            self._device.empty(t.shape, find_dtype(t.dtype)) if source is None else self._clone(source)
            for t, source in zip(results, sources, strict=True)
        )
        params = call.make_params([None if x is None else x.address for x in inputs], [x.address for x in outputs])
        wanted = call.handle.workspace_bytes
        workspace = self._device.allocate(wanted) if wanted else None
        call.launch(params, 0 if workspace is None else workspace.address, 0)
        return outputs

    def _clone(self, array: Any) -> DeviceArray:
        made = self._device.empty(array.shape, array.dtype)
        self.copy_into(made, array)
        return made

    def from_host(self, values: NDArray[Any]) -> DeviceArray:
        """Return a copy on the device."""
        return self._device.asarray(np.ascontiguousarray(values).reshape(values.shape))

    def to_host(self, array: Any) -> NDArray[Any]:
        """Return a copy in host memory, behind all work on the default stream."""
        made: NDArray[Any] = array.copy_to_host()
        return made

    def copy_into(self, target: Any, source: Any) -> None:
        """Queue a copy from one array to another."""
        if target.address != source.address:
            self._device.copy(target.address, source.address, source.span_bytes)


def describe_unserved(op: str, types: Sequence[Type | None], attrs: Attrs) -> str:
    """Return a message for a call that no kernel serves: op, problem and remedy."""
    problem = ", ".join("none" if t is None else str(t) for t in types)
    settings = "".join(f", {name}={value!r}" for name, value in attrs.items())
    return f"{op}({problem}{settings}): no frozen kernel serves it on the cuda backend; use backend numpy, or freeze an op for it"


def _reshape(array: Any, result: Type) -> Any:
    """Return the array's memory in another shape. Arrays of this backend are contiguous."""
    assert isinstance(array, RuntimeArray)
    return array.buffer.view(result.shape, array.dtype, array.offset_bytes)


BACKEND = CudaBackend
