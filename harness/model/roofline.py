"""Bounds and a model of a kernel's time on a named GPU, from the op's cost and from the counts of an emulated run.

``floor``
    What no kernel can beat: the larger of the arithmetic at the pipe's peak rate and the compulsory traffic at the DRAM's peak rate
    (Williams, Waterman & Patterson, *Roofline*, CACM 52(4), 2009).
``model``
    What *this* kernel would take if its most loaded pipe never waited: for each pipe of an SM the emulator's count over the pipe's
    rate, on the SM with the most blocks, and the chip-wide L2 and DRAM traffic over their rates; the largest of these. Latencies,
    dependences and bank-free scheduling are left out, so it is a lower estimate; counts are of PTX, before ptxas merges accesses. It
    has not been validated against hardware, and is labelled so wherever it is printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from device.observer import LaunchCounters
from harness.spec import Cost
from harness.targets import Target

MODEL_NOTE = "model: counts at PTX level over the target's pipe rates, no latencies; unvalidated"

# Rates of one SM of compute capability 8.0 and 9.0, in warp instructions (or wavefronts, requests, sectors) per clock. Sources: CUDA C++
# Programming Guide 13.0, "Throughput of Native Arithmetic Instructions" (results per clock per SM, over 32 lanes), and NVIDIA's H100
# white paper (four schedulers of one instruction per clock; 128 bytes of shared memory or L1 per clock).
_ISSUE_RATE = 4.0
_PIPE_RATES: Mapping[str, Mapping[int, float]] = {
    "fp32": {80: 2.0, 86: 4.0, 89: 4.0, 90: 4.0},
    "fp64": {80: 1.0, 86: 1 / 16, 89: 1 / 16, 90: 2.0},
    "fp16": {80: 4.0, 86: 2.0, 89: 2.0, 90: 4.0},
    "integer": {80: 2.0, 86: 2.0, 89: 2.0, 90: 2.0},
    "special": {80: 0.5, 86: 0.5, 89: 0.5, 90: 0.5},
    "conversion": {80: 0.5, 86: 0.5, 89: 0.5, 90: 0.5},
}
_WAVEFRONTS_PER_CLOCK = 1.0
_REQUESTS_PER_CLOCK = 1.0
_L1_SECTORS_PER_CLOCK = 4.0
_L2_SECTORS_PER_CLOCK = 2.0
_SECTOR_BYTES = 32


@dataclass(frozen=True)
class Floor:
    """Microseconds that no kernel beats. ``cached_us`` leaves the memory traffic out: operands may still be in the cache.

    ``cold_us`` counts the bytes read alone, since written ones may stay in the L2 beyond the kernel's end.
    """

    compute_us: float
    memory_us: float
    cold_us: float

    @property
    def total_us(self) -> float:
        """The roofline: arithmetic or all compulsory traffic, whichever takes longer."""
        return max(self.compute_us, self.memory_us)

    @property
    def cached_us(self) -> float:
        """The bound of a launch whose operands are in the cache."""
        return self.compute_us

    @property
    def bound(self) -> str:
        """Which of the two it is: ``compute`` or ``memory``."""
        return "compute" if self.compute_us >= self.memory_us else "memory"


@dataclass(frozen=True)
class Model:
    """A modelled time: ``pipe`` is the most loaded one, ``pipes_us`` all of them, ``tail`` the wave quantisation of the block count.

    ``tail`` is the number of blocks on the fullest SM over the average (1 where the blocks divide evenly).
    """

    total_us: float
    pipe: str
    pipes_us: Mapping[str, float]
    tail: float


def find_floor(cost: Cost, target: Target) -> Floor:
    """Return the roofline of a problem on a GPU. Raises ValueError when the target has no rate for its pipe."""
    if cost.flop_unit not in target.peak_flops:
        known = ", ".join(target.peak_flops)
        raise ValueError(f"target {target.name} has no peak rate for flop unit {cost.flop_unit!r}; it has: {known}")
    compute_us = 1e6 * cost.flops / target.peak_flops[cost.flop_unit]
    per_byte_us = 1e6 / target.dram_bytes_per_s
    return Floor(compute_us, cost.bytes_moved * per_byte_us, max(compute_us, cost.bytes_read * per_byte_us))


def find_share_of_floor(floor: Floor, time_us: float) -> float:
    """Return how close a time is to the roofline, 1 being on it."""
    return floor.total_us / time_us


def model_launches(launches: Sequence[LaunchCounters], target: Target) -> Model:
    """Model the time of launches that run one after the other, as the sum of each."""
    models = [model_launch(launch, target) for launch in launches]
    if not models:
        raise ValueError("no launches were counted, so there is nothing to model")
    pipes: dict[str, float] = {}
    for model in models:
        for name, value in model.pipes_us.items():
            pipes[name] = pipes.get(name, 0.0) + value
    longest = max(models, key=lambda m: m.total_us)
    return Model(sum(m.total_us for m in models), longest.pipe, pipes, longest.tail)


def model_launch(launch: LaunchCounters, target: Target) -> Model:
    """Model one launch from its counters; counters that are absent count as zero."""
    blocks = math.prod(launch.grid)
    per_sm = blocks / target.num_sms
    tail = math.ceil(per_sm) / per_sm
    clocks_us = 1.0 / target.clock_mhz
    # Work of an SM's own pipes is as much as its share of the blocks: the fullest SM ends last.
    sm_us = clocks_us * tail / target.num_sms
    pipes = {name: load * sm_us for name, load in _find_sm_loads(launch.counts, target).items()}
    sectors = _count(launch.counts, "global_load_sectors") + _count(launch.counts, "global_store_sectors")
    pipes["l2"] = sectors / _L2_SECTORS_PER_CLOCK / target.num_sms * clocks_us
    unique = _count(launch.counts, "global_unique_bytes_read") + _count(launch.counts, "global_unique_bytes_written")
    pipes["dram"] = 1e6 * unique / target.dram_bytes_per_s
    pipe = max(pipes, key=lambda name: pipes[name])
    return Model(pipes[pipe], pipe, pipes, tail)


def _find_sm_loads(counts: Mapping[str, int], target: Target) -> dict[str, float]:
    """Return clocks of each SM pipe, summed over the whole launch."""
    arch = max((a for a in _PIPE_RATES["fp32"] if a <= target.arch), default=80)
    loads = {name: _count(counts, name) / rates[arch] for name, rates in _PIPE_RATES.items()}
    loads["issue"] = _count(counts, "warp_instructions") / _ISSUE_RATE
    shared = sum(_count(counts, n) for n in ("shared_load_wavefronts", "shared_store_wavefronts", "shared_atomics"))
    loads["shared"] = shared / _WAVEFRONTS_PER_CLOCK
    names = ("global_loads", "global_stores", "global_atomics", "local_loads", "local_stores", "shared_loads", "shared_stores", "shuffles")
    loads["lsu"] = sum(_count(counts, n) for n in names) / _REQUESTS_PER_CLOCK
    loads["l1"] = (_count(counts, "global_load_sectors") + _count(counts, "global_store_sectors")) / _L1_SECTORS_PER_CLOCK
    return loads


def _count(counts: Mapping[str, int], name: str) -> int:
    return counts.get(name, 0)
