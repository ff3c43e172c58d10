"""Calls of chains of elementwise functions: by the frozen kernel of a chain with the same meaning, or one built of a sealed engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from aicf.backends.calls import LAUNCH_US, FrozenCall, say_lost
from aicf.errors import SelectionError
from aicf.opset import Attrs, Type, find_dtype
from aicf.opset.chains import COUNTERS, find_generic, read_chain, read_results
from aicf.opset.moves import MOVE, make_chain_call
from aicf.registry import How, HwCaps, KernelHandle, Preferences, Problem, Registry
from aicf.registry.deciding import Decision
from aicf.registry.tables import Tables
from contract.calls import Interface, Query
from contract.chain_building import specialise
from contract.expressions.cuda import read_chains
from contract.expressions.tree import Chain
from contract.kernels import FrozenKernel
from device import open_device

ELEMENTWISE = "elementwise"
# An address that every kernel takes.
ALIGNED = 1 << 20


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
    strides: Mapping[str, int]
    places: Mapping[str, int]

    @property
    def problem(self) -> Problem:
        """The call of the chain that the set lists."""
        return self.make_problem(self.listed or "")

    def make_problem(self, chain: str) -> Problem:
        """Return the call of a chain by name. Parts of arrays are aligned as their offsets are."""
        addresses = {name: ALIGNED + offset for name, offset in self.places.items()}
        return Problem(dict(self.sizes), {"chain": chain, "dtype": self.dtype}, dict(self.strides), addresses)

    def make_own(self) -> KernelHandle:
        """Return the kernel that is built of a sealed engine."""
        return _make_chain_handle(self.tables, self.chain, self.make_problem(self.chain.name))

    def call(self, handle: KernelHandle) -> FrozenCall:
        """Return the call by a kernel."""
        return FrozenCall(handle, self.inputs, self.outputs, {}, self.places)


class ChainCalls:
    """Finds kernels of chains: the frozen one of a chain that the set lists by the same meaning, else one built of a sealed engine."""

    def __init__(self, registry: Registry, prefs: Preferences) -> None:
        self._registry = registry
        self._prefs = prefs
        self._listed: dict[str, dict[str, str]] = {}

    @cached_property
    def _caps(self) -> HwCaps:
        return HwCaps.of(open_device())  # a process has one device

    def select(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> FrozenCall:
        """Return the kernel for a chain, or for a move, which is one.

        Raises :class:`~aicf.errors.NotFrozenError` where there is no engine.
        """
        asked = self._ask(op, types, attrs)
        if asked.listed is not None:
            try:
                return asked.call(self._registry.select(ELEMENTWISE, asked.problem, self._caps, self._prefs))
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
            raise SelectionError(say_lost(op, seal))
        return asked.call(own)

    def _ask(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> _ChainQuestion:
        if op == MOVE:
            return self._ask_move(types, attrs)
        chain = read_chain(str(attrs["chain"]))
        tables = self._registry.find_tables(ELEMENTWISE, self._caps)
        sizes = {name: n for name in ("rows", "columns") if isinstance(n := attrs[name], int)}
        dtype = find_generic(types, chain)
        listed = self._list_chains(tables.kernels[0], dtype).get(chain.find_meaning(dtype))
        inputs = [("counter",), *_name_words("in", [t for t in types[1:] if t is not None])]
        outputs = _name_words("out", read_results(str(attrs["results"])))
        return _ChainQuestion(tables, chain, sizes, dtype, listed, tuple(inputs), tuple(outputs), {}, {})

    def _ask_move(self, types: Sequence[Type | None], attrs: Attrs) -> _ChainQuestion:
        """Return a move as the chain that returns its operands: parts of the arrays that it reads, and of the one that it writes."""
        dtype = next(t.dtype for t in types[1:] if t is not None)
        operands, filled, strides, places = make_chain_call(attrs, dtype)
        asked = self._ask(ELEMENTWISE, operands, filled)
        sources = attrs["sources"]
        assert isinstance(sources, tuple)
        inputs = [tuple(f"in{i}" for i, source in enumerate(sources) if source == k) for k in range(len(types) - 1)]
        outputs = (tuple(f"out{i}" for i in range(len(sources))),)
        return replace(asked, inputs=((), *inputs), outputs=outputs, strides=strides, places=places)

    def _list_chains(self, engine: FrozenKernel, dtype: str) -> dict[str, str]:
        """Return the names of the chains of the op's catalogue by their meaning, as the sealed sources have them."""
        if dtype not in self._listed:
            header = engine.read_source(f"sources/{ELEMENTWISE}/chains.hpp").decode()
            self._listed[dtype] = {chain.find_meaning(dtype): chain.name for chain in read_chains(header).values()}
        return self._listed[dtype]


def _make_chain_handle(tables: Tables, chain: Chain, problem: Problem) -> KernelHandle:
    interface = Interface(ELEMENTWISE, specialise(tables.interface.row, chain))
    query = interface.make_query(problem)
    engine = tables.kernels[0]
    us = LAUNCH_US + 1e6 * _count_bytes(interface, query) / engine.manifest["prior"]["bytes_per_s"]
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
