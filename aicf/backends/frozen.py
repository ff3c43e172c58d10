"""Calls of frozen ops by types: which kernel serves a call, and its launch on addresses. Only this module asks the registry."""

from __future__ import annotations

import ctypes
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

from aicf.errors import FrozenError, SelectionError
from aicf.ops.arguments import Signature
from aicf.ops.arrays import View
from aicf.opset import Attrs, Type, find_dtype, find_op
from aicf.opset.chains import COUNTERS, find_generic, read_chain, read_results
from aicf.opset.flat import REDUCE, find_offsets, make_attrs, read_attrs, split_inputs
from aicf.registry import How, HwCaps, KernelHandle, Preferences, Problem, Registry, open_registry
from aicf.registry.deciding import Decision
from aicf.registry.tables import Tables
from contract.calls import Interface, Query
from contract.chain_building import specialise
from contract.expressions.cuda import read_chains
from contract.expressions.language import Chain
from contract.kernels import FrozenKernel
from contract.structs import make_params
from device import UnavailableError, open_device
from device.settings import read_settings
from device.toolchain import BuildError

_log = logging.getLogger("aicf.kernels")
# What stands between a kernel and its use that another kernel may be without.
FAILURES = (BuildError, FrozenError, UnavailableError)
ELEMENTWISE, FLAT, OPTIMIZER = "elementwise", "flat", "optimizer"
WORD_BYTES = 4
# What a launch takes that moves next to nothing, in a graph, on an H200.
_LAUNCH_US = 1.5


@dataclass(frozen=True)
class FrozenCall:
    """A kernel for one call: tensors by their names in the op's interface, inputs as the opset orders them.

    An input or output has one name, or as many as it has words of 32 bits where it is a counter.
    """

    handle: KernelHandle
    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]
    scalars: Mapping[str, float]

    @property
    def seal(self) -> str:
        """What names the kernel."""
        return self.handle.seal

    def make_params(self, inputs: Sequence[int | None], outputs: Sequence[int]) -> ctypes.Structure:
        """Return the C struct for device addresses; raises ValueError naming one that the kernel cannot take.

        A tensor that the kernel changes in place is where the output is: whoever calls has copied the input there.
        """
        addresses = _spread(self.inputs, inputs) | _spread(self.outputs, outputs)
        for name, at in addresses.items():
            step = self.handle.alignment_bytes.get(name, 1)
            if at % step:
                raise ValueError(f"{self.handle.op}: {self.handle.kernel} needs {name} aligned to {step} bytes, got {at:#x}")
        query = self.handle.query
        return make_params(self.handle.interface.row, query.by_size, query.attributes, addresses, query.strides, self.scalars)

    def launch(self, params: ctypes.Structure, workspace: int, stream: int) -> None:
        """Queue the kernel; raises :class:`~aicf.errors.LaunchError` with the reason where it refuses."""
        self.handle.load().launch(params, workspace, stream)


def _try_building(call: FrozenCall) -> Exception | None:
    try:
        call.handle.build()
        call.handle.load()
    except FAILURES as error:
        return error
    return None


def _spread(names: Sequence[tuple[str, ...]], addresses: Sequence[int | None]) -> dict[str, int]:
    return {name: at + WORD_BYTES * i for each, at in zip(names, addresses, strict=True) if at is not None for i, name in enumerate(each)}


