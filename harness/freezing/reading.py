"""Reading one op's frozen set, and finding what in it disagrees with itself: nothing here compiles or runs a kernel.

The chain of trust: a history event's name holds its hash; the events, replayed, give the index; an entry of the index holds the hash of
its evidence and its kernel's seal, the seal the manifest, and the manifest the hash of every source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.documents import parse_json
from harness.errors import FrozenError
from harness.freezing.layout import (
    EVIDENCE,
    HISTORY,
    INDEX,
    MANIFEST,
    PRIVATE_PREFIX,
    SOURCES,
    dump_line,
    hash_bytes,
    hash_value,
    make_seal,
    name_bucket,
    sort_key,
)
from harness.freezing.schemas import find_schema_fault, find_version_fault

Row = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """One disagreement: the file it is in, relative to the op's folder, a keyword, and what is wrong.

    ``kind`` is ``unreadable``, ``schema``, ``changed``, ``missing``, ``added``, ``interrupted``, ``skew``, ``rebuild`` or ``reference``.
    """

    op: str
    path: str
    kind: str
    detail: str

    def describe(self) -> str:
        """Return one line."""
        return f"{self.op}/{self.path}: {self.kind}: {self.detail}"


@dataclass(frozen=True)
class FrozenOp:
    """What the index of one op says. ``rows`` are its lines, sorted; an op that has no index yet has none."""

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
    def kernels(self) -> list[str]:
        """The kernels that entries name, each once."""
        return sorted({e["kernel"] for e in self.entries})

    def find_winner(self, bucket: Mapping[str, str]) -> Row | None:
        """Return the entry of a bucket, None where it has none."""
        return next((e for e in self.entries if e["role"] == "winner" and e["bucket"] == bucket), None)

    def read_manifest(self, kernel: str) -> Row:
        """Return a kernel's manifest, checked against its schema and its seal; raises :class:`FrozenError`."""
        path = self.folder / kernel / MANIFEST
        manifest = _read_json(path)
        if isinstance(manifest, Finding):
            raise FrozenError(manifest.describe())
        fault = find_schema_fault("manifest", manifest)
        if not fault and make_seal(manifest) != manifest["seal"]:
            fault = "was changed after it was sealed"
        if fault:
            raise FrozenError(f"{path}: {fault}")
        return dict(manifest)


def list_frozen_ops(frozen_dir: Path) -> list[str]:
    """Return the ops that have an index."""
    return sorted(path.parent.name for path in frozen_dir.glob(f"*/{INDEX}"))


def read_frozen_op(frozen_dir: Path, op: str) -> FrozenOp:
    """Return an op's index, each line validated; raises :class:`FrozenError` that names file, line and fault."""
    folder = frozen_dir / op
    rows, findings = _read_index(folder)
    if findings:
        raise FrozenError(f"{findings[0].describe()}; `python -m harness frozen verify {op}` says more")
    return FrozenOp(op, folder, tuple(rows))


def render_index(rows: Sequence[Row]) -> str:
    """Return the text of an index: a line a row, sorted. Raises :class:`FrozenError` where two rows claim the same place."""
    keys = [sort_key(r) for r in rows]
    if twice := sorted({k for k in keys if keys.count(k) > 1}):
        raise FrozenError(f"two lines of an index claim {'/'.join(twice[0][1:])}")
    return "".join(dump_line(row) + "\n" for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: pair[0]))


def _read_index(folder: Path) -> tuple[list[Row], list[Finding]]:
    path = folder / INDEX
    if not path.exists():
        return [], []
    rows: list[Row] = []
    findings = []
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            row = parse_json(line)
        except ValueError as error:
            findings.append(Finding(folder.name, INDEX, "unreadable", f"line {number}: {error}"))
            continue
        if fault := find_version_fault(row):
            # Of a later version, perhaps: what the other lines mean there is not known here.
            return [], [Finding(folder.name, INDEX, "schema", f"line {number}: {fault}")]
        if fault := find_schema_fault("index", row):
            findings.append(Finding(folder.name, INDEX, "schema", f"line {number}: {fault}"))
        else:
            rows.append(row)
    if not findings:
        try:
            if render_index(rows) != text:
                findings.append(Finding(folder.name, INDEX, "changed", "its lines are not as promote writes them: sorted, canonical JSON"))
        except FrozenError as error:
            findings.append(Finding(folder.name, INDEX, "changed", str(error)))
    return rows, findings


def _read_json(path: Path) -> Any:
    """Return the document, or the finding that it cannot be read."""
    op, name = _name_within_op(path)
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Finding(op, name, "missing", "the file is not there")
    except (OSError, ValueError) as error:
        return Finding(op, name, "unreadable", str(error))


def _name_within_op(path: Path) -> tuple[str, str]:
    depth = 2 if path.name == MANIFEST or path.parent.name in (EVIDENCE, HISTORY) else 1
    folder = path.parents[depth - 1]
    return folder.name, str(path.relative_to(folder))


def read_history(folder: Path) -> tuple[list[tuple[str, Row]], list[Finding]]:
    """Return an op's events as (file name, event), oldest first, and what is wrong with them."""
    events, findings = [], []
    for path in sorted((folder / HISTORY).glob("*.json")):
        event = _read_json(path)
        if isinstance(event, Finding):
            findings.append(event)
        elif fault := find_schema_fault("event", event):
            findings.append(Finding(folder.name, f"{HISTORY}/{path.name}", "schema", fault))
        elif path.name != name_event(event):
            findings.append(Finding(folder.name, f"{HISTORY}/{path.name}", "changed", "its name does not hold its hash"))
        else:
            events.append((path.name, event))
    return events, findings


