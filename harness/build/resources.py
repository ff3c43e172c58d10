"""What a compiled kernel uses of an SM: ptxas' figures, and the resulting occupancy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.targets import Target

_WARP_SIZE = 32
# CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability", for 8.x and 9.0: registers are allotted to warps in
# units of 256; shared memory in units of 128 bytes, after 1 KiB that the system takes from each block; an SM has 64 warps' state.
# The register file is split evenly between the four partitions of an SM (toolkit header cuda_occupancy.h), and a warp lives in one.
_REGISTER_UNIT = 256
_PARTITIONS_PER_SM = 4
_SHARED_UNIT_BYTES = 128
_SHARED_RESERVED_BYTES = 1024

_USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?")
_FIGURES = {
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_store_bytes": re.compile(r"(\d+) bytes spill stores"),
    "spill_load_bytes": re.compile(r"(\d+) bytes spill loads"),
    "shared_bytes": re.compile(r"(\d+) bytes smem"),
}
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_ADVICE = re.compile(r"^.*(?:\(C75\d\d\)|ptxas warning).*$", re.MULTILINE)


@dataclass(frozen=True)
class Resources:
    """Figures per kernel: registers a thread, static shared memory a block, stack and spill bytes a thread.

    Where a variant holds several kernels, each figure is the largest. ``advice`` are ptxas' warnings and performance notes (C7508, C7510,
    C7511 and their kind), one line each.
    """

    registers: int
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    barriers: int = 0
    advice: tuple[str, ...] = ()

    @property
    def spill_bytes(self) -> int:
        """Bytes spilled, stores plus loads."""
        return self.spill_store_bytes + self.spill_load_bytes


def parse_ptxas(text: str) -> Resources | None:
    """Read the output of ``ptxas -v``; None when it reports no kernel."""
    used = [(int(m[1]), int(m[2] or 0)) for m in _USED.finditer(text)]
    if not used:
        return None
    largest = {name: max((int(m[1]) for m in pattern.finditer(text)), default=0) for name, pattern in _FIGURES.items()}
    advice = tuple(dict.fromkeys(line.strip() for line in _ADVICE.findall(text)))
    return Resources(registers=max(r for r, _ in used), barriers=max(b for _, b in used), advice=advice, **largest)


def parse_ptxas_by_kernel(text: str) -> dict[str, Resources]:
    """Read the output of ``ptxas -v`` kernel by kernel, by the kernel's symbol."""
    parts = _ENTRY.split(text)
    found = {name: parse_ptxas(part) for name, part in zip(parts[1::2], parts[2::2], strict=True)}
    return {name: resources for name, resources in found.items() if resources is not None}


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks and warps of an SM, as a share of the most it holds, and what limits them."""

    blocks_per_sm: int
    warps_per_sm: int
    share: float
    limiter: str


def find_occupancy(resources: Resources, threads_per_block: int, dynamic_shared_bytes: int, target: Target) -> Occupancy:
    """Return the occupancy of a kernel launched with blocks of ``threads_per_block`` threads.

    Raises ValueError for a block size outside 1..1024.
    """
    if not 1 <= threads_per_block <= 1024:
        raise ValueError(f"threads_per_block={threads_per_block}: must be 1 to 1024")
    warps = -(-threads_per_block // _WARP_SIZE)
    max_warps = target.max_threads_per_sm // _WARP_SIZE
    shared = _round_up(resources.shared_bytes + dynamic_shared_bytes + _SHARED_RESERVED_BYTES, _SHARED_UNIT_BYTES)
    limits = {
        "threads": max_warps // warps,
        "registers": _limit_by_registers(resources.registers, warps, target),
        "shared memory": target.shared_per_sm_bytes // shared,
        "blocks": target.max_blocks_per_sm,
    }
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(blocks, blocks * warps, blocks * warps / max_warps, limiter)


def _limit_by_registers(registers: int, warps: int, target: Target) -> int:
    per_warp = _round_up(max(registers, 1) * _WARP_SIZE, _REGISTER_UNIT)
    if per_warp * _round_up(warps, _PARTITIONS_PER_SM) > target.registers_per_sm:
        return 0  # the launch itself is refused
    warps_per_partition = target.registers_per_sm // _PARTITIONS_PER_SM // per_warp
    return warps_per_partition * _PARTITIONS_PER_SM // warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
