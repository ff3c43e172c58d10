"""NVTX ranges around what runs on the device, for Nsight Systems and Nsight Compute: ``op/variant/problem/phase`` in the domain ``aicf``.

A variant's own slash is a colon here (``smem_tiled:bm32_bn32``), so that a range has four parts. Where no tool listens, a range costs a
fraction of a microsecond of the host, and none of the device's time: timed launches wait on a held stream until all are queued.
"""

from __future__ import annotations

import functools
from typing import Any

import nvtx

DOMAIN = "aicf"


def name_range(op: str, variant: str, problem: str, phase: str) -> str:
    """Return a range's name. ``phase``: ``verify``, ``count``, ``prove``, ``cold``, ``hot``, ``crosscheck`` or ``profile``."""
    return "/".join((op, variant.replace("/", ":"), problem, phase))


class Range:
    """A context manager that is a range of this name; it may be entered again, and "" is none."""

    __slots__ = ("_attributes", "_domain")

    def __init__(self, name: str) -> None:
        self._domain = nvtx.get_domain(DOMAIN) if name else None
        self._attributes: Any = self._domain.get_event_attributes(message=name) if self._domain else None

    def __enter__(self) -> None:
        if self._domain is not None:
            self._domain.push_range(self._attributes)

    def __exit__(self, *_: object) -> None:
        if self._domain is not None:
            self._domain.pop_range()


@functools.lru_cache(maxsize=4096)
def find_range(name: str) -> Range:
    """Return the range of a name from :func:`name_range`; the same one for the same name."""
    return Range(name)


def mark_range(op: str, variant: str, problem: str, phase: str) -> Range:
    """Return a context manager for one piece of work."""
    return find_range(name_range(op, variant, problem, phase))
