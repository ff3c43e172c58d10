"""Calls of frozen ops by types: which kernel serves one, and launching it on addresses. The one place that asks the registry."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from aicf.errors import SelectionError
from aicf.ops.arguments import Signature
from aicf.ops.arrays import View
from aicf.opset import Attrs, Type, find_op
from aicf.registry import How, HwCaps, KernelHandle, Preferences, Problem, Registry, open_registry
from aicf.registry.deciding import Decision
from device import open_device


@dataclass(frozen=True)
class FrozenCall:
    """A kernel for one call: tensors by their names in the op's interface, inputs as the opset orders them."""

    handle: KernelHandle
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def seal(self) -> str:
        """The seal of the kernel's manifest."""
        return str(self.handle.frozen.manifest["seal"])

    def make_params(self, inputs: Sequence[int | None], outputs: Sequence[int]) -> ctypes.Structure:
        """Return the C struct for device addresses; raises ValueError naming one that the kernel cannot take."""
        addresses = {name: at for name, at in zip(self.inputs, inputs, strict=True) if at is not None}
        addresses |= dict(zip(self.outputs, outputs, strict=True))
        for name, at in addresses.items():
            if at % self.handle.alignment_bytes.get(name, 1):
                raise ValueError(
                    f"{self.handle.op}: {self.handle.kernel} needs {name} aligned to {self.handle.alignment_bytes[name]} bytes"
                )
        return self.handle.make_params(addresses)

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
                return _make_call(handle, names)
        raise SelectionError(f"{op}: the plan names the kernel with seal {seal[:16]}, which the frozen set does not have; compile it again")

    def _select(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> FrozenCall:
        problem, names = self._make_problem(op, types, attrs)
        return _make_call(self._registry.select(op, problem, HwCaps.of(open_device()), self._prefs), names)

    def _make_problem(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> tuple[Problem, tuple[str, ...]]:
        """Return a call as the registry knows it, and its inputs' names."""
        signature = self._find_signature(op)
        names = find_op(op).input_names(len(types))
        views = {n: View(0, t.shape, _row_major(t.shape), t.dtype) for n, t in zip(names, types, strict=True) if t is not None}
        options = {a["name"]: attrs[a["name"]] for a in signature.options}
        problem = signature.make_problem(
            views, {name: value for name, value in options.items() if isinstance(value, (bool, int, float, str))}
        )
        # Places in a plan are aligned further than any kernel asks for; the registry is to take addresses as aligned.
        problem.addresses = {}
        return problem, names

    def _find_signature(self, op: str) -> Signature:
        if op not in self._signatures:
            tables = self._registry.find_tables(op, HwCaps.of(open_device()))
            self._signatures[op] = Signature(tables.interface, tables.ties)
        return self._signatures[op]


def _make_call(handle: KernelHandle, names: tuple[str, ...]) -> FrozenCall:
    layouts = handle.interface.find_layouts(handle.query.values)
    return FrozenCall(handle, names, tuple(layout.name for layout in layouts if layout.role == "output"))


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
