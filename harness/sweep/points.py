"""The results of a sweep: points with their samples, and the GPU time they took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.records.sweeps import SweepPoint
from harness.spec import Op, Problem, Variant

_MAX_REASON = 300


@dataclass(frozen=True)
class Measured:
    """A point with its samples in microseconds and the SM clock of each."""

    point: SweepPoint
    samples_us: NDArray[np.float32] | None = None
    clocks_mhz: NDArray[np.float32] | None = None
    clock_label: str = ""


@dataclass(frozen=True)
class Usage:
    """What a variant took of a GPU: its turn, in seconds since the epoch, and the seconds of it in which the GPU worked on samples."""

    began_s: float
    ended_s: float
    busy_s: float
    num_samples: int


@dataclass(frozen=True)
class Answer:
    """A variant's points, one a problem, and what they took of a GPU."""

    points: tuple[Measured, ...]
    usage: Usage | None = None


def make_points(
    op: Op, variant: Variant, problems: Sequence[Problem], status: str, reason: str, code_hash: str = ""
) -> tuple[Measured, ...]:
    """Return the points of a variant that has no time."""
    return tuple(Measured(SweepPoint(op.name, variant.name, p.name, status, reason[:_MAX_REASON], code_hash)) for p in problems)
