"""Calls of frozen ops by types: which kernel serves a call. Only this module and that of chains ask the registry."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property

from aicf.backends.calls import FrozenCall, say_lost
from aicf.backends.chain_calls import ALIGNED, ELEMENTWISE, ChainCalls
from aicf.backends.copy_calls import ask_copy
from aicf.errors import ChainError, FrozenError, SelectionError
from aicf.ops.arguments import Signature
from aicf.ops.arrays import View
from aicf.opset import Attrs, Type, find_op, freeze
from aicf.opset.copies import COPY
from aicf.opset.flat import REDUCE, find_offsets, is_shared, make_attrs, read_attrs, split_inputs
from aicf.opset.matmul import PRODUCT
from aicf.opset.moves import MOVE
from aicf.registry import How, HwCaps, KernelHandle, Preferences, Problem, Registry, open_registry
from aicf.registry.deciding import Decision
from contract.building import NotBuiltError, is_compiler_barred
from device import UnavailableError, open_device
from device.settings import read_settings
from device.toolchain import BuildError

_log = logging.getLogger("aicf.kernels")
# What stands between a kernel and its use that another kernel may be without.
FAILURES = (BuildError, FrozenError, UnavailableError)
FLAT, OPTIMIZER, GEMM = "flat", "optimizer", "gemm_bias_act"


def _try_building(call: FrozenCall) -> Exception | None:
    try:
        call.handle.build()
        call.handle.load()
    except FAILURES as error:
        return error
    return None


class FrozenCalls:
    """Finds kernels in a registry for the device that is open."""

    def __init__(self, registry: Registry, prefs: Preferences) -> None:
        self._registry = registry
        self._prefs = prefs
        self._known: dict[Hashable, FrozenCall] = {}
        self._num_refused = 0
        self._signatures: dict[str, Signature] = {}
        self._chains = ChainCalls(registry, prefs)

    @cached_property
    def _caps(self) -> HwCaps:
        return HwCaps.of(open_device())  # a process has one device

    @property
    def num_refused(self) -> int:
        """How many kernels were left out so far: a choice that was made before another one may be stale."""
        return self._registry.num_refused

    def find(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> FrozenCall:
        """Return the kernel that the registry decides for.

        Raises :class:`~aicf.errors.SelectionError` where none serves the call, and :class:`~aicf.errors.NotFrozenError` where the op has
        no frozen kernel at all.
        """
        key = _write_key(op, types, attrs)
        if self._num_refused != self._registry.num_refused:
            self._known.clear()
            self._num_refused = self._registry.num_refused
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._select(op, types, attrs)
        return found

    def find_ready(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> FrozenCall:
        """Return the kernel that the registry decides for, loaded; one that cannot be is refused, and the next one is taken.

        Raises as :meth:`find`, and what :meth:`refuse` raises.
        """
        while True:
            call = self.find(op, types, attrs)
            try:
                call.handle.load()
                return call
            except FAILURES as error:
                self.refuse(call, error)

    def build(self, calls: Iterable[FrozenCall]) -> list[tuple[FrozenCall, Exception]]:
        """Build and load the kernels of calls, several at a time; returns those that cannot be, with the reasons.

        Raises :class:`NotBuiltError` naming those that are not in the cache, where the compiler is barred.
        """
        unique = [call for call in {call.seal: call for call in calls}.values() if not call.handle.is_loaded]
        if not unique:
            return []
        if is_compiler_barred() and (missing := [c.handle for c in unique if not c.handle.is_built]):
            raise NotBuiltError(f"{', '.join(f'{h.op}/{h.kernel}' for h in missing)}: not in the cache")
        with ThreadPoolExecutor(read_settings().jobs) as pool:
            failures = pool.map(_try_building, unique)
        return [(call, error) for call, error in zip(unique, failures, strict=True) if error is not None]

    def refuse(self, call: FrozenCall, error: Exception) -> str:
        """Leave a call's kernel out of all choices from now on, and say so in the log; returns what was said.

        Raises :class:`~aicf.errors.ChainError` for the kernel of a chain that is not frozen: there is no other.
        """
        handle = call.handle
        if handle.chain is not None:
            raise ChainError(f"the kernel of the chain {handle.chain.text!r} is not available here: {error}") from error
        if self._registry.is_refused(handle.op, handle.seal):
            return ""
        first_line = str(error).partition("\n")[0]
        self._registry.refuse(handle.op, handle.seal, first_line)
        said = f"{handle.op}/{handle.kernel} cannot be used here, and the next kernel that serves the call takes its place: {first_line}"
        _log.warning("%s", said)
        return said

    def list_seals(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> list[str]:
        """Return the seals of all kernels that serve a call and have what is preferred; of a chain's the chosen one alone."""
        if op == FLAT:
            return self.list_seals(*_join_members(split_inputs(types, attrs)[0], attrs))
        if op in (ELEMENTWISE, MOVE, PRODUCT):
            return [self.find(op, types, attrs).seal]
        tables = self._registry.find_tables(op, self._caps)
        problem = ask_copy(types, attrs).problem if op == COPY else self._make_problem(op, types, attrs)[0]
        query = tables.interface.make_query(problem)
        legal = self._registry.keep_usable(tables, tables.core.ask(query).legal)
        kept = self._registry.find_preferred(tables, query, legal, self._prefs)
        seals = [str(kernel.manifest["seal"]) for i, kernel in enumerate(tables.kernels) if kept >> i & 1]
        return seals + [handle.seal for handle in self._registry.list_library_handles(tables, query, self._prefs)]

    def find_sealed(self, op: str, types: Sequence[Type | None], attrs: Attrs, seal: str) -> FrozenCall:
        """Return the call with the kernel that has this seal: nothing is decided.

        Raises :class:`~aicf.errors.SelectionError` where the frozen set has it no more, or it does not serve the call.
        """
        known = self._known.get(_write_key(op, types, attrs))
        if known is not None and known.seal == seal:
            return known
        if op == FLAT:
            return self._select_flat(types, attrs, seal)
        if op in (ELEMENTWISE, MOVE):
            return self._chains.find_sealed(op, types, attrs, seal)
        if op == PRODUCT:
            return self._select_product(types, attrs, seal)
        if op == COPY:
            copy = ask_copy(types, attrs)
            return copy.call(self._find_handle(op, copy.problem, seal))
        problem, names = self._make_problem(op, types, attrs)
        return _make_call(self._find_handle(op, problem, seal), names, attrs)

    def _find_handle(self, op: str, problem: Problem, seal: str) -> KernelHandle:
        tables = self._registry.find_tables(op, self._caps)
        query = tables.interface.make_query(problem)
        for i, kernel in enumerate(tables.kernels):
            if kernel.manifest["seal"] == seal and tables.core.ask(query).legal >> i & 1:
                return self._registry.make_handle(tables, query, Decision(i, How.FALLBACK, None, "named by a plan"))
        for handle in self._registry.list_library_handles(tables, query, self._prefs):
            if handle.seal == seal:
                return handle
        raise SelectionError(say_lost(op, seal))

    def _select(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> FrozenCall:
        if op == FLAT:
            return self._select_flat(types, attrs, None)
        if op in (ELEMENTWISE, MOVE):
            return self._chains.select(op, types, attrs)
        if op == PRODUCT:
            return self._select_product(types, attrs, None)
        if op == COPY:
            copy = ask_copy(types, attrs)
            return copy.call(self._registry.select(op, copy.problem, self._caps, self._prefs))
        problem, names = self._make_problem(op, types, attrs)
        return _make_call(self._registry.select(op, problem, self._caps, self._prefs), names, attrs)

    def _select_flat(self, types: Sequence[Type | None], attrs: Attrs, seal: str | None) -> FrozenCall:
        """Return the kernel that takes lists of members as one array each: a call has the address of each list's first member."""
        operands, members = split_inputs(types, attrs)
        name, whole, filled = _join_members(operands, attrs)
        call = self.find(name, whole, filled) if seal is None else self.find_sealed(name, whole, filled, seal)
        hidden: tuple[tuple[str, ...], ...] = ((),) * (members - 1)
        inputs = [part for names, each in zip(call.inputs, operands, strict=True) for part in (names, *hidden[: len(each) - 1])]
        is_one = [name == REDUCE or is_shared(i, attrs) for i in range(len(call.outputs))]
        outputs = [part for names, alone in zip(call.outputs, is_one, strict=True) for part in (names, *(() if alone else hidden))]
        return replace(call, inputs=tuple(inputs), outputs=tuple(outputs))

    def _select_product(self, types: Sequence[Type | None], attrs: Attrs, seal: str | None) -> FrozenCall:
        """Return the kernel that multiplies two matrices of batches; its tensors are parts of them, aligned as these are."""
        matrices = attrs["matrices"]
        assert isinstance(matrices, tuple)
        sizes = [t.reshape(t.shape[1:]) for t in types if t is not None]
        offsets = [number * t.size_bytes for number, t in zip(matrices, sizes, strict=True)]
        filled = find_op(GEMM).fill({"b_layout": attrs["b_layout"]})
        problem, names = self._make_problem(GEMM, [*sizes[1:], None], filled)
        problem.addresses = {name: ALIGNED + offset for name, offset in zip(("y", "a", "b"), offsets, strict=True)}
        select = self._registry.select
        handle = select(GEMM, problem, self._caps, self._prefs) if seal is None else self._find_handle(GEMM, problem, seal)
        call = _make_call(handle, names, filled)
        places = dict(zip(("y", "a", "b"), offsets, strict=True))
        return replace(call, inputs=((), *call.inputs[:2]), places=places)

    def _make_problem(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> tuple[Problem, tuple[str, ...]]:
        """Return a call as the registry knows it, and its inputs' names."""
        if op == OPTIMIZER:  # one flat array each, whatever the shape
            types = [None if t is None else t if not t.shape else t.reshape((t.num_elems,)) for t in types]
        signature = self._find_signature(op)
        names = find_op(op).input_names(len(types))
        views = {n: View(0, t.shape, _row_major(t.shape), t.dtype) for n, t in zip(names, types, strict=True) if t is not None}
        if strange := sorted(views.keys() - {name for name, _ in signature.inputs}):
            raise SelectionError(f"{op}: the frozen op has no input {strange[0]}, which was given; promote the op again")
        known = {a["name"] for a in signature.options}
        scalars = {row["name"] for row in signature.interface.row.get("scalars", ())}
        # What no input's shape tells: the op in the opset has an attribute of the size's name.
        sizes = {name: size for name in signature.interface.size_names if isinstance(size := attrs.get(name), int)}
        for name in attrs.keys() - known - scalars - sizes.keys() - set(signature.presence.values()):
            if attrs[name] != find_op(op).attributes[name]:
                raise SelectionError(f"{op}: the frozen op has no {name}, but {name} = {attrs[name]!r} was requested; promote the op again")
        options = {n: value for n, value in attrs.items() if n in known and isinstance(value, (bool, int, float, str))}
        problem = signature.make_problem(views, options, sizes)
        # Places in a plan are aligned further than any kernel asks for; the registry is to take addresses as aligned.
        problem.addresses = {}
        return problem, names

    def _find_signature(self, op: str) -> Signature:
        if op not in self._signatures:
            tables = self._registry.find_tables(op, self._caps)
            self._signatures[op] = Signature(tables.interface, tables.ties)
        return self._signatures[op]


def _write_key(op: str, types: Sequence[Type | None], attrs: Attrs) -> Hashable:
    return op, *[None if t is None else (t.dtype, t.shape) for t in types], freeze(attrs)


def _join_members(operands: Sequence[Sequence[Type]], attrs: Attrs) -> tuple[str, list[Type], Attrs]:
    """Return the call that a flat one makes for all members: its op, types and attributes."""
    name = str(attrs["op"])
    head = (1,) if name == REDUCE else ()
    whole = [Type(each[0].dtype, (*head, find_offsets(each)[1])) if len(each) > 1 else each[0] for each in operands]
    return name, whole, find_op(name).fill(make_attrs(name, read_attrs(attrs), whole))


def _make_call(handle: KernelHandle, names: tuple[str, ...], attrs: Attrs) -> FrozenCall:
    """Return a handle as a call. Outputs are in the opset's order: those that take an input's place have its name in the interface."""
    op = find_op(handle.op)
    layouts = handle.interface.find_layouts(handle.query.values)
    written = iter([t.name for t in layouts if t.role == "output"])
    taken = [op.find_taken(i, len(names), attrs) for i in range(sum(t.role != "input" for t in layouts))]
    outputs = [(next(written) if place is None else names[place],) for place in taken]
    given = ((scalar["name"], attrs.get(scalar["name"])) for scalar in handle.interface.row.get("scalars", ()))
    return FrozenCall(
        handle, tuple((name,) for name in names), tuple(outputs), {name: value for name, value in given if isinstance(value, (int, float))}
    )


class _Opened(dict[bool, FrozenCalls]):
    def __missing__(self, deterministic: bool) -> FrozenCalls:
        made = self[deterministic] = FrozenCalls(open_registry(), Preferences(deterministic=deterministic))
        return made


# The calls of the project's own frozen set by whether they are deterministic, opened when they are first asked for.
CALLS = _Opened()


def open_calls(*, deterministic: bool) -> FrozenCalls:
    """Return the calls of the project's own frozen set."""
    return CALLS[deterministic]


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
