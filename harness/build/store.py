"""The content-addressed cache of built artefacts.

An entry is a folder ``<kind>/<key>/`` that appears by one rename, so that it is whole or not there. Its key hashes the *request* (source,
flags, compilers) and the contents of every project file that the compiler read for it. Those files are known only after a first build,
so each request keeps a short list of earlier (files, key) pairs: where all files of a pair have the same contents as now, the compiler
would read the same files again and give the same result, and the entry serves.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from contract.documents import parse_json
from contract.files import write_atomically
from harness.errors import BuildError, CacheUseError

_MANIFEST = "manifest.json"
_KEPT_PER_REQUEST = 32
_STALE_S = 24 * 3600
_NEW_S = 60  # younger folders may not be held yet
_OWNED = "build-"  # the names of folders that are held


def hash_text(*parts: str) -> str:
    """Hash strings, in order."""
    digest = sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def hash_file(path: Path) -> str:
    """Hash a file's contents; "" for one that is not there."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return ""


@dataclass(frozen=True)
class Entry:
    """One artefact of the cache: its folder and what its manifest says (``facts`` are the builder's own).

    ``files`` are the hashes of the project files that it was made of, by path.
    """

    key: str
    folder: Path
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


class Store:
    """The cache below ``root``. Safe for several processes at once.

    What is found corrupt is told to ``on_warning`` and collected in ``warnings``.
    """

    def __init__(self, root: Path, on_warning: Callable[[str], None] | None = None) -> None:
        self.root = root
        self.warnings: list[str] = []
        self._on_warning = on_warning

    @contextlib.contextmanager
    def lock(self, request: str) -> Iterator[None]:
        """Hold a request for this process: whoever comes second finds the first one's entry."""
        folder = self._make("locks")
        with full_disk_as_error(self.root):
            file = (folder / request).open("w")
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def find(self, kind: str, request: str) -> Entry | None:
        """Return the intact entry that serves the request with the files as they are now, if there is one."""
        for pair in self._read_pairs(kind, request):
            if all(hash_file(Path(path)) == digest for path, digest in pair["files"].items()):
                entry = self._open(kind, pair["key"])
                return None if entry is None else replace(entry, files=pair["files"])
        return None

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a folder to build in, removed afterwards whatever happens."""
        parent = self._make("tmp")
        _remove_stale(parent)
        with full_disk_as_error(self.root):
            # Not by mkdtemp, whose folders only their owner may read: this one becomes an entry of a cache that may be shared.
            folder = parent / f"{_OWNED}{uuid.uuid4().hex}"
            folder.mkdir()
            handle = os.open(folder, os.O_RDONLY)
        try:
            # Held as long as this process lives: what lies there without it was left by one that was killed.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(handle)
            shutil.rmtree(folder, ignore_errors=True)

    def add(self, kind: str, request: str, folder: Path, files: Mapping[str, str], facts: Mapping[str, Any]) -> Entry:
        """Move a built folder into the cache under the key of request and files, and note the pair."""
        key = hash_text(request, *(f"{p}={h}" for p, h in sorted(files.items())))
        place = self.root / kind / key
        with full_disk_as_error(self.root):
            sums = {p.name: hash_file(p) for p in sorted(folder.iterdir())}
            (folder / _MANIFEST).write_text(json.dumps({"files": sums, "facts": dict(facts)}, indent=1))
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                folder.rename(place)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if self._open(kind, key) is None:  # another process may have been first; only a broken entry gives way
                    folder.rename(place)
            self._write_pairs(kind, request, {"files": dict(files), "key": key})
        return Entry(key, place, dict(facts), dict(files))

    def require_usable(self) -> None:
        """Raise :class:`CacheUseError` where nothing can be kept below ``root``, :class:`BuildError` on a full disk."""
        with self.scratch():
            pass

    def size_bytes(self) -> int:
        """Bytes held by the cache."""
        return sum(p.stat().st_size for p in self.root.rglob("*") if p.is_file()) if self.root.exists() else 0

    def _make(self, name: str) -> Path:
        with full_disk_as_error(self.root):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        return self.root / name

    def _open(self, kind: str, key: str) -> Entry | None:
        folder = self.root / kind / key
        if not folder.is_dir():
            return None
        try:
            manifest = parse_json((folder / _MANIFEST).read_text(), strict=False)
            broken = [name for name, digest in manifest["files"].items() if hash_file(folder / name) != digest]
            if not broken:
                return Entry(key, folder, manifest["facts"])
            reason = f"{', '.join(broken)} changed since it was built"
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"its manifest cannot be read ({type(error).__name__})"
        self._warn(f"cache entry {folder} is corrupt: {reason}; it is discarded and built again")
        shutil.rmtree(folder, ignore_errors=True)
        return None

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        if self._on_warning is not None:
            self._on_warning(text)

    def _pairs_path(self, kind: str, request: str) -> Path:
        return self.root / "requests" / kind / f"{request}.json"

    def _read_pairs(self, kind: str, request: str) -> list[dict[str, Any]]:
        try:
            pairs = parse_json(self._pairs_path(kind, request).read_text(), strict=False)
            return [p for p in pairs if isinstance(p["key"], str) and isinstance(p["files"], dict)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError):
            self._warn(f"cache index {self._pairs_path(kind, request)} is corrupt; what it named is built again")
            return []

    def _write_pairs(self, kind: str, request: str, pair: dict[str, Any]) -> None:
        pairs = [p for p in self._read_pairs(kind, request) if p["key"] != pair["key"]]
        path = self._pairs_path(kind, request)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps([pair, *pairs][:_KEPT_PER_REQUEST]))


def _remove_stale(parent: Path) -> None:
    """Remove what killed builds left: folders that no process holds, and those of older versions after a day, which no build takes."""
    for folder in parent.iterdir():
        with contextlib.suppress(OSError):  # its owner may be done with it just now
            age_s = time.time() - folder.stat().st_mtime
            if age_s > _STALE_S or (folder.name.startswith(_OWNED) and age_s > _NEW_S and not _is_held(folder)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # also where the file system has no locks
        return True
    finally:
        os.close(handle)
    return False


@contextlib.contextmanager
def full_disk_as_error(root: Path) -> Iterator[None]:
    """Turn "no space left" into a :class:`BuildError`, and a place that cannot be the cache into a :class:`CacheUseError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BuildError(
                f"the disk that holds the cache {root} is full; free space there, or point AICF_CACHE_DIR to another disk"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise CacheUseError(f"the cache {root} is not writable; point AICF_CACHE_DIR to a folder that is") from error
        if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG) or (
            error.errno == errno.ENOENT and not root.is_dir()
        ):
            raise CacheUseError(
                f"the cache {root} is not a folder, and none can be created there ({error.strerror}); point AICF_CACHE_DIR to another place"
            ) from error
        raise
