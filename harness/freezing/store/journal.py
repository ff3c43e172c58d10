"""The journal of a change: what it adds and removes, and how to clean up after one that was interrupted.

A journal is data: it may name what a change adds, and of that nothing that the set itself has; and what a change takes away, and of that
nothing that the set still needs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.documents import DocumentError, parse_json, read_plain_file
from contract.index import Row
from contract.layout import (
    HISTORY,
    INDEX,
    JOURNAL,
    KERNELS,
    REVISIONS,
    SCHEMA_VERSION,
    dump_line,
    hash_bytes,
    name_manifest,
    name_revision,
)
from contract.schemas import find_schema_fault
from harness.errors import FrozenError
from harness.freezing.store.history import read_history, replay, replay_kernels
from harness.freezing.store.index import check_index

_REMEDY = "nothing was removed: look at it, and remove it by hand"


def dump_journal(folder: Path, created: Sequence[str], removed: Sequence[str], index: str) -> bytes:
    """Return the journal of a change that adds and then removes files, and makes ``index`` the index."""
    journal = {"schema": SCHEMA_VERSION, "created": sorted(created), "before": hash_index(folder), "after": hash_bytes(index.encode())}
    return dump_line(journal | ({"removed": sorted(removed)} if removed else {})).encode()


def hash_index(folder: Path) -> str | None:
    """Return the SHA-256 of an op's index, None where there is none."""
    try:
        return hash_bytes(read_plain_file(folder / INDEX))
    except FileNotFoundError:
        return None


def is_in_place(folder: Path, created: Sequence[str], after: str) -> bool:
    """Return whether a change is done: its event is there, and the index is what it makes of it."""
    events = [name for name in created if name.startswith(f"{HISTORY}/")]
    return hash_index(folder) == after and all(os.path.lexists(folder / name) for name in events)


def require_own_folders(folder: Path, name: str) -> None:
    """Raise :class:`FrozenError` where a path below the op's folder leads through a symbolic link."""
    parts = Path(name).parts
    for depth in range(1, len(parts)):
        if (above := folder.joinpath(*parts[:depth])).is_symlink():
            raise FrozenError(f"{above} is a symbolic link; the frozen set is folders and plain files: nothing was changed")


def read_leavings(folder: Path) -> Sequence[str]:
    """Return what the journal of a cut-short change says is to be removed: what it added, or where it is in place what it takes away.

    Raises :class:`FrozenError` for a journal that no change of this set can have written.
    """
    path = folder / JOURNAL
    refusal = f"{path} is not of a change that was cut short here"
    try:
        journal = parse_json(read_plain_file(path))
    except (OSError, DocumentError) as error:
        raise FrozenError(f"{refusal}: {error}; {_REMEDY}") from error
    if fault := find_schema_fault("journal", journal):
        raise FrozenError(f"{refusal}: {fault}; {_REMEDY}")
    created: Sequence[str] = journal["created"]
    removed: Sequence[str] = journal.get("removed", [])
    names: Sequence[str] = []
    for name in (*created, *removed):
        require_own_folders(folder, name)
    if is_in_place(folder, created, journal["after"]):
        fault = _find_needed(folder, [n for n in removed if os.path.lexists(folder / n)])
        names = removed
    elif hash_index(folder) != journal["before"]:
        fault = f"{INDEX} is neither what it was before nor what it was to become"
    else:
        fault, names = _find_own(folder, created), created
    if fault:
        raise FrozenError(f"{refusal}: {fault}; {_REMEDY}")
    return names


def _find_own(folder: Path, created: Sequence[str]) -> str:
    """Return which of the files that a change is said to have added the set itself has, "" where none."""
    rows, findings = check_index(folder) if hash_index(folder) is not None else ([], [])
    events, faults = read_history(folder)
    if findings or faults:
        raise FrozenError(f"{[*findings, *faults][0].describe()}; fix this before recovering the interrupted change")
    named = [event for name, event in events if f"{HISTORY}/{name}" in created]
    own = [(name, event) for name, event in events if f"{HISTORY}/{name}" not in created]
    # An event that comes before the index it leads to changes the index; there is one a change.
    is_led_to = {dump_line(r) for r in replay(own)} == {dump_line(r) for r in rows}
    if len(named) > 1 or any(not e["removed"] and not e["added"] for e in named) or not is_led_to:
        return "it names events that led to the present index"
    entries: list[Row] = [r for _, event in own for r in event["added"] if r["kind"] == "entry"]
    names = {name_manifest(r["kernel"]) for r in entries} | {r["evidence"]["file"] for r in entries} | {f"{HISTORY}/{n}" for n, _ in own}
    revisions = _list_revisions(folder, created)
    has = (name for name in created if name in names or _find_revision(name) in revisions)
    return next((f"it names {name}, which the set has" for name in has), "")


def _find_revision(name: str) -> str:
    """Return the folder of the revision that a path lies in, "" where it lies in none."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == REVISIONS else ""


def _list_revisions(folder: Path, but: Sequence[str]) -> set[str]:
    """Return the folders of the revisions that the manifests name, without some of these."""
    paths = sorted((folder / KERNELS).glob("*.json")) if (folder / KERNELS).is_dir() else []
    manifests = [_read(path) for path in paths if f"{KERNELS}/{path.name}" not in but and not path.name.startswith(".")]
    return {name_revision(str(manifest.get("revision"))) for manifest in manifests}


def _read(path: Path) -> Mapping[str, Any]:
    try:
        value = parse_json(read_plain_file(path))
    except (OSError, DocumentError) as error:
        raise FrozenError(f"{path}: {error}; fix this before recovering the interrupted change") from error
    return value if isinstance(value, dict) else {}


def _find_needed(folder: Path, removed: Sequence[str]) -> str:
    """Return which of the files that a change is said to take away it cannot take, "" where none.

    The set needs the manifest of every kernel that was not pruned, and every revision that a manifest names. The schema of a journal also
    allows the files of a layout that kernels had once: no change takes them away.
    """
    if not removed:
        return ""
    rows, findings = check_index(folder)
    events, faults = read_history(folder)
    if findings or faults:
        raise FrozenError(f"{[*findings, *faults][0].describe()}; fix this before recovering the interrupted change")
    kept = set(replay_kernels(events)[0]) | {r["kernel"] for r in rows if r["kind"] == "entry"}
    names, revisions = {name_manifest(kernel) for kernel in kept}, _list_revisions(folder, removed)
    for name in removed:
        if name in names or _find_revision(name) in revisions:
            return f"it takes {name} away, which the set needs"
        if name.partition("/")[0] not in (KERNELS, REVISIONS):
            return f"it takes {name} away, which is no file of a kernel"
    return ""
