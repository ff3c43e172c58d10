"""Where things are in the frozen set and how they are written: paths, names, canonical JSON, hashes, seals.

frozen/schema/*.schema.json              what each document holds
frozen/<op>/index.jsonl                  the op, its entries, its medians, its surveys: one a line, sorted
frozen/<op>/kernels/<kernel>.json        the manifest of a sealed kernel; <kernel> is the variant and eight digits of what it is made of
frozen/<op>/revisions/<hash>/tree.json   the hashes of one tree of sources, which the kernels made of it share; <hash> is of this value
frozen/<op>/revisions/<hash>/sources/    these sources, laid out as in ops/
frozen/<op>/evidence/<bucket>-<hash>.json    why a kernel has a bucket, with samples and conditions
frozen/<op>/history/<time>-<what>-<hash>.json    every change of the index, as lines removed and added

All of it is folders and plain files. What is no part of the set begins with a dot: ``frozen/.lock-<op>``, and of a change that is being
made ``frozen/<op>/.journal.json`` and files ``.new-*`` that have not got their names yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

FROZEN = "frozen"
OPS = "ops"
INDEX = "index.jsonl"
KERNELS = "kernels"
REVISIONS = "revisions"
TREE = "tree.json"
SOURCES = "sources"
EVIDENCE = "evidence"
HISTORY = "history"
SCHEMA = "schema"
LOCK_PREFIX = ".lock-"
JOURNAL = ".journal.json"
TEMPORARY_PREFIX = ".new-"
SCHEMA_VERSION = 1
# As in index.schema.json: names that are words are no paths.
_OP_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")


# The set that comes with this package: of the checkout, or installed beside it.
PACKAGED_DIR = Path(__file__).resolve().parents[1] / FROZEN
# The format's schemas are the project's own, wherever a set lies.
SCHEMA_DIR = PACKAGED_DIR / SCHEMA


def find_frozen_dir() -> Path:
    """Return the folder ``frozen`` of the project that we stand in, which need not be there yet; outside of any the packaged one."""
    project = _find_project()
    return PACKAGED_DIR if project is None else project / FROZEN


def find_frozen_dirs() -> tuple[Path, ...]:
    """Return the folders of frozen sets in the order in which an op is looked for: the project's own, then the packaged one."""
    own = find_frozen_dir()
    return (own,) if own == PACKAGED_DIR else (own, PACKAGED_DIR)


def find_ops_dir() -> Path | None:
    """Return the folder ``ops`` of the project that we stand in, which need not be there yet; None outside of any."""
    project = _find_project()
    return None if project is None else project / OPS


def _find_project() -> Path | None:
    # Inside: the device's package needs NumPy, which the Python that CMake finds may not have; who names a folder needs neither.
    from device.settings import find_project

    return find_project()


def name_schema(document: str) -> str:
    """Return the file name of a document's schema."""
    return f"{document}.schema.json"


def is_op_name(name: str) -> bool:
    """Return whether a name can be an op's folder in the set."""
    return _OP_NAME.match(name) is not None and name != SCHEMA


def dump_line(value: Any) -> str:
    """Return canonical JSON on one line: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def dump_document(value: Any) -> str:
    """Return a document: sorted keys, one value per line, short lists on one."""
    text = json.dumps(value, sort_keys=True, indent=1, allow_nan=False)
    return text + "\n"


def hash_bytes(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return sha256(content).hexdigest()


def hash_value(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON."""
    return hash_bytes(dump_line(value).encode())


def make_seal(manifest: Mapping[str, Any]) -> str:
    """Return the seal of a manifest with its ``files`` (:func:`expand`): the hash of all its other fields."""
    return hash_value({k: v for k, v in manifest.items() if k != "seal"})


def make_tree(op: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of a tree of sources: SHA-256 by path below the revision's folder."""
    return {"schema": SCHEMA_VERSION, "op": op, "files": dict(files)}


def expand(manifest: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest as it is sealed: with the ``files`` of its revision's tree in the place of ``revision``."""
    return {k: v for k, v in manifest.items() if k != "revision"} | {"files": tree["files"]}


def split(sealed: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is written of a sealed manifest: the manifest, which names its revision, and the tree of that."""
    tree = make_tree(sealed["op"], sealed["files"])
    return {k: v for k, v in sealed.items() if k != "files"} | {"revision": hash_value(tree)}, tree


def name_manifest(kernel: str) -> str:
    """Return the path of a kernel's manifest below the op's folder."""
    return f"{KERNELS}/{kernel}.json"


def name_symbol(op: str, call: str, kernel: str) -> str:
    """Return the name of one of a kernel's entry points; of a variant that is none, ``kernel`` is the suffix that it was built with."""
    return f"{op}_{call}__{kernel}"


def name_revision(revision: str) -> str:
    """Return the path of a revision's folder below the op's folder: a tree is named by what it holds."""
    return f"{REVISIONS}/{revision[:16]}"


def list_kernel_files(sealed: Mapping[str, Any], sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a sealed kernel by path below the op's folder; ``sources`` are named as in the manifest's ``files``."""
    manifest, tree = split(sealed)
    folder = name_revision(manifest["revision"])
    files = {name_manifest(sealed["kernel"]): dump_document(manifest).encode(), f"{folder}/{TREE}": dump_document(tree).encode()}
    return files | {f"{folder}/{name}": content for name, content in sources.items()}
