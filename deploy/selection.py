"""Which kernels a deployed library holds, read from ``frozen/`` (``docs/frozen.md`` describes the format)."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from deploy.documents import DeployError, read_document, read_plain_file

Row = Mapping[str, Any]
_OP_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")


@dataclass(frozen=True)
class Kernel:
    """A kernel of the library: its manifest with the ``files`` of its revision, as it was sealed, and the folder that holds these."""

    manifest: Row
    folder: Path

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(self.manifest["kernel"])

    def read_source(self, name: str) -> str:
        """Return a sealed source by its path below ``sources``; raises :class:`DeployError` where it is not what was sealed."""
        path = self.folder / "sources" / name
        digest = self.manifest["files"].get(f"sources/{name}")
        if digest is None or not path.is_file():
            raise DeployError(f"{path} is missing; `python -m harness frozen verify` says more")
        content = read_plain_file(path)
        if sha256(content).hexdigest() != digest:
            raise DeployError(f"{path} is not what was sealed; `python -m harness frozen verify` says more")
        return content.decode()


@dataclass(frozen=True)
class DeployedOp:
    """An op of the library: its description, and kernels sorted by name with the entries, medians and surveys that name them."""

    description: Row
    kernels: tuple[Kernel, ...]
    entries: tuple[Row, ...]
    medians: tuple[Row, ...]
    surveys: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The op's name."""
        return str(self.description["op"])

    @property
    def interface(self) -> Row:
        """How a call's problem is found in the op's Params struct."""
        interface: Row = self.description["interface"]
        return interface

    @property
    def archs(self) -> list[str]:
        """The architectures that kernels are for."""
        return sorted({str(k.manifest["arch"]) for k in self.kernels})

    def find_class(self, axis: str, name: str) -> int:
        """Return the number of an axis' class, -2 (which no call has) where the axes do not know it any more."""
        classes = find_named(self.description["axes"], axis, f"{self.name}: axes")["classes"]
        return next((i for i, c in enumerate(classes) if c["name"] == name), -2)

    def find_kernel(self, name: str) -> int:
        """Return the place of a kernel."""
        return next(i for i, k in enumerate(self.kernels) if k.name == name)


def find_named(rows: Sequence[Row], name: str, where: str) -> Row:
    """Return the row of that name; raises :class:`DeployError` where there is none."""
    for row in rows:
        if row["name"] == name:
            return row
    raise DeployError(f"{where}: there is no {name}")


def select(frozen_dir: Path, ops: Sequence[str] = (), archs: Sequence[str] = (), patterns: Sequence[str] = ()) -> list[DeployedOp]:
    """Return the chosen ops (all where none is named), with kernels of the chosen architectures whose names match a pattern.

    Every source of every chosen kernel is held against its hash. Raises :class:`DeployError` where something that was asked for is not
    there, or disagrees.
    """
    known = sorted(p.parent.name for p in frozen_dir.glob("*/index.jsonl") if _OP_NAME.match(p.parent.name))
    if missing := sorted(set(ops) - set(known)):
        raise DeployError(f"{missing[0]} is not frozen; there are: {', '.join(known) or 'none'}")
    found = [_select_op(frozen_dir / op, archs, patterns) for op in known if not ops or op in ops]
    chosen = [op for op in found if op is not None]
    if not chosen:
        raise DeployError(f"no frozen kernel matches ops {list(ops)}, architectures {list(archs)}, kernels {list(patterns)}")
    return chosen


def _select_op(folder: Path, archs: Sequence[str], patterns: Sequence[str]) -> DeployedOp | None:
    index = folder / "index.jsonl"
    lines = enumerate(read_plain_file(index).splitlines(), start=1)
    rows: list[Any] = [read_document("index", line, f"{index}: line {number}") for number, line in lines]
    description = next((r for r in rows if r["kind"] == "op"), None)
    if description is None:
        return None
    if description["op"] != folder.name:
        raise DeployError(f"{index}: it is of op {description['op']}")
    entries = [r for r in rows if r["kind"] == "entry" and (not archs or r["bucket"]["arch"] in archs)]
    if patterns:
        entries = [e for e in entries if any(fnmatch.fnmatch(e["kernel"], p) for p in patterns)]
    names = sorted({e["kernel"] for e in entries})
    if not names:
        return None
    kernels = tuple(_read_kernel(folder, name, next(e for e in entries if e["kernel"] == name)) for name in names)
    for kernel in {k.folder: k for k in kernels}.values():  # a revision's sources, once
        for source in (n for n in kernel.manifest["files"] if not n.endswith(".py")):
            kernel.read_source(source.removeprefix("sources/"))
    winners = {e["kernel"] for e in entries if e["role"] == "winner"}
    medians = [r for r in rows if r["kind"] == "median" and r["kernel"] in winners and r["mode"] == "cold"]
    surveys = [r for r in rows if r["kind"] == "survey" and description["cost"] is not None and not set(names).isdisjoint(r["weights"])]
    return DeployedOp(description, kernels, tuple(entries), tuple(medians), tuple(surveys))


def _read_kernel(folder: Path, name: str, entry: Row) -> Kernel:
    path = folder / "kernels" / f"{name}.json"
    if not path.exists() and (folder / name / "manifest.json").exists():
        raise DeployError(f"{folder / name} has the layout of an earlier version: `python -m harness frozen migrate {folder.name}`")
    manifest = read_document("manifest", read_plain_file(path), str(path))
    revision = folder / "revisions" / manifest["revision"][:16]
    tree = read_document("tree", read_plain_file(revision / "tree.json"), str(revision / "tree.json"))
    sealed = {k: v for k, v in manifest.items() if k != "revision"} | {"files": tree["files"]}
    seal = _hash_value({k: v for k, v in sealed.items() if k != "seal"})
    if not seal == sealed["seal"] == entry["seal"] or _hash_value(tree) != manifest["revision"]:
        raise DeployError(f"{path}: the manifest is not what was sealed; `python -m harness frozen verify` says more")
    if (manifest["op"], manifest["kernel"]) != (folder.name, name):
        raise DeployError(f"{path}: it says that it is of {manifest['op']}/{manifest['kernel']}")
    for call, symbol in manifest["entry_points"].items():
        if symbol != f"{manifest['op']}_{call}__{manifest['kernel']}":
            raise DeployError(f"{path}: entry_points/{call}: {symbol} is not this kernel's")
    return Kernel(sealed, revision)


def _hash_value(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