class FrozenCalls:
    """Finds kernels in a registry for the device that is open."""

    def __init__(self, registry: Registry, prefs: Preferences) -> None:
        self._registry = registry
        self._prefs = prefs
        self._known: dict[str, FrozenCall] = {}
        self._num_refused = 0
        self._signatures: dict[str, Signature] = {}
        self._chains = ChainCalls(registry, prefs)

    def find(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> FrozenCall:
        """Return the kernel that the registry decides for.

        Raises :class:`~aicf.errors.SelectionError` where none serves the call, and :class:`~aicf.errors.NotFrozenError` where the op has
        no frozen kernel at all.
        """
        key = json.dumps([op, [None if t is None else str(t) for t in types], sorted(attrs.items())])
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
        """Build and load the kernels of calls, several at a time; returns those that cannot be, with the reasons."""
        unique = list({call.seal: call for call in calls}.values())
        with ThreadPoolExecutor(read_settings().jobs) as pool:
            failures = pool.map(_try_building, unique)
        return [(call, error) for call, error in zip(unique, failures, strict=True) if error is not None]

    def refuse(self, call: FrozenCall, error: Exception) -> str:
        """Leave a call's kernel out of all choices from now on, and say so in the log; returns what was said.

        Raises the error itself for the kernel of a chain that is not frozen: there is no other.
        """
        handle = call.handle
        if handle.chain is not None:
            raise error
        first_line = str(error).partition("\n")[0]
        self._registry.refuse(handle.op, handle.seal, first_line)
        said = f"{handle.op}/{handle.kernel} cannot be used here, and the next kernel that serves the call takes its place: {first_line}"
        _log.warning("%s", said)
        return said

    def list_seals(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> list[str]:
        """Return the seals of all kernels that serve a call and have what is preferred; of a chain's the chosen one alone."""
        if op == FLAT:
            return self.list_seals(*_join_members(split_inputs(types, attrs)[0], attrs))
        if op == ELEMENTWISE:
            return [self.find(op, types, attrs).seal]
        tables = self._registry.find_tables(op, HwCaps.of(open_device()))
        query = tables.interface.make_query(self._make_problem(op, types, attrs)[0])
        legal = self._registry.keep_usable(tables, tables.core.ask(query).legal)
        kept = self._registry.find_preferred(tables, query, legal, self._prefs)
        return [str(kernel.manifest["seal"]) for i, kernel in enumerate(tables.kernels) if kept >> i & 1]

    def find_sealed(self, op: str, types: Sequence[Type | None], attrs: Attrs, seal: str) -> FrozenCall:
        """Return the call with the kernel that has this seal: nothing is decided.

        Raises :class:`~aicf.errors.SelectionError` where the frozen set has it no more, or it does not serve the call.
        """
        if op == FLAT:
            return self._select_flat(types, attrs, seal)
        if op == ELEMENTWISE:
            return self._chains.find_sealed(op, types, attrs, seal)
        tables = self._registry.find_tables(op, HwCaps.of(open_device()))
        problem, names = self._make_problem(op, types, attrs)
        query = tables.interface.make_query(problem)
        for i, kernel in enumerate(tables.kernels):
            if kernel.manifest["seal"] == seal and tables.core.ask(query).legal >> i & 1:
                handle = self._registry.make_handle(tables, query, Decision(i, How.FALLBACK, None, "named by a plan"))
                return _make_call(handle, names, attrs)
        raise SelectionError(_say_lost(op, seal))

    def _select(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> FrozenCall:
        if op == FLAT:
            return self._select_flat(types, attrs, None)
        if op == ELEMENTWISE:
            return self._chains.select(op, types, attrs)
        problem, names = self._make_problem(op, types, attrs)
        return _make_call(self._registry.select(op, problem, HwCaps.of(open_device()), self._prefs), names, attrs)

    def _select_flat(self, types: Sequence[Type | None], attrs: Attrs, seal: str | None) -> FrozenCall:
        """Return the kernel that takes lists of members as one array each: a call has the address of each list's first member."""
        operands, members = split_inputs(types, attrs)
        name, whole, filled = _join_members(operands, attrs)
        call = self.find(name, whole, filled) if seal is None else self.find_sealed(name, whole, filled, seal)
        hidden: tuple[tuple[str, ...], ...] = ((),) * (members - 1)
        inputs = [part for names, each in zip(call.inputs, operands, strict=True) for part in (names, *hidden[: len(each) - 1])]
        outputs = [part for names in call.outputs for part in (names, *(() if name == REDUCE else hidden))]
        return replace(call, inputs=tuple(inputs), outputs=tuple(outputs))

    def _make_problem(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> tuple[Problem, tuple[str, ...]]:
        """Return a call as the registry knows it, and its inputs' names."""
        if op == OPTIMIZER:  # one flat array each, whatever the shape
            types = [None if t is None else t if not t.shape else t.reshape((t.num_elems,)) for t in types]
        signature = self._find_signature(op)
        names = find_op(op).input_names(len(types))
        views = {n: View(0, t.shape, _row_major(t.shape), t.dtype) for n, t in zip(names, types, strict=True) if t is not None}
        known = {a["name"] for a in signature.options}
        scalars = {row["name"] for row in signature.interface.row.get("scalars", ())}
        for name in attrs.keys() - known - scalars:
            if attrs[name] != find_op(op).attributes[name]:
                raise SelectionError(f"{op}: the frozen op has no {name}, but {name} = {attrs[name]!r} was requested; promote the op again")
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


def _join_members(operands: Sequence[Sequence[Type]], attrs: Attrs) -> tuple[str, list[Type], Attrs]:
    """Return the call that a flat one makes for all members: its op, types and attributes."""
    name = str(attrs["op"])
    head = (1,) if name == REDUCE else ()
    whole = [Type(each[0].dtype, (*head, find_offsets(each)[1])) if len(each) > 1 else each[0] for each in operands]
    return name, whole, find_op(name).fill(make_attrs(name, read_attrs(attrs), whole))


def _make_call(handle: KernelHandle, names: tuple[str, ...], attrs: Attrs) -> FrozenCall:
    """Return a handle as a call. Outputs are in the opset's order: those that take an input's place have its name in the interface."""
    op = find_op(handle.op)
    written = [t.name for t in handle.interface.find_layouts(handle.query.values) if t.role == "output"]
    outputs = [(name,) for name in (*(op.in_place[name] for name in op.outputs if name in op.in_place), *written)]
    given = ((scalar["name"], attrs.get(scalar["name"])) for scalar in handle.interface.row.get("scalars", ()))
    return FrozenCall(
        handle, tuple((name,) for name in names), tuple(outputs), {name: value for name, value in given if isinstance(value, (int, float))}
    )


def _say_lost(op: str, seal: str) -> str:
    return f"{op}: the plan names the kernel with seal {seal[:16]}, which the frozen set does not have; compile it again"


@dataclass(frozen=True)
class _ChainQuestion:
    """A call of a chain as the registry knows it; ``listed`` is the name that the set has for the chain's meaning, None without."""

    tables: Tables
    chain: Chain
    sizes: Mapping[str, int]
    dtype: str
    listed: str | None
    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]

    @property
    def problem(self) -> Problem:
        """The call of the chain that the set lists."""
        return Problem(dict(self.sizes), {"chain": self.listed or "", "dtype": self.dtype})

    def make_own(self) -> KernelHandle:
        """Return the kernel that is built of a sealed engine."""
        return _make_chain_handle(self.tables, self.chain, self.sizes, self.dtype)

    def call(self, handle: KernelHandle) -> FrozenCall:
        """Return the call by a kernel."""
        return FrozenCall(handle, self.inputs, self.outputs, {})


class ChainCalls:
    """Finds kernels of chains: the frozen one of a chain that the set lists by the same meaning, else one built of a sealed engine."""

    def __init__(self, registry: Registry, prefs: Preferences) -> None:
        self._registry = registry
        self._prefs = prefs
        self._listed: dict[str, dict[str, str]] = {}

    def select(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> FrozenCall:
        """Return the kernel for a chain; raises :class:`~aicf.errors.NotFrozenError` where there is no engine."""
        asked = self._ask(op, types, attrs)
        if asked.listed is not None:
            try:
                return asked.call(self._registry.select(op, asked.problem, HwCaps.of(open_device()), self._prefs))
            except SelectionError:  # listed among the op's chains, and not frozen
                pass
        return asked.call(asked.make_own())

    def find_sealed(self, op: str, types: Sequence[Type | None], attrs: Attrs, seal: str) -> FrozenCall:
        """Return the kernel for a chain that has a seal: nothing is decided. Raises :class:`~aicf.errors.SelectionError`."""
        asked = self._ask(op, types, attrs)
        if asked.listed is not None:
            query = asked.tables.interface.make_query(asked.problem)
            for i, kernel in enumerate(asked.tables.kernels):
                if kernel.manifest["seal"] == seal and asked.tables.core.ask(query).legal >> i & 1:
                    decision = Decision(i, How.FALLBACK, None, "named by a plan")
                    return asked.call(self._registry.make_handle(asked.tables, query, decision))
        own = asked.make_own()
        if own.seal != seal:
            raise SelectionError(_say_lost(op, seal))
        return asked.call(own)

    def _ask(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> _ChainQuestion:
        chain = read_chain(str(attrs["chain"]))
        tables = self._registry.find_tables(op, HwCaps.of(open_device()))
        sizes = {name: n for name in ("rows", "columns") if isinstance(n := attrs[name], int)}
        dtype = find_generic(types, chain)
        listed = self._list_chains(tables.kernels[0], dtype).get(chain.find_meaning(dtype))
        inputs = [("counter",), *_name_words("in", [t for t in types[1:] if t is not None])]
        outputs = _name_words("out", read_results(str(attrs["results"])))
        return _ChainQuestion(tables, chain, sizes, dtype, listed, tuple(inputs), tuple(outputs))

    def _list_chains(self, engine: FrozenKernel, dtype: str) -> dict[str, str]:
        """Return the names of the chains of the op's catalogue by their meaning, as the sealed sources have them."""
        if dtype not in self._listed:
            header = engine.read_source(f"sources/{ELEMENTWISE}/chains.hpp").decode()
            self._listed[dtype] = {chain.find_meaning(dtype): chain.name for chain in read_chains(header).values()}
        return self._listed[dtype]


def _make_chain_handle(tables: Tables, chain: Chain, sizes: Mapping[str, int], dtype: str) -> KernelHandle:
    interface = Interface(ELEMENTWISE, specialise(tables.interface.row, chain))
    query = interface.make_query(Problem(dict(sizes), {"chain": chain.name, "dtype": dtype}))
    engine = tables.kernels[0]
    us = _LAUNCH_US + 1e6 * _count_bytes(interface, query) / engine.manifest["prior"]["bytes_per_s"]
    name, reason = f"chain__{chain.key[:8]}", "a chain that is not frozen, built of the sealed engine; the time is that of its bytes"
    return KernelHandle(ELEMENTWISE, name, tables.arch, How.FALLBACK, reason, us, True, True, {}, query, engine, interface, chain)


def _count_bytes(interface: Interface, query: Query) -> int:
    layouts = interface.find_layouts(query.values)
    return sum(math.prod(t.list_lengths(query.by_size)) * find_dtype(t.dtype).itemsize for t in layouts)


def _name_words(stem: str, types: Sequence[Type]) -> list[tuple[str, ...]]:
    """Return the names of the operands that each value is: counters have two of 32 bits per element."""
    names, at = [], 0
    for t in types:
        count = 2 * t.num_elems if t.dtype in COUNTERS else 1
        names.append(tuple(f"{stem}{at + i}" for i in range(count)))
        at += count
    return names


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
