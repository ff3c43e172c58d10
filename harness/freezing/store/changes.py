"""Changes of the index: rows are added and removed together with the event that records it, in one step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contract.axes import name_bucket
from contract.index import Index, Row, render_index, sort_key
from contract.kernels import read_kernel
from contract.layout import HISTORY, KERNELS, SCHEMA_VERSION, TREE, dump_document, dump_line, name_manifest, name_revision
from contract.schemas import find_schema_fault
from device.settings import find_project_root
from harness.errors import FrozenError, FrozenUseError
from harness.freezing.store.history import name_event, read_history, replay, replay_kernels
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.transaction import Disk, apply_change, lock_op
from harness.records.provenance import find_commit


def change_index(
    frozen_dir: Path,
    op: str,
    what: str,
    message: str,
    *,
    put: Sequence[Row] = (),
    drop: Sequence[Row] = (),
    files: Mapping[str, bytes] | None = None,
    expect: Index | None = None,
    extra: Mapping[str, Any] | None = None,
    disk: Disk | None = None,
) -> Row:
    """Put rows into an op's index (each replaces the one in its place), drop others, add files, and record it; return the event.

    ``expect`` is the set that the change was decided on: where another change came between, :class:`FrozenError` says so.
    """
    with lock_op(frozen_dir, op) as folder:
        before = read_frozen_op(frozen_dir, op)
        if expect is not None and before.rows != expect.rows:
            raise FrozenError(f"the frozen set of {op} was changed by another process meanwhile; nothing was done: try again")
        rows = {sort_key(r): r for r in before.rows}
        for row in drop:
            rows.pop(sort_key(row), None)
        rows |= {sort_key(r): r for r in put}
        after = list(_drop_orphans(rows.values()))
        old, new = ({dump_line(r): r for r in some} for some in (before.rows, after))
        if old.keys() == new.keys():
            raise FrozenError(f"nothing in the frozen set of {op} would change")
        changes = {
            "removed": [r for line, r in old.items() if line not in new],
            "added": [r for line, r in new.items() if line not in old],
            **(extra or {}),
        }
        return _record_change(folder, what, message, after, changes, files=files, disk=disk)


def _record_change(
    folder: Path,
    what: str,
    message: str,
    rows: Sequence[Row],
    changes: Mapping[str, Any],
    *,
    files: Mapping[str, bytes] | None = None,
    removed: Collection[str] = (),
    disk: Disk | None = None,
) -> Row:
    """Make ``rows`` the index, add and remove files, and record it in an event with ``changes``, which is returned; under the op's lock."""
    at, heads = _find_place(folder)
    event: Row = {
        "schema": SCHEMA_VERSION,
        "what": what,
        "op": folder.name,
        "at": at,
        "after": heads,
        "commit": find_commit(find_project_root()).sha,
        "message": message,
        "removed": [],
        "added": [],
        **changes,
    }
    for document, value in (*(("index", r) for r in rows), ("event", event)):
        if fault := find_schema_fault(document, value):
            raise FrozenError(f"refused to write the frozen set of {folder.name}: {fault}")
    everything = dict(files or {}) | {f"{HISTORY}/{name_event(event)}": dump_document(event).encode()}
    apply_change(folder, everything, render_index(rows), disk, removed)
    return event


def _drop_orphans(rows: Any) -> Sequence[Row]:
    """Leave out medians and surveys of kernels that no entry names any more; without entries nothing is left."""
    kept = list(rows)
    kernels = {r["kernel"] for r in kept if r["kind"] == "entry"}

    def is_used(row: Row) -> bool:
        if row["kind"] in ("op", "library"):
            return bool(kernels)
        return not kernels.isdisjoint(row["weights"]) if row["kind"] == "survey" else row["kernel"] in kernels

    return [r for r in kept if is_used(r)]


def _find_place(folder: Path) -> tuple[str, list[str]]:
    """Return the time of an event, and the events that it follows: those that none follows yet.

    The time is later than that of every event there is: a history is replayed in the order of its times. Two promotions that git merged
    are two events that none follows; so are all that were written before events named those they follow.
    """
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    events, findings = read_history(folder)
    if findings:
        raise FrozenError(findings[0].describe())
    last = events[-1][1]["at"] if events else ""
    if last >= now:
        raise FrozenError(f"the last event of {folder.name} is of {last}, after now ({now}): set this machine's clock")
    followed = {earlier for _, event in events for earlier in event.get("after", ())}
    return now, [name for name, _ in events if name not in followed]


