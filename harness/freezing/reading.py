"""Reading one op's frozen set: every document is a value that its schema allows, or a finding that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.documents import read_plain_file
from contract.errors import BrokenDocument, FrozenError
from contract.index import Index, Row, parse_index, render_index
from contract.layout import EVIDENCE, HISTORY, INDEX, KERNELS, TREE, dump_line, hash_value, is_op_name, name_bucket
from contract.schemas import read_document


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


def list_frozen_ops(frozen_dir: Path) -> list[str]:
    """Return the ops that have a folder, whatever is in it: one without an index is an op that something happened to."""
    folders = frozen_dir.iterdir() if frozen_dir.is_dir() else ()
    return sorted(path.name for path in folders if is_op_name(path.name) and path.is_dir())


def read_frozen_op(frozen_dir: Path, op: str) -> Index:
    """Return an op's index, each line validated; raises :class:`FrozenError` that names file, line and fault."""
    if not is_op_name(op):
        raise FrozenError(f"{op!r} is no op's name: lower-case letters, digits and underscores, a letter first")
    folder = frozen_dir / op
    rows, findings = read_index(folder)
    if findings:
        raise FrozenError(f"{findings[0].describe()}; `python -m harness frozen verify {op}` says more")
    return Index(op, folder, tuple(rows))


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
    rows, faults = parse_index(content)
    findings = [Finding(folder.name, INDEX, fault.kind, str(fault)) for fault in faults]
    if not findings:
        try:
            if render_index(rows).encode() != content:
                findings.append(Finding(folder.name, INDEX, "changed", "its lines are not as promote writes them: sorted, canonical JSON"))
        except FrozenError as error:
            findings.append(Finding(folder.name, INDEX, "changed", str(error)))
    return rows, findings


def find_broken(error: BrokenDocument) -> Finding:
    """Return what is wrong with a document of an op."""
    path = error.path
    depth = 3 if path.name == TREE else 2 if path.parent.name in (KERNELS, EVIDENCE, HISTORY) else 1
    folder = path.parents[depth - 1]
    return Finding(folder.name, str(path.relative_to(folder)), error.kind, error.detail)


def read_history(folder: Path) -> tuple[list[tuple[str, Row]], list[Finding]]:
    """Return an op's events as (file name, event), oldest first, and what is wrong with them."""
    events, findings = [], []
    paths = (folder / HISTORY).iterdir() if (folder / HISTORY).is_dir() else ()
    for path in sorted(p for p in paths if p.suffix == ".json" and not p.name.startswith(".")):
        try:
            event = read_document("event", path)
        except BrokenDocument as error:
            findings.append(find_broken(error))
            continue
        if path.name != name_event(event):
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
