"""Orders of blocks and warps for the emulated device: a correct kernel gives the same bits under all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Requests of these are what the order of atomics can show in: additions of floats round differently in another order.
_ATOMIC_COUNTERS = ("global_atomics", "shared_atomics", "cluster_atomics", "bulk_reduce_bytes")


@dataclass(frozen=True)
class Schedule:
    """One order: a ``schedule`` of the emulated device, with the ``seed`` of the random one."""

    name: str
    seed: int = 0

    @property
    def options(self) -> dict[str, str]:
        """The options of the emulated device. One host thread, so that the schedule alone decides the order."""
        return {"schedule": self.name, "seed": str(self.seed), "workers": "1"}

    def describe(self) -> str:
        """Name it as it can be given to the emulated device."""
        return f"{self.name}, seed {self.seed}" if self.name == "random" else self.name


def make_schedules(count: int) -> tuple[Schedule, ...]:
    """Return the first ``count`` schedules: default, reversed, greedy, then random ones with seeds 1, 2, ..."""
    fixed = (Schedule("default"), Schedule("reversed"), Schedule("greedy"))
    return (*fixed, *(Schedule("random", seed) for seed in range(1, count - len(fixed) + 1)))[:count]


def count_atomics(counts: Mapping[str, int]) -> int:
    """Return how many requests (or bytes, of bulk reductions) of a launch are atomic."""
    return sum(counts.get(name, 0) for name in _ATOMIC_COUNTERS)
