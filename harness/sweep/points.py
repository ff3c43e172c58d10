"""What a sweep finds: points, with their samples and what they cost the GPU, and the file of points."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contract.documents import parse_json
from harness.build.store import write_atomically
from harness.errors import RecordUseError
from harness.spec import Op, Problem, Variant

_FORMAT = "sweep 1"
_MAX_REASON = 300


@dataclass(frozen=True)
class SweepPoint:
    """One variant on one problem: the median of its times with the quartiles, or the reason why there is none.

    ``status`` is ``passed``, ``unsupported``, ``failed``, or ``set_aside`` for one that was not worth measuring. ``code_hash`` is that of
    the machine code which was timed, ``gpu`` the uuid of the GPU. ``mode`` is ``cold``, or ``model`` where nothing was timed and the
    median is the time model's. ``is_pruned``: measuring ended after a few samples, since the variant was far slower than the best.
    """

    op: str
    variant: str
    problem: str
    status: str
    reason: str = ""
    code_hash: str = ""
    median_us: float = 0.0
    q1_us: float = 0.0
    q3_us: float = 0.0
    num_samples: int = 0
    clock_mhz: float | None = None
    gpu: str = ""
    mode: str = "cold"
    is_pruned: bool = False


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


@dataclass(frozen=True)
class Sweep:
    """What was measured, and where: ``about`` holds the device's name, the target, compiler, commit and date."""

    about: Mapping[str, str]
    points: tuple[SweepPoint, ...] = field(default=())


def make_points(
    op: Op, variant: Variant, problems: Sequence[Problem], status: str, reason: str, code_hash: str = ""
) -> tuple[Measured, ...]:
    """Return the points of a variant that has no time."""
    return tuple(Measured(SweepPoint(op.name, variant.name, p.name, status, reason[:_MAX_REASON], code_hash)) for p in problems)


def describe_point(point: SweepPoint) -> str:
    """Say a point in a few words."""
    result = f"{point.median_us:.2f} us" if point.status == "passed" else f"{point.status}: {point.reason}"
    return f"{point.variant} on {point.problem}: {result}"


def save_sweep(path: Path, sweep: Sweep) -> None:
    """Write a sweep as JSON, a point a line."""
    lines = ",\n".join(json.dumps(asdict(p)) for p in sweep.points)
    write_atomically(path, f'{{"format": "{_FORMAT}", "about": {json.dumps(dict(sweep.about))}, "points": [\n{lines}\n]}}\n')


def load_sweep(path: Path) -> Sweep:
    """Read what :func:`save_sweep` wrote; raises :class:`RecordError` for anything else."""
    try:
        data = parse_json(path.read_text(), strict=False)
        if data["format"] != _FORMAT:
            raise ValueError(f"its format is {data['format']!r}, not {_FORMAT!r}")
        return Sweep(data["about"], tuple(SweepPoint(**p) for p in data["points"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordUseError(f"{path} holds no sweep: {error}") from error