def demote(frozen_dir: Path, op: str, buckets: Sequence[str], message: str, kernels: Sequence[str] = ()) -> Row:
    """Take the entries of buckets (by name; of all where none is given) out of the index; the sealed kernels stay for a rollback.

    With ``kernels`` only theirs: a bucket has several fallbacks.
    """
    frozen = read_frozen_op(frozen_dir, op)
    chosen = [e for e in frozen.entries if not buckets or name_bucket(e["bucket"]) in buckets]
    known = {name_bucket(e["bucket"]) for e in frozen.entries}
    if unknown := [b for b in buckets if b not in known]:
        raise FrozenUseError(f"{op} has no entry for bucket {unknown[0]}; it has: {', '.join(sorted(known)) or 'none'}")
    held = {e["kernel"] for e in chosen}
    if strangers := [k for k in kernels if k not in held]:
        raise FrozenUseError(f"{op} has no entry of kernel {strangers[0]} there; there are: {', '.join(sorted(held))}")
    chosen = [e for e in chosen if not kernels or e["kernel"] in kernels]
    return change_index(frozen_dir, op, "demote", message, drop=chosen, expect=frozen)


def roll_back(frozen_dir: Path, op: str, to: str, message: str) -> Row:
    """Put the index back to what it was after the event ``to`` (the beginning of its name; "" for before the first one)."""
    frozen = read_frozen_op(frozen_dir, op)
    events, findings = read_history(frozen.folder)
    if findings:
        raise FrozenError(findings[0].describe())
    matching = [i for i, (name, _) in enumerate(events) if name.startswith(to)] if to else [-1]
    if len(matching) != 1:
        names = "\n  ".join(name for name, _ in events)
        raise FrozenUseError(f"{len(matching)} events of {op} begin with {to!r}; there are:\n  {names}")
    rows = replay(events[: matching[0] + 1])
    _require_kernels(op, rows, events)
    target = {sort_key(r) for r in rows}
    drop = [r for r in frozen.rows if sort_key(r) not in target]
    extra = {"to": events[matching[0]][0] if to else ""}
    return change_index(frozen_dir, op, "rollback", message, put=rows, drop=drop, expect=frozen, extra=extra)


def _require_kernels(op: str, rows: Sequence[Row], events: Sequence[tuple[str, Row]]) -> None:
    """Raise :class:`FrozenUseError` where rows name a kernel that was pruned since, or sealed anew after that."""
    seals, pruned = replay_kernels(events)
    for row in (r for r in rows if r["kind"] == "entry"):
        kernel = row["kernel"]
        if kernel in pruned:
            name, note = pruned[kernel]
            at = note["commit"].removesuffix("-dirty")[:12]
            how = f"`python -m harness promote {op} --at {at}`" if at else "`python -m harness promote`"
            raise FrozenUseError(f"{kernel} was pruned by {name}: promote it again ({how}), or go back to a later event")
        if seals[kernel] != row["seal"]:
            raise FrozenUseError(f"{kernel} was pruned and has been sealed again since; go back to a later event, or promote it again")


def prune(frozen_dir: Path, op: str, message: str, *, disk: Disk | None = None) -> Row | None:
    """Take away the kernels that no entry names, and the revisions that only they were made of; None where there are none.

    Evidence and history stay. The event keeps what such a kernel was: its seal, and the commit that holds its sources.
    """
    with lock_op(frozen_dir, op) as folder:
        frozen = read_frozen_op(frozen_dir, op)
        pruned, removed = list_prunable(frozen)
        if not pruned:
            return None
        return _record_change(folder, "prune", message, frozen.rows, {"pruned": pruned}, removed=removed, disk=disk)


def list_prunable(frozen: Index) -> tuple[list[Row], list[str]]:
    """Return the kernels that no entry names, as an event notes them, and the files that go with them, by path below the op's folder."""
    names = sorted(path.stem for path in (frozen.folder / KERNELS).glob("*.json"))
    sealed = [read_kernel(frozen.folder, name) for name in names]
    kept = set(frozen.kernels)
    gone = [kernel for kernel in sealed if kernel.name not in kept]
    used = {kernel.revision for kernel in sealed if kernel.name in kept}
    removed = [name_manifest(kernel.name) for kernel in gone]
    for revision, files in sorted({k.revision: k.manifest["files"] for k in gone if k.revision not in used}.items()):
        removed += [f"{name_revision(revision)}/{name}" for name in (TREE, *files)]
    return [{"kernel": k.name, "seal": k.manifest["seal"], "commit": k.manifest["verified"]["commit"]} for k in gone], removed
