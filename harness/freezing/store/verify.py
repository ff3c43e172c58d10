"""Finding what contradicts itself in the frozen set, or does not belong to it, without compiling or running a kernel.

The chain of trust: a history event's name holds its hash, and an event names those it follows; the events, replayed, give the index; an
entry of the index holds the hash of its evidence and its kernel's seal; the seal is of the manifest with the hash of every source, as the
revision that the manifest names has them.
All is folders and plain files. What the last commit has of history is there: git is what an older state of everything is checked against.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from contract.documents import read_plain_file
from contract.errors import BrokenDocument, FrozenError
from contract.frozen_set import load_kernels
from contract.index import Index, Row
from contract.layout import (
    EVIDENCE,
    HISTORY,
    INDEX,
    JOURNAL,
    KERNELS,
    LOCK_PREFIX,
    REVISIONS,
    SCHEMA,
    SCHEMA_DIR,
    dump_line,
    hash_bytes,
    is_op_name,
    name_manifest,
    name_schema,
)
from contract.schemas import DIGESTS, find_schema_fault, load_document
from harness.freezing.store.findings import Finding
from harness.freezing.store.history import read_history, replay, replay_kernels
from harness.freezing.store.index import check_index, list_frozen_ops, read_frozen_op
from harness.freezing.store.kernels import check_kernels, hash_file
from harness.freezing.store.transaction import clear_up, list_leavings

_README = "README.md"
_INTERRUPTED = "a change was cut short; the next one, or `frozen recover`, clears it up"


def check_set(frozen_dir: Path) -> list[Finding]:
    """Return what is wrong beside the ops: strays, links, ops that are gone though the last commit has them, and changed schemas."""
    if frozen_dir.is_symlink():
        return [Finding("", frozen_dir.name, "link", "it is a symbolic link: put the folder itself there")]
    findings = []
    for path in sorted(frozen_dir.iterdir()) if frozen_dir.is_dir() else ():
        if path.name == _README and _is_plain(path):
            continue
        is_lock = path.name.startswith(LOCK_PREFIX) and is_op_name(path.name.removeprefix(LOCK_PREFIX))
        if path.is_symlink():
            findings.append(Finding("", path.name, "link", "it is a symbolic link: put the file or folder itself there"))
        elif not (path.is_dir() and (is_op_name(path.name) or path.name == SCHEMA)) and not (is_lock and path.is_file()):
            findings.append(Finding("", path.name, "added", "it is not an op's folder, and nothing names it"))
    ops = list_frozen_ops(frozen_dir)
    gone = {name.split("/")[0] for name in list_committed_events(frozen_dir)} - set(ops)
    findings += [Finding(op, INDEX, "missing", "the last commit has this op; `git checkout` restores it") for op in sorted(gone)]
    return findings + list(_check_schemas(frozen_dir / SCHEMA))


def _check_schemas(folder: Path) -> Iterator[Finding]:
    """Check the schemas that lie in a set; those that documents are checked against are always the project's own."""
    expected = {name_schema(name): digest for name, digest in DIGESTS.items()}
    present = {p.name: p for p in folder.iterdir()} if folder.is_dir() else {}
    if not present and folder != SCHEMA_DIR:
        return
    for name in sorted(expected.keys() | present.keys()):
        where = f"{SCHEMA}/{name}"
        if name not in expected:
            yield Finding("", where, "added", "it is not one of the format's schemas")
        elif name not in present:
            yield Finding("", where, "missing", f"the file is not there; `git checkout {folder}` restores it")
        elif not _is_plain(present[name]):
            yield Finding("", where, "link", "it is not a plain file")
        elif hash_bytes(read_plain_file(present[name])) != expected[name]:
            yield Finding("", where, "changed", f"it is not this format's schema; `git checkout {folder}` restores it")


def list_committed_events(frozen_dir: Path) -> list[str]:
    """Return the events that the last commit has, ``<op>/history/<name>``; none where the set is in no git checkout."""
    command = ["git", "-C", str(frozen_dir), "ls-tree", "-r", "-z", "--name-only", "HEAD", "."]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    names = os.fsdecode(done.stdout).split("\0") if done.returncode == 0 else []
    return [n for n in names if len(n.split("/")) == 3 and n.split("/")[1] == HISTORY]


