"""Calls that were made before: a kernel, its parameters but for addresses, and what its outputs are. Nothing is decided again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from aicf.backends.calls import FrozenCall
from aicf.opset import Attrs, OpDef, Type, find_dtype

# Arrays lie further apart than any is large: an address tells which one it stands for.
_MARK_BITS = 48


def make_key(op: str, inputs: Sequence[Any | None], attrs: Attrs) -> Hashable:
    """Return what a call is known by again: op, attributes, and each input's shape, dtype and strides."""
    return op, tuple(attrs.items()), tuple([None if x is None else (x.shape, x.dtype, x.strides_bytes) for x in inputs])


class PreparedCall:
    """A call of a frozen op whose kernel is loaded.

    ``results`` are shape and dtype of each output; ``taken`` the input that it is made from in place, by number, or None.
    """

    def __init__(self, call: FrozenCall, op: OpDef, num_inputs: int, attrs: Attrs, results: Sequence[Type]) -> None:
        self.results = [(t.shape, find_dtype(t.dtype)) for t in results]
        self.taken = [op.find_taken(i, num_inputs, attrs) for i in range(len(results))]
        self.workspace_bytes = call.handle.workspace_bytes
        self._launch = call.handle.load().launch
        marks = [(i + 1) << _MARK_BITS for i in range(num_inputs + len(results))]
        params = call.make_params(marks[:num_inputs], marks[num_inputs:])
        self._type, self._template = type(params), bytes(params)
        self._pointers = []
        alignments = call.handle.alignment_bytes
        steps = {t["field"]: alignments.get(t["name"], 1) for t in call.handle.interface.row["tensors"]}
        for field in call.handle.interface.row["fields"]:
            if field["type"] == "pointer" and (address := getattr(params, field["name"])):
                mark, offset = divmod(address, 1 << _MARK_BITS)
                self._pointers.append((field["name"], mark - 1, offset, steps[field["name"]]))

    def launch(self, addresses: Sequence[int], workspace: int) -> bool:
        """Queue the kernel on the default stream; returns False, and does nothing, where it cannot take an address.

        ``addresses`` are those of all inputs, 0 for one that is not given, and of all outputs.
        """
        params = self._type.from_buffer_copy(self._template)
        for name, index, offset, step in self._pointers:
            address = addresses[index] + offset
            if address % step:
                return False
            setattr(params, name, address)
        self._launch(params, workspace, 0)
        return True
