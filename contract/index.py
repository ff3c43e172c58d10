"""The index of one op: rows, one per line, each valid against its schema, and which rows may stand together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from contract.axes import name_bucket
from contract.documents import DocumentError, parse_json, read_plain_file
from contract.errors import FrozenError
from contract.layout import INDEX, dump_line
from contract.schemas import find_schema_fault, find_version_fault

Row = dict[str, Any]


class LineFault(NamedTuple):
    """What is wrong with a line, by number from 1: ``kind`` is ``unreadable`` or ``schema``."""

    number: int
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.detail}"


@dataclass(frozen=True)
class Index:
    """What the index of one op says. ``rows`` are its lines, in their order; an op that has no index yet has none."""

    op: str
    folder: Path
    rows: tuple[Row, ...]

    @property
    def description(self) -> Row | None:
        """The line that describes the op."""
        return next((r for r in self.rows if r["kind"] == "op"), None)

    @property
    def entries(self) -> list[Row]:
        """The entries: which kernel has which bucket."""
        return [r for r in self.rows if r["kind"] == "entry"]

    @property
    def medians(self) -> list[Row]:
        """The measured times."""
        return [r for r in self.rows if r["kind"] == "median"]

    @property
    def libraries(self) -> list[Row]:
        """The libraries of others that may stand for a kernel."""
        return [r for r in self.rows if r["kind"] == "library"]

    @property
    def kernels(self) -> list[str]:
        """The kernels that entries name, each once."""
        return sorted({e["kernel"] for e in self.entries})

    def find_winner(self, bucket: Mapping[str, str]) -> Row | None:
        """Return the entry of a bucket, None where it has none."""
        return next((e for e in self.entries if e["role"] == "winner" and e["bucket"] == bucket), None)


def parse_index(content: bytes) -> tuple[list[Row], list[LineFault]]:
    """Return the valid lines of an index, and what is wrong with the others.

    A line that says that the index is of another format is all that is wrong: what the others mean there is not known here.
    """
    lines: list[tuple[int, Any]] = []
    faults: list[LineFault] = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            lines.append((number, parse_json(line)))
        except DocumentError as error:
            faults.append(LineFault(number, "unreadable", str(error)))
    for number, row in lines:
        if fault := find_version_fault(row):
            return [], [LineFault(number, "schema", fault)]
    rows = []
    for number, row in lines:
        if fault := find_schema_fault("index", row):
            faults.append(LineFault(number, "schema", fault))
        else:
            rows.append(row)
    return rows, sorted(faults)


def read_index(folder: Path) -> Index:
    """Return the index in an op's folder; raises :class:`FrozenError` naming file, line and field."""
    path = folder / INDEX
    try:
        rows, faults = parse_index(read_plain_file(path))
    except OSError as error:
        raise FrozenError(f"{path}: cannot be read: {error}") from error
    if faults:
        raise FrozenError(f"{path}: {faults[0]}")
    return Index(folder.name, folder, tuple(rows))


def render_index(rows: Sequence[Row]) -> str:
    """Return the text of an index: one line per row, sorted. Raises :class:`FrozenError` where two rows claim the same place."""
    keys = [sort_key(r) for r in rows]
    if twice := sorted({k for k in keys if keys.count(k) > 1}):
        raise FrozenError(f"two lines of an index claim {'/'.join(twice[0][1:])}")
    return "".join(dump_line(row) + "\n" for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: pair[0]))


def sort_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return where a line belongs in the index, and what makes it the same line as another: kind, then bucket, or kernel and problem."""
    kind = row["kind"]
    if kind == "op":
        return ("0",)
    if kind == "entry":
        return ("1", name_bucket(row["bucket"]), row["role"], row["kernel"] if row["role"] != "winner" else "")
    if kind == "survey":
        return ("3", row["arch"])
    if kind == "library":
        return ("4", row["arch"], row["library"], str(row["version"]))
    return ("2", row["arch"], row["problem"], row["mode"], row["kernel"])
