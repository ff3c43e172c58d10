"""Which seeds are no longer fresh: a ledger per op (``profiles/<op>/seeds.json``) of what each was used for, and earlier drawn runs.

A choice, a bucket or a survey that was made on the problems of a seed says nothing new on them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from contract.files import write_atomically
from device.settings import find_project_root
from harness.compare.drawn.record import DrawnRun
from harness.errors import RecordError

FILE = "seeds.json"
# How a seed became problems: two ways of drawing have nothing in common but the number.
POPULATION, NEIGHBOURS = "population", "neighbours of the listed problems"


@dataclass(frozen=True)
class SeedUse:
    """One use: for what (``survey``, ``tuning``, ...), with which way of drawing, and the record that came of it."""

    seed: int
    draw: str
    use: str
    record: str


def find_ledger(op: str) -> Path:
    """Return where an op's ledger lies."""
    return find_project_root() / "profiles" / op / FILE


def read_uses(path: Path) -> list[SeedUse]:
    """Return a ledger's uses, none where there is no file; raises :class:`RecordError` where it cannot be read."""
    try:
        return [SeedUse(**row) for row in json.loads(path.read_text())] if path.is_file() else []
    except (OSError, ValueError, TypeError) as error:
        raise RecordError(f"{path} is not a ledger of seeds: {error}") from error


def note_use(path: Path, use: SeedUse) -> None:
    """Add a use to a ledger, once."""
    uses = read_uses(path)
    if use not in uses:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps([asdict(u) for u in [*uses, use]], indent=1) + "\n")


def describe_uses(uses: Sequence[SeedUse], earlier: Sequence[DrawnRun], seed: int, index: str) -> str:
    """Return what a seed of the population was used for before, "" where it is fresh.

    A run on another frozen set than ``index`` counts: whoever made the present set may have seen its problems.
    """
    found = [f"{u.use} ({u.record})" for u in uses if u.seed == seed and u.draw == POPULATION]
    found += [f"a page of an earlier frozen set ({r.started[:10]}, {r.commit})" for r in earlier if r.seed == seed and r.index != index]
    return "; ".join(dict.fromkeys(found))