def name_event(event: Row) -> str:
    """Return the file name of an event: its time, what it did, its hash."""
    return f"{event['at']}-{event['what']}-{hash_value(event)[:16]}.json"


def name_evidence(evidence: Row) -> str:
    """Return the path of an evidence file below the op's folder."""
    return f"{EVIDENCE}/{name_bucket(evidence['bucket']).replace('/', '-')}-{hash_value(evidence)[:16]}.json"


def replay(events: Sequence[tuple[str, Row]]) -> list[Row]:
    """Return the rows that a history leaves behind: the effects of the events, one after the other."""
    rows: dict[str, Row] = {}
    for _, event in events:
        for row in event["removed"]:
            rows.pop(dump_line(row), None)
        rows.update((dump_line(row), row) for row in event["added"])
    return list(rows.values())


def check_op(frozen_dir: Path, op: str) -> list[Finding]:
    """Return everything in an op's frozen set that disagrees: with its schema, its hashes, its history, and what lies in the folder."""
    folder = frozen_dir / op
    rows, findings = _read_index(folder)
    events, faults = read_history(folder)
    findings += faults
    if (folder / f"{PRIVATE_PREFIX}journal.json").exists():
        findings.append(Finding(op, INDEX, "interrupted", "a change was cut short; the next one, or `frozen recover`, clears it up"))
    if not findings and {dump_line(r) for r in rows} != {dump_line(r) for r in replay(events)}:
        findings.append(Finding(op, INDEX, "changed", "it is not what its history leads to: a line was edited, added or removed by hand"))
    known: dict[str, str] = {}  # every kernel that the history ever named, and its seal
    evidence: dict[str, str] = {}
    for _, event in events:
        for row in event["added"]:
            if row["kind"] == "entry":
                known[row["kernel"]] = row["seal"]
                evidence[row["evidence"]["file"]] = row["evidence"]["sha256"]
    description = next((r for r in rows if r["kind"] == "op"), None)
    for kernel, seal in sorted(known.items()):
        findings += _check_kernel(folder, kernel, seal, description)
    for name, digest in sorted(evidence.items()):
        findings += _check_evidence(folder, name, digest)
    expected = {INDEX, *known, EVIDENCE, HISTORY} | set(evidence) | {f"{HISTORY}/{name}" for name, _ in events}
    findings += _find_added(folder, expected, {f.path for f in findings})
    return findings


def _check_kernel(folder: Path, kernel: str, seal: str, description: Row | None) -> Iterator[Finding]:
    manifest = _read_json(folder / kernel / MANIFEST)
    if isinstance(manifest, Finding):
        yield manifest
        return
    name = f"{kernel}/{MANIFEST}"
    if fault := find_schema_fault("manifest", manifest):
        yield Finding(folder.name, name, "schema", fault)
        return
    if make_seal(manifest) != manifest["seal"]:
        yield Finding(folder.name, name, "changed", "it was edited after it was sealed: its seal is of another content")
    elif manifest["seal"] != seal:
        yield Finding(folder.name, name, "changed", "its seal is not the one that the index names")
    if manifest["kernel"] != kernel or manifest["op"] != folder.name:
        yield Finding(folder.name, name, "changed", f"it says that it is of {manifest['op']}/{manifest['kernel']}")
    if description is not None and manifest["interface"] != hash_value(description["interface"]):
        yield Finding(folder.name, name, "skew", "its C interface is not the one that the index describes")
    for path, digest in sorted(manifest["files"].items()):
        source = folder / kernel / path
        if not source.is_file():
            yield Finding(folder.name, f"{kernel}/{path}", "missing", "the manifest lists this source")
        elif hash_bytes(source.read_bytes()) != digest:
            yield Finding(folder.name, f"{kernel}/{path}", "changed", "it is not the source that was sealed")
    for source in sorted((folder / kernel).rglob("*")):
        relative = str(source.relative_to(folder / kernel))
        if not source.is_dir() and relative != MANIFEST and relative not in manifest["files"]:
            yield Finding(folder.name, f"{kernel}/{relative}", "added", "the manifest does not list it")


def _check_evidence(folder: Path, name: str, digest: str) -> Iterator[Finding]:
    document = _read_json(folder / name)
    if isinstance(document, Finding):
        yield document
    elif hash_bytes((folder / name).read_bytes()) != digest:
        yield Finding(folder.name, name, "changed", "it is not the evidence that the index names")
    elif fault := find_schema_fault("evidence", document):
        yield Finding(folder.name, name, "schema", fault)


def _find_added(folder: Path, expected: set[str], found: set[str]) -> Iterator[Finding]:
    """Find what lies beside the kernels, and in the folders of evidence and history, and nothing names."""
    here = [*folder.glob("*"), *(folder / EVIDENCE).glob("*"), *(folder / HISTORY).glob("*")] if folder.is_dir() else []
    for path in sorted(here):
        name = str(path.relative_to(folder))
        if name not in expected and name not in found and not path.name.startswith(PRIVATE_PREFIX):
            yield Finding(folder.name, name, "added", f"nothing names it; a kernel's folder has {MANIFEST} and {SOURCES}")
