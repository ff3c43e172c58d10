"""What the registry is asked besides a problem: the hardware, and the caller's preferences."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from aicf.errors import SelectionError
from contract.decision import find_arch
from device import Device

_ARCH = re.compile(r"sm_(\d+)([a-z]?)\Z")


class HwCaps(NamedTuple):
    """What the choice of a kernel depends on of a device: its compute capability."""

    major: int
    minor: int

    @classmethod
    def of(cls, device: Device) -> HwCaps:
        """Return a device's."""
        return cls(*device.properties.compute_capability)

    @classmethod
    def parse(cls, arch: str) -> HwCaps:
        """Return those of an architecture by name, ``sm_90a``; raises ValueError for anything else."""
        match = _ARCH.match(arch)
        if match is None:
            raise ValueError(f"arch={arch!r}: must be like sm_90a")
        return cls(*divmod(int(match[1]), 10))

    def find_arch(self, op: str, archs: list[str]) -> str:
        """Return the best of ``archs`` whose machine code runs here: sm_XYa on X.Y alone, sm_XY on X.Y and later minors."""
        found = find_arch(tuple(archs), self.major, self.minor)
        if not found:
            have = ", ".join(archs) or "none"
            raise SelectionError(f"{op}: nothing is frozen for compute capability {self.major}.{self.minor}; there are kernels for: {have}")
        return found


class Preferences(NamedTuple):
    """What a caller asks of a kernel beyond the problem; by default nothing.

    ``deterministic``: the same bits on every run. ``max_workspace_bytes``: no more device memory than this. ``accumulate``: sums are made
    in this dtype, and the manifest says so. ``prefer="memory"``: of the kernels that remain, only those with the least workspace;
    ``prefer="own"``: no library of others, also where one was measured to be faster.
    """

    deterministic: bool = False
    max_workspace_bytes: int | None = None
    accumulate: str | None = None
    prefer: Literal["speed", "memory", "own"] = "speed"

    def check(self) -> None:
        """Raise ValueError, naming the preference, for a value that means nothing."""
        if self.max_workspace_bytes is not None and self.max_workspace_bytes < 0:
            raise ValueError(f"max_workspace_bytes={self.max_workspace_bytes}: must be at least 0, or None for no limit")
        if self.prefer not in ("speed", "memory", "own"):
            raise ValueError(f"prefer={self.prefer!r}: must be speed, memory or own")
