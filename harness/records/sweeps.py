"""Points of a sweep, and their file: a variant on a problem each, with its time or the reason why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from contract.documents import parse_json
from contract.files import write_atomically
from harness.errors import RecordUseError

_FORMAT = "sweep 1"


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
class Sweep:
    """What was measured, and where: ``about`` holds the device's name, the target, compiler, commit and date."""

    about: Mapping[str, str]
    points: tuple[SweepPoint, ...] = field(default=())


def save_sweep(path: Path, sweep: Sweep) -> None:
    """Write a sweep as JSON, one point per line."""
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