def check_op(frozen_dir: Path, op: str) -> list[Finding]:
    """Return everything in an op's frozen set that disagrees: with its schema, its hashes, its history, and what lies in the folder."""
    folder = frozen_dir / op
    if folder.is_symlink():
        return [Finding(op, "", "link", "the op's folder is a symbolic link: put the folder itself there")]
    if os.path.lexists(folder / JOURNAL) or (folder.is_dir() and not any(folder.iterdir())):
        return [Finding(op, JOURNAL, "interrupted", _INTERRUPTED)]
    # Before anything is read: a link leads elsewhere, and a pipe is read for ever.
    if findings := list(_find_strange(folder)):
        return findings
    rows, findings = check_index(folder)
    findings += _find_left(folder)
    events, faults = read_history(folder)
    findings += faults
    findings += _check_chain(op, events)
    findings += _check_committed(frozen_dir, op, {name for name, _ in events})
    if not findings and {dump_line(r) for r in rows} != {dump_line(r) for r in replay(events)}:
        findings.append(Finding(op, INDEX, "changed", "it is not what its history leads to: a line was edited, added or removed by hand"))
    # Every kernel that the history ever named and that was not pruned. Merged histories may prune a kernel that the index still names.
    known = replay_kernels(events)[0] | {r["kernel"]: r["seal"] for r in rows if r["kind"] == "entry"}
    evidence = {r["evidence"]["file"]: r["evidence"]["sha256"] for _, e in events for r in e["added"] if r["kind"] == "entry"}
    description = next((r for r in rows if r["kind"] == "op"), None)
    findings += check_kernels(folder, known, description)
    for name, digest in sorted(evidence.items()):
        findings += _check_evidence(folder, name, digest)
    expected = {INDEX, KERNELS, REVISIONS, EVIDENCE, HISTORY} | set(evidence) | {f"{HISTORY}/{name}" for name, _ in events}
    expected |= {name_manifest(kernel) for kernel in known}
    findings += _find_added(folder, expected, {f.path for f in findings})
    if rows and not findings:
        findings += _check_readable(Index(op, folder, tuple(rows)))
    return findings


def _check_readable(index: Index) -> Iterator[Finding]:
    """Check that those who use the set can read it: names that one row uses are those that another declares."""
    try:
        load_kernels(index)
    except FrozenError as error:
        yield Finding(index.op, INDEX, "changed", str(error).removeprefix(f"{index.folder / INDEX}: "))


def _is_plain(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def _find_strange(folder: Path) -> Iterator[Finding]:
    """Find what is neither a folder nor a plain file."""
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in sorted([*folders, *files])):
            mode = path.lstat().st_mode
            relative = str(path.relative_to(folder))
            if stat.S_ISLNK(mode):
                yield Finding(folder.name, relative, "link", "it is a symbolic link: put the file or folder itself there")
            elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                yield Finding(folder.name, relative, "added", "it is neither a folder nor a plain file")


def _find_left(folder: Path) -> Iterator[Finding]:
    """Find files that wait for their names, and folders with nothing in them."""
    for path in list_leavings(folder):
        relative = str(path.relative_to(folder))
        if path.is_dir():
            yield Finding(folder.name, relative, "added", "the folder is empty; `frozen recover` removes it")
        else:
            yield Finding(folder.name, relative, "interrupted", _INTERRUPTED)


def _check_chain(op: str, events: Sequence[tuple[str, Row]]) -> Iterator[Finding]:
    """Check that the events are there that events follow; those of the time before they named them are named by the first that does."""
    places = {name: i for i, (name, _) in enumerate(events)}
    for i, (name, event) in enumerate(events):
        for earlier in event.get("after", ()):
            if earlier not in places:
                yield Finding(op, f"{HISTORY}/{earlier}", "missing", f"{name} follows it")
            elif places[earlier] >= i:
                yield Finding(op, f"{HISTORY}/{name}", "changed", f"it is said to follow {earlier}, which is later")


def _check_committed(frozen_dir: Path, op: str, present: set[str]) -> Iterator[Finding]:
    """Check that no event is gone that the last commit has: a history only grows."""
    for path in list_committed_events(frozen_dir):
        owner, _, name = path.split("/")
        if owner == op and name not in present:
            yield Finding(op, f"{HISTORY}/{name}", "missing", "the last commit has this event, and a history only grows")


def _check_evidence(folder: Path, name: str, digest: str) -> Iterator[Finding]:
    try:
        document = load_document(folder / name)
    except BrokenDocument as error:
        yield Finding.of(error)
        return
    if hash_file(folder / name) != digest:
        yield Finding(folder.name, name, "changed", "it is not the evidence that the index names")
    elif fault := find_schema_fault("evidence", document):
        yield Finding(folder.name, name, "schema", fault)


def _find_added(folder: Path, expected: set[str], found: set[str]) -> Iterator[Finding]:
    """Find what lies in the op's folder, and in those of manifests, evidence and history, and nothing names."""
    here = [*folder.glob("*"), *(p for place in (KERNELS, EVIDENCE, HISTORY) for p in (folder / place).glob("*"))]
    for path in sorted(here) if folder.is_dir() else ():
        name = str(path.relative_to(folder))
        if name not in expected and name not in found:
            yield Finding(folder.name, name, "added", "nothing names it")


def require_sound(frozen_dir: Path, op: str) -> Index:
    """Return an op's set if nothing in it disagrees; raises :class:`FrozenError` with the first finding else.

    What a change left that was cut short is cleared up first: it is in the way of nothing.
    """
    clear_up(frozen_dir, op)
    if findings := check_op(frozen_dir, op):
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        raise FrozenError(f"{findings[0].describe()}{more}; nothing was changed")
    return read_frozen_op(frozen_dir, op)
