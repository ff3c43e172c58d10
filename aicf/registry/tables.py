"""What is known about an op's kernels on one architecture, and the decision core that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contract.decision import open_core
from contract.frozen_set import FrozenOp, Row
from contract.kernels import FrozenKernel


class Tables:
    """An op's kernels for one architecture, numbered in the order of their names; sets of kernels are numbers with a bit each."""

    def __init__(self, frozen: FrozenOp, arch: str) -> None:
        self.arch = arch
        self.ties: tuple[Row, ...] = tuple(frozen.description.get("ties", ()))
        self.core = open_core(frozen, arch)
        self.interface = self.core.interface
        names = self.core.table.kernels
        self.kernels: tuple[FrozenKernel, ...] = tuple(frozen.kernels[name] for name in names)
        entries = [e for e in frozen.entries if e["bucket"]["arch"] == arch]
        self.roles = [sorted({e["role"] for e in entries if e["kernel"] == name}) for name in names]
        self.libraries: tuple[Mapping[str, Any], ...] = tuple(row for row in frozen.libraries if row["arch"] == arch)
        self.statuses = [sorted({e["status"] for e in entries if e["kernel"] == name}) for name in names]
