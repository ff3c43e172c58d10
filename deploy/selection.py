"""Which kernels a deployed library holds, read from ``frozen/`` (``docs/frozen.md`` describes the format)."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.frozen_set import list_ops, load_kernels
from contract.index import read_index
from contract.kernels import FrozenKernel
from contract.layout import SOURCES, hash_value
from deploy.errors import DeployError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class DeployedOp:
    """An op of the library: its description, and kernels sorted by name with the entries, medians and surveys that name them.

    ``header`` is a frozen kernel of the op's present C interface, whose header is the library's, where none of ``kernels`` is of it.
    """

    description: Row
    kernels: tuple[FrozenKernel, ...]
    entries: tuple[Row, ...]
    medians: tuple[Row, ...]
    surveys: tuple[Row, ...]
    header: FrozenKernel | None = None

    @property
    def name(self) -> str:
        """The op's name."""
        return str(self.description["op"])

    @property
    def interface(self) -> Row:
        """How a call's problem is found in the op's Params struct."""
        interface: Row = self.description["interface"]
        return interface

    @property
    def archs(self) -> list[str]:
        """The architectures that kernels are for."""
        return sorted({str(k.manifest["arch"]) for k in self.kernels})


def select(frozen_dir: Path, ops: Sequence[str] = (), archs: Sequence[str] = (), patterns: Sequence[str] = ()) -> list[DeployedOp]:
    """Return the chosen ops (all where none is named), with kernels of the chosen architectures whose names match a pattern.

    Every source of every chosen kernel is checked against its hash. Raises :class:`DeployError` where something that was asked for is not
    there, and :class:`~contract.errors.FrozenError` where it disagrees.
    """
    known = list_ops(frozen_dir)
    if missing := sorted(set(ops) - set(known)):
        raise DeployError(f"{missing[0]} is not frozen; there are: {', '.join(known) or 'none'}")
    found = [_select_op(frozen_dir / op, archs, patterns) for op in known if not ops or op in ops]
    chosen = [op for op in found if op is not None]
    if not chosen:
        raise DeployError(f"no frozen kernel matches ops {list(ops)}, architectures {list(archs)}, kernels {list(patterns)}")
    return chosen


def _select_op(folder: Path, archs: Sequence[str], patterns: Sequence[str]) -> DeployedOp | None:
    def is_chosen(entry: Row) -> bool:
        matches = not patterns or any(fnmatch.fnmatch(entry["kernel"], p) for p in patterns)
        return matches and (not archs or entry["bucket"]["arch"] in archs)

    index = read_index(folder)
    if not any(is_chosen(entry) for entry in index.entries):
        return None
    op = load_kernels(index, is_chosen)
    present = hash_value(op.description["interface"])
    header = None
    if all(kernel.manifest["interface"] != present for kernel in op.kernels.values()):
        header = next(iter(list_with_header(load_kernels(index).kernels.values(), op.description["interface"])), None)
    read = [*op.kernels.values(), *([header] if header else [])]
    for kernel in {k.folder: k for k in read}.values():  # a revision's sources, once
        kernel.check_sources()
    winners = {e["kernel"] for e in op.entries if e["role"] == "winner"}
    medians = tuple(row for row in op.medians if row["kernel"] in winners)
    surveys = tuple(s for s in op.surveys.values() if op.description["cost"] is not None and not s["weights"].keys().isdisjoint(op.kernels))
    return DeployedOp(op.description, tuple(op.kernels.values()), op.entries, medians, surveys, header)


def list_with_header(kernels: Iterable[FrozenKernel], interface: Row) -> list[FrozenKernel]:
    """Return the kernels of an op whose header has its C interface: those that include the struct generated from ``op.py``, if any do."""
    include, present = str(interface["include"]), hash_value(interface)
    generated = f'#include "{include.partition("/")[0]}/params.h"'
    having = [kernel for kernel in kernels if kernel.manifest["interface"] == present]
    return [kernel for kernel in having if generated in kernel.read_source(f"{SOURCES}/{include}").decode()] or having
