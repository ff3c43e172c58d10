"""Sums and ratios of the emulated device's counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def find_sectors_per_request(counts: Mapping[str, int]) -> float:
    """Return 32-byte sectors per warp-level global access: 4 where 32 threads read 32 neighbouring floats."""
    requests = counts.get("global_loads", 0) + counts.get("global_stores", 0)
    sectors = counts.get("global_load_sectors", 0) + counts.get("global_store_sectors", 0)
    return sectors / requests if requests else 0.0


def sum_counts(launches: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Add up counters by name."""
    total: dict[str, int] = {}
    for counts in launches:
        for name, value in counts.items():
            total[name] = total.get(name, 0) + value
    return total
