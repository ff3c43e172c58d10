"""Calls of frozen ops by types: which kernel serves one, and launching it on addresses. The one place that asks the registry."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from aicf.errors import SelectionError
from aicf.ops.arguments import Signature
from aicf.ops.arrays import View
from aicf.opset import Attrs, Type, find_op
from aicf.registry import How, HwCaps, KernelHandle, Preferences, Problem, Registry, open_registry
from aicf.registry.deciding import Decision
from contract.structs import make_params
from device import open_device


@dataclass(frozen=True)
class FrozenCall:
    """A kernel for one call: tensors by their names in the op's interface, inputs as the opset orders them."""

    handle: KernelHandle
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scalars: Mapping[str, float]

    @property
    def seal(self) -> str:
        """The seal of the kernel's manifest."""
        return str(self.handle.frozen.manifest["seal"])

    def make_params(self, inputs: Sequence[int | None], outputs: Sequence[int]) -> ctypes.Structure:
        """Return the C struct for device addresses; raises ValueError naming one that the kernel cannot take.

        A tensor that the kernel changes in place is where the output is: whoever calls has copied the input there.
        """
        addresses = {name: at for name, at in zip(self.inputs, inputs, strict=True) if at is not None}
        addresses |= dict(zip(self.outputs, outputs, strict=True))
        for name, at in addresses.items():
            step = self.handle.alignment_bytes.get(name, 1)
            if at % step:
                raise ValueError(f"{self.handle.op}: {self.handle.kernel} needs {name} aligned to {step} bytes, got {at:#x}")
        query = self.handle.query
        return make_params(self.handle.interface.row, query.by_size, query.attributes, addresses, query.strides, self.scalars)

    def launch(self, params: ctypes.Structure, workspace: int, stream: int) -> None:
        """Queue the kernel; raises :class:`~aicf.errors.LaunchError` with the reason where it refuses."""
        self.handle.load().launch(params, workspace, stream)


class FrozenCalls:
    """Finds kernels in a registry for the device that is open."""

    def __init__(self, registry: Registry, prefs: Preferences) -> None:
        self._registry = registry
        self._prefs = prefs
        self._known: dict[str, FrozenCall] = {}
        self._signatures: dict[str, Signature] = {}

    def find(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> FrozenCall:
        """Return the kernel that the registry decides for.

        Raises :class:`~aicf.errors.SelectionError` where none serves the call, and :class:`~aicf.errors.NotFrozenError` where the op has
        no frozen kernel at all.
        """
        key = json.dumps([op, [None if t is None else str(t) for t in types], sorted(attrs.items())])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._select(op, types, attrs)
        return found

    def find_sealed(self, op: str, types: Sequence[Type | None], attrs: Attrs, seal: str) -> FrozenCall:
        """Return the call with the kernel that has this seal: nothing is decided.

        Raises :class:`~aicf.errors.SelectionError` where the frozen set has it no more, or it does not serve the call.
        """
        problem, names = self._make_problem(op, types, attrs)
        tables = self._registry.find_tables(op, HwCaps.of(open_device()))
        query = tables.interface.make_query(problem)
        for i, kernel in enumerate(tables.kernels):
            if kernel.manifest["seal"] == seal and tables.core.ask(query).legal >> i & 1:
                handle = self._registry.make_handle(tables, query, Decision(i, How.FALLBACK, None, "named by a plan"))
                return _make_call(handle, names, attrs)
        raise SelectionError(f"{op}: the plan names the kernel with seal {seal[:16]}, which the frozen set does not have; compile it again")

    def _select(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> FrozenCall:
        problem, names = self._make_problem(op, types, attrs)
        return _make_call(self._registry.select(op, problem, HwCaps.of(open_device()), self._prefs), names, attrs)

    def _make_problem(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> tuple[Problem, tuple[str, ...]]:
        """Return a call as the registry knows it, and its inputs' names."""
        signature = self._find_signature(op)
        names = find_op(op).input_names(len(types))
        views = {n: View(0, t.shape, _row_major(t.shape), t.dtype) for n, t in zip(names, types, strict=True) if t is not None}
        known = {a["name"] for a in signature.options}
        scalars = {row["name"] for row in signature.interface.row.get("scalars", ())}
        for name in attrs.keys() - known - scalars:
            if attrs[name] != find_op(op).attributes[name]:
                raise SelectionError(f"{op}: the frozen op has no {name}, and {name} = {attrs[name]!r} is asked for; promote the op anew")
        options = {n: value for n, value in attrs.items() if n in known and isinstance(value, (bool, int, float, str))}
        problem = signature.make_problem(views, options)
        # Places in a plan are aligned further than any kernel asks for; the registry is to take addresses as aligned.
        problem.addresses = {}
        return problem, names

    def _find_signature(self, op: str) -> Signature:
        if op not in self._signatures:
            tables = self._registry.find_tables(op, HwCaps.of(open_device()))
            self._signatures[op] = Signature(tables.interface, tables.ties)
        return self._signatures[op]


def _make_call(handle: KernelHandle, names: tuple[str, ...], attrs: Attrs) -> FrozenCall:
    """Return a handle as a call. Outputs are in the opset's order: those that take an input's place have its name in the interface."""
    op = find_op(handle.op)
    written = [t.name for t in handle.interface.find_layouts(handle.query.values) if t.role == "output"]
    outputs = (*(op.in_place[name] for name in op.outputs if name in op.in_place), *written)
    given = ((scalar["name"], attrs.get(scalar["name"])) for scalar in handle.interface.row.get("scalars", ()))
    return FrozenCall(handle, names, outputs, {name: value for name, value in given if isinstance(value, (int, float))})


@lru_cache(maxsize=2)
def open_calls(*, deterministic: bool) -> FrozenCalls:
    """Return the calls of the project's own frozen set."""
    return FrozenCalls(open_registry(), Preferences(deterministic=deterministic))


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
