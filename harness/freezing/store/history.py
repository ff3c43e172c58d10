"""An op's history: the events that produced its index, each named by its hash, and the result of replaying them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contract.axes import name_bucket
from contract.documents import read_plain_file
from contract.errors import BrokenDocument
from contract.index import Row
from contract.layout import EVIDENCE, HISTORY, dump_line, hash_bytes, hash_value
from contract.schemas import read_document
from harness.freezing.store.findings import Finding

# Events that were found valid, with their names, by the hash of their files: what changes a set reads its history several times, and most
# of that is written by surveys. Nobody changes an event that was read.
_valid: dict[str, tuple[Row, str]] = {}
_MAX_VALID = 1024


def read_history(folder: Path) -> tuple[list[tuple[str, Row]], list[Finding]]:
    """Return an op's events as (file name, event), oldest first, and what is wrong with them."""
    events, findings = [], []
    paths = (folder / HISTORY).iterdir() if (folder / HISTORY).is_dir() else ()
    for path in sorted(p for p in paths if p.suffix == ".json" and not p.name.startswith(".")):
        try:
            event, name = _read_event(path)
        except BrokenDocument as error:
            findings.append(Finding.of(error))
            continue
        if path.name != name:
            findings.append(Finding(folder.name, f"{HISTORY}/{path.name}", "changed", "its name does not hold its hash"))
        else:
            events.append((path.name, event))
    return events, findings


def _read_event(path: Path) -> tuple[Row, str]:
    """Return an event and the name that its file must have; raises :class:`BrokenDocument` where its schema does not allow it."""
    digest = _hash_file(path)
    if digest in _valid:
        return _valid[digest]
    event = read_document("event", path)
    read = event, name_event(event)
    if digest and _hash_file(path) == digest:  # else it changed meanwhile
        if len(_valid) >= _MAX_VALID:
            _valid.clear()
        _valid[digest] = read
    return read


def _hash_file(path: Path) -> str:
    """Return the hash of a file's content, "" where there is no reading it."""
    try:
        return hash_bytes(read_plain_file(path))
    except OSError:
        return ""


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
