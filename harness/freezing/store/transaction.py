"""Changing an op's frozen set in one step, whatever happens meanwhile.

A change adds files (sealed kernels, evidence, at last its event), replaces the index if it changes that, and then removes what it takes
away. Nothing reads the added files before the index names them, and nothing needs the removed ones: the index's rename, or the event's
where the index stays, is the moment of the change. A journal, written first, lists what is added and removed, and what the index is before
and after: whoever finds it later, under the lock, takes back what was added, or finishes what is in place. A change that fails while its
process lives clears up after itself.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from contract.documents import read_plain_file
from contract.layout import INDEX, JOURNAL, KERNELS, LOCK_PREFIX, REVISIONS, TEMPORARY_PREFIX, hash_bytes, is_op_name
from harness.errors import FrozenError
from harness.freezing.store.journal import dump_journal, hash_index, is_in_place, read_leavings, require_own_folders


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
        raise FrozenError(f"{op!r} is not an op's name: use lower-case letters, digits and underscores, starting with a letter")
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


def apply_change(folder: Path, files: Mapping[str, bytes], index: str, disk: Disk | None = None, removed: Collection[str] = ()) -> None:
    """Add files (by path below the op's folder), the event the last of them; put the index in place; remove files.

    The caller holds the lock. A file that is there already with the same content stays; with another content it is an error, and nothing
    is changed. Raises :class:`FrozenError` where the disk refuses (it is full, or may not be written): what was added by then is removed
    again, unless the change is in place.
    """
    disk = disk or Disk()
    try:
        new = _find_new(folder, files)
        disk.make_folder(folder)
        _put(disk, folder / JOURNAL, dump_journal(folder, list(new), list(removed), index))
        for name, content in new.items():
            disk.make_folder((folder / name).parent)
            _put(disk, folder / name, content)
        if hash_index(folder) != hash_bytes(index.encode()):
            _put(disk, folder / INDEX, index.encode())
        _remove(folder, removed, disk)
        disk.remove(folder / JOURNAL)
    except OSError as error:
        is_done = is_in_place(folder, list(files), hash_bytes(index.encode()))
        _recover_if_possible(folder, disk)
        raise FrozenError(_describe_failure(folder, error, is_done=is_done)) from error
    except BaseException:
        _recover_if_possible(folder, disk)
        raise


def _remove(folder: Path, names: Collection[str], disk: Disk) -> None:
    """Remove files and the folders that they leave empty, down to the disk: the journal goes after them."""
    for name in names:
        disk.remove(folder / name)
    if names:
        _remove_empty_folders(folder, disk)
        for place in (folder, folder / KERNELS, folder / REVISIONS):
            if place.is_dir():
                disk.settle(place)


def _recover_if_possible(folder: Path, disk: Disk) -> None:
    """Clear up behind a failure, which is what is to be raised; what cannot be cleared up now is left to the next change."""
    with suppress(OSError, FrozenError):
        recover(folder, disk)


def _describe_failure(folder: Path, error: OSError, *, is_done: bool) -> str:
    where = f"{error.filename or folder}: {error.strerror or error}"
    if is_done:
        return f"{where}; the change is in place, but perhaps not on the disk yet: `python -m harness frozen verify {folder.name}`"
    left = f"; `python -m harness frozen recover {folder.name}` clears up" if list_leavings(folder) else ""
    return f"{where}; nothing was changed: free space, or allow writing there, and try again{left}"


def _find_new(folder: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files that are not there yet; raises :class:`FrozenError` for one that is there with another content."""
    new = {}
    for name, content in files.items():
        path = folder / name
        require_own_folders(folder, name)
        if not os.path.lexists(path):
            new[name] = content
        elif path.is_symlink() or not path.is_file() or read_plain_file(path) != content:
            raise FrozenError(f"{path} already exists with different content: `python -m harness frozen verify {folder.name}` says more")
    return new


def _put(disk: Disk, path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{path.name}")
    disk.write(temporary, content)
    disk.rename(temporary, path)


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
    listed = read_leavings(folder) if os.path.lexists(journal) else []
    for path in (p for p in left if p.name.startswith(TEMPORARY_PREFIX)):
        disk.remove(path)
    _remove(folder, listed, disk)
    _remove_empty_folders(folder, disk)
    if os.path.lexists(journal):
        disk.remove(journal)
    if folder.is_dir() and not any(folder.iterdir()):
        disk.remove_folder(folder)
    return True


def _remove_empty_folders(folder: Path, disk: Disk) -> None:
    for place, _, _ in os.walk(folder, topdown=False):
        if Path(place) != folder and not any(Path(place).iterdir()):
            disk.remove_folder(Path(place))
