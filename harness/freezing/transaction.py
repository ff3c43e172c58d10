"""Changing an op's frozen set in one step, whatever happens on the way.

A change adds files (sealed kernels, evidence, an event) and replaces the index; nothing reads the files before the index names them, so
the index's rename is the moment of the change. A journal, written first, lists what is being added, and what the index is before and after:
whoever finds it later, under the lock, removes those files again, or only the journal where the new index is in place. A change that fails
while its process lives clears up after itself.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from device.documents import DocumentError, parse_json, read_plain_file
from harness.errors import FrozenError
from harness.freezing.layout import (
    HISTORY,
    INDEX,
    JOURNAL,
    LOCK_PREFIX,
    SCHEMA_VERSION,
    TEMPORARY_PREFIX,
    dump_line,
    hash_bytes,
    is_op_name,
)
from harness.freezing.reading import Row, read_history, read_index, replay
from harness.freezing.schemas import find_schema_fault


class Disk:
    """The steps by which a change reaches the disk. A test cuts the power at each of them."""

    def make_folder(self, path: Path) -> None:
        """Make a folder, and those above it, unless it is there."""
        if not path.is_dir():
            self.make_folder(path.parent)
            path.mkdir(exist_ok=True)
            self.settle(path.parent)

    def write(self, path: Path, content: bytes) -> None:
        """Write a file that is not there under this name yet, down to the disk."""
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its name, replacing what had it."""
        source.replace(target)
        self.settle(target.parent)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        path.rmdir()

    def settle(self, folder: Path) -> None:
        """Bring a folder's names down to the disk."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def lock_op(frozen_dir: Path, op: str, *, wait: bool = False) -> Iterator[Path]:
    """Hold an op's set against other writers; gives its folder, with what was left by a cut-short change cleared up.

    The folder is not there yet where nothing of the op is frozen. Raises :class:`FrozenError` where another process holds it, unless told
    to ``wait``, and where the lock cannot be taken.
    """
    if not is_op_name(op):
        raise FrozenError(f"{op!r} is no op's name: lower-case letters, digits and underscores, a letter first")
    folder = frozen_dir / op
    for path in (frozen_dir, folder):
        if path.is_symlink():
            raise FrozenError(f"{path} is a symbolic link; the frozen set is folders and plain files: put the folder itself there")
    try:
        frozen_dir.mkdir(parents=True, exist_ok=True)
        # Not opened for writing as a file is: a link in its place would be followed, and what it leads to emptied.
        handle = os.open(frozen_dir / f"{LOCK_PREFIX}{op}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise FrozenError(f"{frozen_dir}: {error.strerror}: the set cannot be locked; nothing was changed") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise FrozenError(f"another process is changing the frozen set of {op}; try again when it is done") from None
        recover(folder)
        yield folder
    finally:
        os.close(handle)


def clear_up(frozen_dir: Path, op: str) -> bool:
    """Clear up what a cut-short change of an op left, and return whether there was something; without anything, nothing is locked."""
    found = bool(list_leavings(frozen_dir / op))
    if found:
        with lock_op(frozen_dir, op):
            pass
    return found


def apply_change(folder: Path, files: Mapping[str, bytes], index: str, disk: Disk | None = None) -> None:
    """Add files (by path below the op's folder) and put the index in place. The caller holds the lock.

    A file that is there already with the same content stays; with another content it is an error, and nothing is changed. Raises
    :class:`FrozenError` where the disk refuses (it is full, or may not be written); what was added by then is removed again.
    """
    disk = disk or Disk()
    try:
        new = _find_new(folder, files)
        disk.make_folder(folder)
        journal = {"schema": SCHEMA_VERSION, "created": sorted(new), "before": _hash_index(folder), "after": hash_bytes(index.encode())}
        _put(disk, folder / JOURNAL, dump_line(journal).encode())
        for name, content in new.items():
            disk.make_folder((folder / name).parent)
            _put(disk, folder / name, content)
        _put(disk, folder / INDEX, index.encode())
        disk.remove(folder / JOURNAL)
    except OSError as error:
        _recover_if_possible(folder, disk)
        raise FrozenError(_describe_failure(folder, index, error)) from error
    except BaseException:
        _recover_if_possible(folder, disk)
        raise


def _recover_if_possible(folder: Path, disk: Disk) -> None:
    """Clear up behind a failure, which is what is to be raised; what cannot be cleared up now is left to the next change."""
    with suppress(OSError, FrozenError):
        recover(folder, disk)


def _describe_failure(folder: Path, index: str, error: OSError) -> str:
    where = f"{error.filename or folder}: {error.strerror or error}"
    if _hash_index(folder) == hash_bytes(index.encode()):
        return f"{where}; the change is in place, but perhaps not on the disk yet: `python -m harness frozen verify {folder.name}`"
    left = f"; `python -m harness frozen recover {folder.name}` clears up" if list_leavings(folder) else ""
    return f"{where}; nothing was changed: free space, or allow writing there, and try again{left}"


def _find_new(folder: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files that are not there yet; raises :class:`FrozenError` for one that is there with another content."""
    new = {}
    for name, content in files.items():
        path = folder / name
        _require_own_folders(folder, name)
        if not os.path.lexists(path):
            new[name] = content
        elif path.is_symlink() or not path.is_file() or read_plain_file(path) != content:
            raise FrozenError(f"{path} is there already, with another content: `python -m harness frozen verify {folder.name}` says more")
    return new


def _require_own_folders(folder: Path, name: str) -> None:
    """Raise :class:`FrozenError` where a path below the op's folder leads through a symbolic link."""
    parts = Path(name).parts
    for depth in range(1, len(parts)):
        if (above := folder.joinpath(*parts[:depth])).is_symlink():
            raise FrozenError(f"{above} is a symbolic link; the frozen set is folders and plain files: nothing was changed")


def _put(disk: Disk, path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{path.name}")
    disk.write(temporary, content)
    disk.rename(temporary, path)


def _hash_index(folder: Path) -> str | None:
    try:
        return hash_bytes(read_plain_file(folder / INDEX))
    except FileNotFoundError:
        return None


def list_leavings(folder: Path) -> list[Path]:
    """Return what a cut-short change leaves: the journal, files without their names yet, and empty folders, the deepest first."""
    left: list[Path] = []
    if not folder.is_dir() or folder.is_symlink():
        return left
    for place, folders, files in os.walk(folder, topdown=False):
        left += [Path(place, name) for name in files if name.startswith(TEMPORARY_PREFIX)]
        if not folders and not files:
            left.append(Path(place))
    if os.path.lexists(folder / JOURNAL):
        left.append(folder / JOURNAL)
    return left


def recover(folder: Path, disk: Disk | None = None) -> bool:
    """Clear up what a cut-short change left, and return whether there was something. The caller holds the lock.

    Raises :class:`FrozenError` for a journal that no change of this set can have written: it removes nothing then.
    """
    disk = disk or Disk()
    left = list_leavings(folder)
    if not left:
        return False
    journal = folder / JOURNAL
    created = _find_created(folder, journal) if os.path.lexists(journal) else []
    for path in [*(folder / name for name in created), *(p for p in left if p.name.startswith(TEMPORARY_PREFIX))]:
        disk.remove(path)
    _remove_empty_folders(folder, disk)
    if os.path.lexists(journal):
        disk.remove(journal)
    if folder.is_dir() and not any(folder.iterdir()):
        disk.remove_folder(folder)
    return True


def _find_created(folder: Path, path: Path) -> list[str]:
    """Return what a cut-short change added, to be removed again; nothing where its index is in place.

    A journal is data: it may name what a change adds, and of that nothing that the set itself has.
    """
    refusal = f"{path} is not of a change that was cut short here"
    remedy = "nothing was removed: look at it, and remove it by hand"
    try:
        journal = parse_json(read_plain_file(path))
    except (OSError, DocumentError) as error:
        raise FrozenError(f"{refusal}: {error}; {remedy}") from error
    if fault := find_schema_fault("journal", journal):
        raise FrozenError(f"{refusal}: {fault}; {remedy}")
    now = _hash_index(folder)
    if now == journal["after"]:
        return []
    if now != journal["before"]:
        raise FrozenError(f"{refusal}: {INDEX} is neither what it was before nor what it was to become; {remedy}")
    created: list[str] = journal["created"]
    names = _list_own_names(folder, created, has_index=now is not None)
    for name in created:
        _require_own_folders(folder, name)
        if name in names or name.partition("/")[0] in names:
            raise FrozenError(f"{refusal}: it names {name}, which the set has; {remedy}")
    return created


def _list_own_names(folder: Path, created: list[str], *, has_index: bool) -> set[str]:
    """Return the kernels, evidence and events of the set as it is without what a journal lists."""
    rows, findings = read_index(folder) if has_index else ([], [])
    events, faults = read_history(folder)
    own = [(name, event) for name, event in events if f"{HISTORY}/{name}" not in created]
    if findings or faults:
        raise FrozenError(f"{[*findings, *faults][0].describe()}; put it right before the change that was cut short is cleared up")
    if {dump_line(r) for r in replay(own)} != {dump_line(r) for r in rows}:
        raise FrozenError(f"{folder / JOURNAL} names events that led to the present index: nothing was removed; remove it by hand")
    entries: list[Row] = [r for _, event in own for r in event["added"] if r["kind"] == "entry"]
    return {r["kernel"] for r in entries} | {r["evidence"]["file"] for r in entries} | {f"{HISTORY}/{name}" for name, _ in own}


def _remove_empty_folders(folder: Path, disk: Disk) -> None:
    for place, _, _ in os.walk(folder, topdown=False):
        if Path(place) != folder and not any(Path(place).iterdir()):
            disk.remove_folder(Path(place))
