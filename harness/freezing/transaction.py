"""Changing an op's frozen set in one step, whatever happens on the way.

A change adds files (sealed kernels, evidence, an event) and replaces the index; nothing reads the files before the index names them, so
the index's rename is the moment of the change. A journal, written first, lists what is being added: whoever finds it later, under the
lock, removes those files again, or only the journal where the new index is in place.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.documents import parse_json
from harness.errors import FrozenError
from harness.freezing.layout import INDEX, PRIVATE_PREFIX, hash_bytes

_JOURNAL = f"{PRIVATE_PREFIX}journal.json"
_TEMPORARY = f"{PRIVATE_PREFIX}new"


class Disk:
    """The steps by which a change reaches the disk. A test cuts the power at each of them."""

    def write(self, path: Path, content: bytes) -> None:
        """Write a file that is not there under this name yet, down to the disk."""
        with path.open("wb") as file:
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

    Raises :class:`FrozenError` where another process holds it, unless told to ``wait``.
    """
    folder = frozen_dir / op
    folder.mkdir(parents=True, exist_ok=True)
    with (frozen_dir / f"{PRIVATE_PREFIX}lock-{op}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise FrozenError(f"another process is changing the frozen set of {op}; try again when it is done") from None
        recover(folder)
        yield folder


def apply_change(folder: Path, files: Mapping[str, bytes], index: str, disk: Disk | None = None) -> None:
    """Add files (by path below the op's folder) and put the index in place. The caller holds the lock.

    A file that is there already with the same content stays; with another content it is an error, and nothing is changed.
    """
    disk = disk or Disk()
    new = {}
    for name, content in files.items():
        path = folder / name
        if path.exists():
            if path.read_bytes() != content:
                raise FrozenError(
                    f"{path} is there already, with another content: `python -m harness frozen verify {folder.name}` says more"
                )
        else:
            new[name] = content
    journal = {"created": sorted(new), "index": hash_bytes(index.encode())}
    _put(disk, folder / _JOURNAL, json.dumps(journal).encode())
    for name, content in new.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _put(disk, path, content)
    _put(disk, folder / INDEX, index.encode())
    disk.remove(folder / _JOURNAL)


def _put(disk: Disk, path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{_TEMPORARY}-{path.name}")
    disk.write(temporary, content)
    disk.rename(temporary, path)


def recover(folder: Path, disk: Disk | None = None) -> bool:
    """Clear up what a cut-short change left, and return whether there was something. The caller holds the lock."""
    disk = disk or Disk()
    left = [p for p in folder.rglob(f"{_TEMPORARY}-*") if p.is_file()]
    journal = folder / _JOURNAL
    if journal.exists():
        document = parse_json(journal.read_text())
        index = folder / INDEX
        if not index.exists() or hash_bytes(index.read_bytes()) != document["index"]:
            for name in document["created"]:
                disk.remove(folder / name)
    for path in left:
        disk.remove(path)
    found = bool(left) or journal.exists()
    if found:
        _remove_empty_folders(folder)
        disk.remove(journal)
    return found


def _remove_empty_folders(folder: Path) -> None:
    for path in sorted((p for p in folder.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
        if not any(path.iterdir()):
            path.rmdir()
