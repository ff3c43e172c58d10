"""Records published in ``profiles/``: measurements from a GPU, read where there is neither a GPU nor a database of it.

``profiles/<op>/*-records.*`` are exports of the records, in any of the formats of :mod:`harness.records.interchange`. They are read into a
database in memory, so that whoever reads records reads these too. ``profiles/model/*-sweep-<op>.json`` are the points of sweeps, with no
samples. ``profiles/<op>/goals*.json`` are an op's choices beside its peers, as ``compare`` publishes them.
"""

from __future__ import annotations

from pathlib import Path

from device.settings import find_project_root
from harness.errors import RecordUseError
from harness.records.database import Records
from harness.records.engine import hide_password
from harness.records.interchange import import_records
from harness.records.sweeps import Sweep, load_sweep


def list_published(op: str, root: Path | None = None) -> list[Path]:
    """Return the files of records that are published for an op, by name."""
    folder = (root or find_project_root()) / "profiles" / op
    return sorted(p for p in folder.glob("*-records.*") if p.suffix in (".json", ".csv", ".parquet"))


def list_sweeps(op: str, root: Path | None = None) -> list[tuple[Path, Sweep]]:
    """Return the sweeps that are published for an op, each with its file."""
    folder = (root or find_project_root()) / "profiles" / "model"
    return [(path, load_sweep(path)) for path in sorted(folder.glob(f"*-sweep-{op}.json"))]


def list_goals(op: str, root: Path | None = None) -> list[Path]:
    """Return the files of goals that are published for an op, by name."""
    return sorted(((root or find_project_root()) / "profiles" / op).glob("goals*.json"))


def open_published(op: str, root: Path | None = None) -> Records:
    """Return a database in memory with the published records of an op; the ids of rows follow the files' order.

    Raises :class:`RecordError` where there are none, or a file holds anything else.
    """
    paths = list_published(op, root)
    if not paths:
        raise RecordUseError(f"no records of op {op} are published: profiles/{op}/ has no *-records.json, .csv or .parquet")
    records = Records("sqlite://")
    try:
        for path in paths:
            import_records(records, path)
    except BaseException:
        records.close()
        raise
    return records


def open_records(op: str, url: str, *, published: bool = False) -> tuple[Records, str]:
    """Return the records to read an op's results from, and where they are from in words.

    They are those of the database, unless ``published`` asks for the others, or the database has none of the op while others are published.
    """
    if not published:
        records = Records(url)
        if not list_published(op) or records.has_results(op):
            return records, hide_password(url)
        records.close()
    found = open_published(op)
    return found, ", ".join(_name(path) for path in list_published(op))


def _name(path: Path) -> str:
    root = find_project_root()
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
