"""Reading one op of the frozen set: its index and the manifests that the index names, validated, nothing trusted by its name alone.

``docs/frozen.md`` describes the format. Sources are held against their hashes where they are compiled (:mod:`aicf.building`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from aicf.errors import FrozenError, NotFrozenError
from aicf.registry.agreement import check_agreement
from aicf.registry.schemas import LINES, check_document, check_version
from device.documents import DocumentError, parse_json, read_plain_file
from device.settings import find_project_root

INDEX = "index.jsonl"
AXES = ("dtypes", "layout", "epilogue", "region")
Row = Mapping[str, Any]
_REMEDY = "`python -m harness frozen verify` says more"
_OP_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")


@dataclass(frozen=True)
class FrozenKernel:
    """A sealed kernel: its manifest with the ``files`` of its revision, as it was sealed, and the folder that holds these."""

    manifest: Row
    folder: Path

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(self.manifest["kernel"])

    @property
    def arch(self) -> str:
        """The architecture that it was built for, ``sm_90a``."""
        return str(self.manifest["arch"])


@dataclass(frozen=True)
class FrozenOp:
    """What the frozen set says of an op.

    ``kernels`` are in the order of their names; ``medians`` are those of mode ``cold``; ``surveys`` are by architecture.
    """

    name: str
    folder: Path
    description: Row
    entries: tuple[Row, ...]
    medians: tuple[Row, ...]
    kernels: Mapping[str, FrozenKernel]
    surveys: Mapping[str, Row] = field(default_factory=dict)

    @property
    def interface(self) -> Row:
        """How a call's problem is found in the op's C struct."""
        interface: Row = self.description["interface"]
        return interface

    @property
    def archs(self) -> list[str]:
        """The architectures that kernels are for."""
        return sorted({k.arch for k in self.kernels.values()})


def find_frozen_dir() -> Path:
    """Return the project's folder ``frozen``."""
    return find_project_root() / "frozen"


def list_ops(frozen_dir: Path | None = None) -> list[str]:
    """Return the ops that have an index, sorted."""
    found = (path.parent.name for path in (frozen_dir or find_frozen_dir()).glob(f"*/{INDEX}"))
    return sorted(name for name in found if _OP_NAME.match(name))


def read_op(op: str, frozen_dir: Path | None = None) -> FrozenOp:
    """Read an op's index and the manifests that it names.

    Raises :class:`NotFrozenError` for an op that is not there, and :class:`FrozenError`, naming file, line and field, where something is
    missing, breaks its schema, or disagrees.
    """
    root = frozen_dir or find_frozen_dir()
    folder = root / op
    known = list_ops(root)
    if op not in known:
        raise NotFrozenError(f"{root}: op {op!r} is not frozen; there are: {', '.join(known) or 'none'}")
    rows = _read_index(folder / INDEX)
    descriptions = [row for row in rows if row["kind"] == "op"]
    if len(descriptions) != 1 or descriptions[0]["op"] != op:
        raise FrozenError(f"{folder / INDEX}: must have one line of kind op, for {op}; it has {len(descriptions)}")
    entries = tuple(sorted((row for row in rows if row["kind"] == "entry"), key=_dump))
    seals: dict[str, str] = {}
    for entry in entries:
        if seals.setdefault(entry["kernel"], entry["seal"]) != entry["seal"]:
            raise FrozenError(f"{folder / INDEX}: seal: two entries of kernel {entry['kernel']} name different seals")
    digest = hash_value(descriptions[0]["interface"])
    kernels = {name: _read_kernel(folder, name, seals[name], digest) for name in sorted(seals)}
    medians = [row for row in rows if row["kind"] == "median" and row["mode"] == "cold" and row["kernel"] in kernels]
    surveys = {row["arch"]: row for row in rows if row["kind"] == "survey"}
    check_agreement(str(folder / INDEX), rows, [k.manifest for k in kernels.values()])
    return FrozenOp(op, folder, descriptions[0], entries, tuple(sorted(medians, key=_dump)), kernels, surveys)


def _read_index(path: Path) -> list[Row]:
    rows: list[Row] = []
    try:
        lines = read_plain_file(path).splitlines()
    except OSError as error:
        raise FrozenError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        where = f"{path}: line {number}"
        try:
            rows.append(parse_json(line))
        except DocumentError as error:
            raise FrozenError(f"{where}: {error}") from error
        # The line that says which format it is may be any of them, and the others mean nothing in another format.
        check_version(rows[-1], where)
    for number, row in enumerate(rows, start=1):
        where = f"{path}: line {number}"
        kind = row.get("kind") if isinstance(row, dict) else None
        if kind not in LINES:
            raise FrozenError(f"{where}: kind: must be one of {', '.join(LINES)}, is {kind!r}")
        check_document(kind, row, where)
    return rows


def _read_kernel(folder: Path, name: str, seal: str, interface: str) -> FrozenKernel:
    path = folder / "kernels" / f"{name}.json"
    if not path.exists() and (folder / name / "manifest.json").exists():
        raise FrozenError(f"{folder / name}: has the layout of an earlier version: `python -m harness frozen migrate {folder.name}`")
    manifest = _read_document("manifest", path, "the index names this kernel")
    revision = folder / "revisions" / manifest["revision"][:16]
    tree = _read_document("tree", revision / "tree.json", f"{name} is made of it")
    if hash_value(tree) != manifest["revision"]:
        raise FrozenError(f"{revision / 'tree.json'}: it is not the tree that {path.name} names; {_REMEDY}")
    sealed = {k: v for k, v in manifest.items() if k != "revision"} | {"files": tree["files"]}
    found = hash_value({k: v for k, v in sealed.items() if k != "seal"})
    if not found == sealed["seal"] == seal:
        raise FrozenError(f"{path}: seal: the manifest is not what was sealed; {_REMEDY}")
    if manifest["kernel"] != name or manifest["op"] != folder.name:
        raise FrozenError(f"{path}: kernel: it says that it is of {manifest['op']}/{manifest['kernel']}")
    for call, symbol in manifest["entry_points"].items():  # a symbol of another name may be anything that is linked, `system` among it
        if symbol != f"{manifest['op']}_{call}__{manifest['kernel']}":
            raise FrozenError(f"{path}: entry_points/{call}: {symbol} is not this kernel's")
    if manifest["interface"] != interface:
        raise FrozenError(f"{path}: interface: it is not the C interface that {INDEX} describes")
    return FrozenKernel(sealed, revision)


def _read_document(kind: str, path: Path, why: str) -> Row:
    try:
        document: Row = parse_json(read_plain_file(path))
    except (OSError, DocumentError) as error:
        raise FrozenError(f"{path}: cannot be read: {error}; {why}") from error
    check_document(kind, document, str(path))
    return document


def hash_value(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON."""
    return sha256(_dump(value).encode()).hexdigest()


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
