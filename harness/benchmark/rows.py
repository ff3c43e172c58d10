"""Rows of ``bench``: one variant or peer on one problem, with counts and a modelled time, or with times from a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Statics:
    """What the build says about a variant: per-thread registers, bytes of static shared memory a block, bytes spilled, and occupancy.

    ``occupancy`` is resident warps over the most an SM holds, 0..1, for the block size of the launch; ``limiter`` is what bounds it.
    """

    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None
    occupancy: float | None = None
    limiter: str = ""


@dataclass(frozen=True)
class BenchRow:
    """One variant (or peer) on one problem. Times are microseconds; None where there is none.

    ``device`` is ``emulated`` or the GPU's name. ``counts``, ``model_us`` and ``model_interval_us`` (that held 80 % of the times that the
    model's fit had not seen) exist on the emulated device only, ``cold`` and ``hot`` (the figures of
    :class:`harness.timing.timer.Timing`) on a GPU only. ``note`` says how far ``model_us`` can be trusted.
    """

    op: str
    variant: str
    problem: str
    device: str
    verified: str
    reason: str = ""
    is_peer: bool = False
    statics: Statics = field(default_factory=Statics)
    floor_us: float | None = None
    floor_bound: str = ""
    flops: float = 0.0
    bytes_moved: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    model_us: float | None = None
    model_interval_us: tuple[float, float] | None = None
    model_pipe: str = ""
    cold: Mapping[str, Any] | None = None
    hot: Mapping[str, Any] | None = None
    share_of_best_peer: float | None = None
    note: str = ""

    @property
    def order_us(self) -> float:
        """The time that ranks the row: the cold median, else the model; infinite where there is neither or the row failed."""
        time_us = self.cold["median_us"] if self.cold else self.model_us
        return math.inf if time_us is None or self.verified not in ("passed", "peer") else float(time_us)

    @property
    def interval_us(self) -> tuple[float, float] | None:
        """The interval of :attr:`order_us`: that of the cold median (95 %), else the model's (80 %)."""
        if self.cold is None:
            return self.model_interval_us
        return float(self.cold["median_low_us"]), float(self.cold["median_high_us"])

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
