"""Choosing the frozen kernel for a call. The same inputs have the same answer, and repeated questions are answered from a cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from aicf.errors import SelectionError
from aicf.kernels.external import InstalledLibraries, Libraries
from aicf.registry.deciding import Decision, decide
from aicf.registry.handles import KernelHandle
from aicf.registry.library_choice import LibraryChoice, LibraryVerdict, make_stand_in
from aicf.registry.problems import HwCaps, Preferences
from aicf.registry.tables import Tables
from contract.calls import Problem, Query
from contract.conditions import describe, list_address_steps
from contract.decision import Asked, How
from contract.frozen_set import FrozenOp, read_op
from contract.schemas import remember_valid
from device.settings import read_settings

NO_PREFERENCES = Preferences()
# Why a kernel of the population is not chosen: the chip's estimates and the buckets never name it.
BY_TIMES_ALONE = "chosen by measured and surveyed times alone"
_MAX_REMEMBERED = 65536
_Items = tuple[tuple[str, object], ...]


class _Op(NamedTuple):
    """An op as read; addresses matter modulo ``address_step``."""

    frozen: FrozenOp
    archs: list[str]
    address_step: int
    tables: dict[str, Tables]


def _arrange(frozen: FrozenOp) -> _Op:
    domains = [*(k.manifest["domain"] for k in frozen.kernels.values()), *(row["domain"] for row in frozen.libraries)]
    # Buckets may ask for more than any kernel does.
    classes = [one["when"] for axis in frozen.description["axes"] for one in axis["classes"]]
    steps = [step for conditions in (*domains, *classes) for step in list_address_steps(conditions)]
    return _Op(frozen, frozen.archs, math.lcm(*steps), {})


class Registry:
    """Selects among frozen kernels, which it reads once, op by op, when they are first asked for.

    They are those of ``frozen_dir``; without one an op is looked for in the project's own set, then in the one that is installed, and the
    first that has it serves all of its calls. ``libraries`` finds the libraries of others that the sets name, by default those installed.
    """

    def __init__(self, frozen_dir: Path | None = None, libraries: Libraries | None = None) -> None:
        self._frozen_dir = frozen_dir
        self._library_choice = LibraryChoice(libraries or InstalledLibraries())
        self._ops: dict[str, _Op] = {}
        self._refused: dict[tuple[str, str], str] = {}  # by op and seal: why
        self.num_refused = 0  # what is remembered of choices holds as long as this stays
        self._chosen: dict[tuple[str, _Items, _Items, _Items, _Items, _Items, HwCaps, Preferences], KernelHandle] = {}

    @classmethod
    def holding(cls, frozen: FrozenOp, libraries: Libraries | None = None) -> Registry:
        """Return a registry that has one op already, as it is given."""
        made = cls(libraries=libraries)
        made._ops[frozen.name] = _arrange(frozen)
        return made

    def select(self, op: str, problem: Problem, hw_caps: HwCaps, prefs: Preferences = NO_PREFERENCES) -> KernelHandle:
        """Return the kernel for a call.

        Raises ValueError for a problem that the op does not have, :class:`SelectionError` where no kernel serves it or has what is
        preferred, and :class:`FrozenError` where the frozen set cannot be read.
        """
        addresses: _Items = ()
        if problem.addresses:
            step = self.read(op).address_step
            addresses = tuple([(name, address % step) for name, address in problem.addresses.items()])
        sizes, attributes, strides = tuple(problem.sizes.items()), tuple(problem.attributes.items()), tuple(problem.strides.items())
        scalars: _Items = tuple(problem.scalars.items())
        key = (op, sizes, attributes, strides, addresses, scalars, hw_caps, prefs)
        handle = self._chosen.get(key)
        if handle is None:
            if len(self._chosen) >= _MAX_REMEMBERED:
                self._chosen.clear()
            handle = self._chosen[key] = self._select(op, problem, hw_caps, prefs)
        return handle

    def _select(self, op: str, problem: Problem, hw_caps: HwCaps, prefs: Preferences) -> KernelHandle:
        prefs.check()
        tables = self.find_tables(op, hw_caps)
        # A copy: the caller may change what it passed in, and the handle must not follow.
        own = Problem(dict(problem.sizes), dict(problem.attributes), dict(problem.strides), dict(problem.addresses), dict(problem.scalars))
        query = tables.interface.make_query(own)
        asked = tables.core.ask(query)
        decision = decide(tables, asked, self.find_preferred(tables, query, self.keep_usable(tables, asked.legal), prefs))
        if decision is None:
            raise SelectionError(self._describe_refusal(tables, query, asked, prefs))
        chosen = choose_library(self.judge_libraries(tables, query, asked, decision, prefs)) if tables.libraries else None
        return self.make_handle(tables, query, decision) if chosen is None else self.make_library_handle(tables, query, decision, chosen)

    def judge_libraries(self, tables: Tables, query: Query, asked: Asked, decision: Decision, prefs: Preferences) -> list[LibraryVerdict]:
        """Return what each library of the index comes to for a call, beside the kernel that was decided for."""
        op, kernel = tables.interface.op, decision.kernel
        workspace = self.find_workspace(tables, query, kernel) if prefs.prefer == "memory" and tables.libraries else 0
        refused = {seal: why for (owner, seal), why in self._refused.items() if owner == op}
        return self._library_choice.judge(tables, query, asked, (decision.predicted_us, workspace), prefs, refused)

    def list_library_handles(self, tables: Tables, query: Query, prefs: Preferences) -> list[KernelHandle]:
        """Return handles of all libraries that serve a call and have what is preferred, however long they take."""
        asked = tables.core.ask(query)
        decision = decide(tables, asked, self.find_preferred(tables, query, self.keep_usable(tables, asked.legal), prefs))
        if decision is None or not tables.libraries:
            return []
        usable = (v for v in self.judge_libraries(tables, query, asked, decision, prefs) if v.kernel is not None)
        handles = [self.make_library_handle(tables, query, decision, v) for v in usable]
        return [h for h in handles if h.library is not None and not h.library.find_fault(make_stand_in(tables.interface, query))]

    def make_library_handle(self, tables: Tables, query: Query, decision: Decision, chosen: LibraryVerdict) -> KernelHandle:
        """Return the handle of a library that stands for the kernel that was decided for."""
        assert chosen.kernel is not None
        row, own = chosen.kernel.row, self.make_handle(tables, query, decision)
        present = {layout.name for layout in tables.interface.find_layouts(query.values)}
        return replace(
            own,
            kernel=row["library"],
            how=How.LIBRARY,
            reason=chosen.dropped or chosen.describe(),
            predicted_us=chosen.predicted_us,
            deterministic=row["deterministic"],
            capture_safe=row["capture_safe"],
            alignment_bytes={name: step for name, step in row["alignment_bytes"].items() if name in present},
            library=chosen.kernel,
        )

    def refuse(self, op: str, seal: str, why: str) -> None:
        """Leave a kernel out of all choices from now on: it cannot be built or loaded here."""
        self._refused[op, seal] = why
        self.num_refused = len(self._refused)
        self._chosen = {key: handle for key, handle in self._chosen.items() if (handle.op, handle.seal) != (op, seal)}

    def is_refused(self, op: str, seal: str) -> bool:
        """Whether a kernel is left out."""
        return (op, seal) in self._refused

    def keep_usable(self, tables: Tables, kernels: int) -> int:
        """Return those kernels that are not left out, a bit each."""
        if not self._refused:
            return kernels
        out = (1 << i for i, kernel in enumerate(tables.kernels) if (kernel.op, str(kernel.manifest["seal"])) in self._refused)
        return kernels & ~sum(out)

    def read(self, op: str) -> _Op:
        """Return an op of the frozen set, read and validated the first time."""
        found = self._ops.get(op)
        if found is None:
            found = self._ops[op] = _arrange(read_op(op, self._frozen_dir))
        return found

    def find_tables(self, op: str, hw_caps: HwCaps) -> Tables:
        """Return what is known of an op's kernels for a device."""
        found = self.read(op)
        arch = hw_caps.find_arch(op, found.archs)
        if arch not in found.tables:
            found.tables[arch] = Tables(found.frozen, arch)
        return found.tables[arch]

    def find_preferred(self, tables: Tables, query: Query, legal: int, prefs: Preferences) -> int:
        """Return those of the legal kernels that have what is preferred, a bit each."""
        if prefs == NO_PREFERENCES:
            return legal
        core, by_memory = tables.core, prefs.prefer == "memory"
        kept = core.keep_preferred(legal, deterministic=prefs.deterministic, accumulate=prefs.accumulate)
        if prefs.max_workspace_bytes is None and not by_memory:
            return kept
        wanted = {i: self.find_workspace(tables, query, i) for i in range(len(tables.kernels)) if kept >> i & 1}
        return core.keep_small(kept, wanted, max_bytes=prefs.max_workspace_bytes, least=by_memory)

    def explain_dislike(self, tables: Tables, query: Query, kernel: int, prefs: Preferences) -> str:
        """Return what of the preferences a kernel does not have, "" where it has all; a choice by memory compares, and is not here."""
        manifest = tables.kernels[kernel].manifest
        if self._refused and (why := self._refused.get((tables.interface.op, str(manifest["seal"])))):
            return f"it cannot be used here: {why}"
        if prefs.deterministic and not manifest["deterministic"]:
            return "its results may differ from run to run"
        if prefs.accumulate is not None and manifest.get("accumulate") != prefs.accumulate:
            return f"its manifest says that it sums in {manifest.get('accumulate', 'nothing in particular')}, not in {prefs.accumulate}"
        if prefs.max_workspace_bytes is not None:
            wanted = self.find_workspace(tables, query, kernel)
            if wanted > prefs.max_workspace_bytes:
                return f"it wants {wanted} bytes of workspace, more than {prefs.max_workspace_bytes}"
        return ""

    def find_workspace(self, tables: Tables, query: Query, kernel: int) -> int:
        """Return the workspace in bytes that a kernel wants; one that has to be asked is built and loaded for that."""
        if tables.kernels[kernel].manifest["workspace"]["kind"] == "none":
            return 0
        return self.make_handle(tables, query, Decision(kernel, How.FALLBACK, None, "")).workspace_bytes

    def make_handle(self, tables: Tables, query: Query, decision: Decision) -> KernelHandle:
        """Return the handle of the kernel that was decided for."""
        frozen = tables.kernels[decision.kernel]
        manifest = frozen.manifest
        return KernelHandle(
            tables.interface.op,
            frozen.name,
            tables.arch,
            decision.how,
            decision.reason,
            decision.predicted_us,
            manifest["deterministic"],
            manifest["capture_safe"],
            manifest["alignment_bytes"],
            query,
            frozen,
            tables.interface,
        )

    def _describe_refusal(self, tables: Tables, query: Query, asked: Asked, prefs: Preferences) -> str:
        reasons = []
        for i, kernel in enumerate(tables.kernels):
            is_legal = asked.legal >> i & 1
            why = (self.explain_dislike(tables, query, i, prefs) or BY_TIMES_ALONE) if is_legal else describe_broken(tables, asked, i)
            reasons.append(f"\n  {kernel.name}: {why}")
        wanted = "has what is preferred for" if asked.legal else "serves"
        return f"{tables.interface.op}: no frozen kernel for {tables.arch} {wanted} {_name(query)}:{''.join(reasons)}"


def choose_library(verdicts: Sequence[LibraryVerdict]) -> LibraryVerdict | None:
    """Return the fastest of the libraries that are faster than the kernel; None where none is."""
    return min((v for v in verdicts if not v.dropped), key=lambda v: v.predicted_us or 0.0, default=None)


def describe_broken(tables: Tables, asked: Asked, kernel: int) -> str:
    """Return what the first condition of a kernel's domain asks for that does not hold, "" where all do."""
    row = tables.core.find_broken(asked, kernel)
    return "" if row is None else describe(row)


def _name(query: Query) -> str:
    return ", ".join(f"{k}={v}" for values in (query.by_size, query.attributes) for k, v in values.items())


@lru_cache(maxsize=1)
def open_registry() -> Registry:
    """Return the registry of all frozen sets, the project's own first; one a process."""
    remember_valid(read_settings().cache_dir / "frozen")
    return Registry()


def select(op: str, problem: Problem, hw_caps: HwCaps, prefs: Preferences = NO_PREFERENCES) -> KernelHandle:
    """Choose a kernel of the frozen sets: :meth:`Registry.select`."""
    return open_registry().select(op, problem, hw_caps, prefs)
