"""``frozen migrate``: from the layout with a copy of the sources per kernel to the one where kernels share the tree of a revision.

Seals, index, evidence and events stay as they are, bit for bit. This module alone reads the earlier layout, and goes with it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from contract.documents import read_plain_file
from contract.index import Row
from contract.layout import OLD_MANIFEST, REVISIONS, expand, hash_bytes, list_kernel_files, list_old_kernels, split
from contract.schemas import find_schema_fault, load_document
from harness.errors import FrozenError
from harness.freezing.store.changes import record_change
from harness.freezing.store.history import read_history
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.transaction import Disk, lock_op
from harness.freezing.store.verify import check_committed, check_op, find_strange


def migrate(frozen_dir: Path, op: str, *, disk: Disk | None = None) -> Row | None:
    """Bring an op's kernels to the present layout and return the event, None where all have it.

    What comes of it is checked before anything is changed, as ``frozen verify`` checks it: raises :class:`FrozenError` with what is wrong.
    """
    with lock_op(frozen_dir, op) as folder:
        kernels = list_old_kernels(folder)
        if not kernels:
            return None
        for finding in (*find_strange(folder), *check_committed(frozen_dir, op, {name for name, _ in read_history(folder)[0]})):
            raise FrozenError(f"{finding.describe()}; nothing was changed")
        files: dict[str, bytes] = {}
        removed: list[str] = []
        for kernel in kernels:
            manifest, sources = _read_kernel(folder / kernel)
            files |= list_kernel_files(manifest, sources)
            removed += [f"{kernel}/{OLD_MANIFEST}", *(f"{kernel}/{name}" for name in sources)]
        _check_result(folder, files, kernels)
        message = f"{len(kernels)} kernels share {len({n.split('/')[1] for n in files if n.startswith(REVISIONS)})} trees of sources"
        rows = read_frozen_op(frozen_dir, op).rows
        return record_change(folder, "migrate", message, rows, {}, files=files, removed=removed, disk=disk)


def _read_kernel(folder: Path) -> tuple[Row, dict[str, bytes]]:
    """Return the manifest and sources of a kernel in the earlier layout; raises :class:`FrozenError` unless they are what was sealed."""
    manifest = load_document(folder / OLD_MANIFEST, "nothing was changed")
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict) or "op" not in manifest or "kernel" not in manifest:
        raise FrozenError(f"{folder / OLD_MANIFEST}: it has no op, kernel and files: it is not a manifest of the earlier layout")
    for document, value in zip(("manifest", "tree"), split(manifest), strict=True):
        if fault := find_schema_fault(document, value):
            raise FrozenError(f"{folder / OLD_MANIFEST}: {fault}; nothing was changed")
    if manifest["kernel"] != folder.name:
        raise FrozenError(f"{folder / OLD_MANIFEST}: it claims to be {manifest['op']}/{manifest['kernel']}; nothing was changed")
    present = {str(Path(place, name).relative_to(folder)) for place, _, names in os.walk(folder) for name in names}
    if stray := sorted(present ^ {OLD_MANIFEST, *manifest["files"]}):
        what = "is not there" if stray[0] in manifest["files"] else "was added: the manifest does not list it"
        raise FrozenError(f"{folder / stray[0]} {what}; nothing was changed")
    sources = {name: read_plain_file(folder / name) for name in manifest["files"]}
    for name, digest in manifest["files"].items():
        if hash_bytes(sources[name]) != digest:
            raise FrozenError(f"{folder / name}: it is not the source that was sealed; nothing was changed")
    written, tree = split(manifest)
    assert expand(written, tree) == manifest
    return manifest, sources


def _check_result(folder: Path, files: Mapping[str, bytes], kernels: list[str]) -> None:
    """Raise :class:`FrozenError` unless the op agrees with itself in the present layout."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch, folder.name)
        shutil.copytree(folder, place, ignore=lambda at, names: [n for n in names if at == str(folder) and n in kernels])
        for name, content in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        if findings := check_op(Path(scratch), folder.name):
            raise FrozenError(f"{findings[0].describe()}; nothing was changed")
