"""Reading one op's frozen set: every document is a value that its schema allows, or a finding that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device.documents import DocumentError, parse_json, read_plain_file
from harness.errors import FrozenError
from harness.freezing.layout import (
    EVIDENCE,
    HISTORY,
    INDEX,
    KERNELS,
    OLD_MANIFEST,
    TREE,
    dump_line,
    expand,
    hash_value,
    is_op_name,
    make_seal,
    name_bucket,
    name_manifest,
    name_revision,
    sort_key,
)
from harness.freezing.schemas import find_schema_fault, find_version_fault

Row = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """One disagreement: the file it is in, relative to the op's folder, a keyword, and what is wrong.

    ``kind`` is ``unreadable``, ``schema``, ``changed``, ``missing``, ``added``, ``link``, ``interrupted``, ``skew``, ``rebuild`` or
    ``reference``. ``op`` is "" for what lies beside the ops.
    """

    op: str
    path: str
    kind: str
    detail: str

    def describe(self) -> str:
        """Return one line."""
        return f"{self.op}{'/' if self.op else ''}{self.path}: {self.kind}: {self.detail}"


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
        """Return a kernel's manifest with the ``files`` of its revision, checked against schema and seal; raises :class:`FrozenError`."""
        path = self.folder / name_manifest(kernel)
        manifest = _require_document("manifest", path)
        tree_path = self.folder / name_revision(manifest["revision"]) / TREE
        tree = _require_document("tree", tree_path)
        if hash_value(tree) != manifest["revision"]:
            raise FrozenError(f"{tree_path}: it is not the tree that {path.name} names")
        sealed = expand(manifest, tree)
        if make_seal(sealed) != manifest["seal"]:
            raise FrozenError(f"{path}: was changed after it was sealed")
        return sealed | {"revision": manifest["revision"]}

    def find_revision(self, manifest: Mapping[str, Any]) -> Path:
        """Return the folder that has the sources of a kernel, by the manifest that :meth:`read_manifest` returned."""
        return self.folder / name_revision(manifest["revision"])


def _require_document(kind: str, path: Path) -> Row:
    document = read_document(path)
    if isinstance(document, Finding):
        raise FrozenError(f"{document.describe()}{name_migration(path)}")
    if fault := find_schema_fault(kind, document):
        raise FrozenError(f"{path}: {fault}")
    return dict(document)


def name_migration(manifest: Path) -> str:
    """Return what to do where a kernel lies as it did before trees were shared; "" where it does not."""
    folder = manifest.parents[1]
    old = folder / manifest.stem / OLD_MANIFEST
    return f"; it has the layout of an earlier version: `python -m harness frozen migrate {folder.name}`" if old.is_file() else ""


def list_frozen_ops(frozen_dir: Path) -> list[str]:
    """Return the ops that have a folder, whatever is in it: one without an index is an op that something happened to."""
    folders = frozen_dir.iterdir() if frozen_dir.is_dir() else ()
    return sorted(path.name for path in folders if is_op_name(path.name) and path.is_dir())


def read_frozen_op(frozen_dir: Path, op: str) -> FrozenOp:
    """Return an op's index, each line validated; raises :class:`FrozenError` that names file, line and fault."""
    if not is_op_name(op):
        raise FrozenError(f"{op!r} is no op's name: lower-case letters, digits and underscores, a letter first")
    folder = frozen_dir / op
    rows, findings = read_index(folder)
    if findings:
        raise FrozenError(f"{findings[0].describe()}; `python -m harness frozen verify {op}` says more")
    return FrozenOp(op, folder, tuple(rows))


def render_index(rows: Sequence[Row]) -> str:
    """Return the text of an index: a line a row, sorted. Raises :class:`FrozenError` where two rows claim the same place."""
    keys = [sort_key(r) for r in rows]
    if twice := sorted({k for k in keys if keys.count(k) > 1}):
        raise FrozenError(f"two lines of an index claim {'/'.join(twice[0][1:])}")
    return "".join(dump_line(row) + "\n" for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: pair[0]))


def read_index(folder: Path) -> tuple[list[Row], list[Finding]]:
    """Return the lines of an op's index, and what is wrong with them; an op that has no folder has none."""
    if not folder.is_dir():
        return [], []
    try:
        content = read_plain_file(folder / INDEX)
    except FileNotFoundError:
        return [], [Finding(folder.name, INDEX, "missing", f"the op's folder is there without it: `git checkout {folder}` restores it")]
    except OSError as error:
        return [], [Finding(folder.name, INDEX, "unreadable", str(error))]
    rows: list[Row] = []
    findings = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            row = parse_json(line)
        except DocumentError as error:
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
            if render_index(rows).encode() != content:
                findings.append(Finding(folder.name, INDEX, "changed", "its lines are not as promote writes them: sorted, canonical JSON"))
        except FrozenError as error:
            findings.append(Finding(folder.name, INDEX, "changed", str(error)))
    return rows, findings


def read_document(path: Path) -> Any:
    """Return a document's value, or the :class:`Finding` that it cannot be read."""
    op, name = _name_within_op(path)
    try:
        return parse_json(read_plain_file(path))
    except FileNotFoundError:
        return Finding(op, name, "missing", "the file is not there")
    except (OSError, DocumentError) as error:
        return Finding(op, name, "unreadable", str(error))


def _name_within_op(path: Path) -> tuple[str, str]:
    depth = 3 if path.name == TREE else 2 if path.parent.name in (KERNELS, EVIDENCE, HISTORY) else 1
    folder = path.parents[depth - 1]
    return folder.name, str(path.relative_to(folder))


def read_history(folder: Path) -> tuple[list[tuple[str, Row]], list[Finding]]:
    """Return an op's events as (file name, event), oldest first, and what is wrong with them."""
    events, findings = [], []
    paths = (folder / HISTORY).iterdir() if (folder / HISTORY).is_dir() else ()
    for path in sorted(p for p in paths if p.suffix == ".json" and not p.name.startswith(".")):
        event = read_document(path)
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


def replay_kernels(events: Sequence[tuple[str, Row]]) -> tuple[dict[str, str], dict[str, tuple[str, Row]]]:
    """Return what a history leaves of the kernels it ever named: seals by kernel, and of the pruned ones the event and what it notes."""
    seals: dict[str, str] = {}
    pruned: dict[str, tuple[str, Row]] = {}
    for name, event in events:
        for row in event["added"]:
            if row["kind"] == "entry":
                seals[row["kernel"]] = row["seal"]
                pruned.pop(row["kernel"], None)
        for note in event.get("pruned", ()):
            seals.pop(note["kernel"], None)
            pruned[note["kernel"]] = (name, note)
    return seals, pruned
