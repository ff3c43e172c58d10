"""What is known of an op's kernels for one architecture, and the decision core that looks at it."""

from __future__ import annotations

from contract.decision import DecisionCore
from contract.decision_tables import make_table
from contract.frozen_set import FrozenOp, Row
from contract.kernels import FrozenKernel


class Tables:
    """An op's kernels for one architecture, numbered in the order of their names; sets of kernels are numbers with a bit each."""

    def __init__(self, frozen: FrozenOp, arch: str) -> None:
        self.arch = arch
        self.ties: tuple[Row, ...] = tuple(frozen.description.get("ties", ()))
        manifests = {name: kernel.manifest for name, kernel in frozen.kernels.items()}
        table = make_table(arch, frozen.description, frozen.entries, frozen.medians, frozen.surveys.get(arch), manifests)
        self.core = DecisionCore(table)
        self.interface = self.core.interface
        self.kernels: tuple[FrozenKernel, ...] = tuple(frozen.kernels[name] for name in table.kernels)
        entries = [e for e in frozen.entries if e["bucket"]["arch"] == arch]
        self.roles = [sorted({e["role"] for e in entries if e["kernel"] == name}) for name in table.kernels]
        self.statuses = [sorted({e["status"] for e in entries if e["kernel"] == name}) for name in table.kernels]
