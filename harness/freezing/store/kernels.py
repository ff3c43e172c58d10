"""Finding contradictions among an op's sealed kernels and the source trees that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from contract.documents import read_plain_file
from contract.errors import BrokenDocument
from contract.extension import list_served_interfaces
from contract.index import Row
from contract.layout import REVISIONS, TREE, expand, hash_bytes, hash_value, make_seal, name_manifest, name_revision
from contract.schemas import read_document
from harness.freezing.store.findings import Finding

_MOST_NAMES = 3


def check_kernels(folder: Path, known: Mapping[str, str], description: Row | None) -> Iterator[Finding]:
    """Check the manifests of kernels, by name with their seals, and every revision, each once; one that no manifest names is "added"."""
    manifests: dict[str, Row] = {}
    for kernel in sorted(known):
        manifest = _read(folder, "manifest", name_manifest(kernel))
        if isinstance(manifest, Finding):
            yield manifest
        else:
            manifests[kernel] = manifest
    trees: dict[str, Row] = {}
    present = {f"{REVISIONS}/{p.name}" for p in (folder / REVISIONS).glob("*")}
    users: dict[str, list[str]] = {}
    for kernel, manifest in manifests.items():
        users.setdefault(name_revision(manifest["revision"]), []).append(kernel)
    for revision, kernels in sorted(users.items()):
        if revision not in present:
            yield from (Finding(folder.name, name_manifest(k), "missing", f"its sources, {revision}, are not there") for k in kernels)
            continue
        tree = _read(folder, "tree", f"{revision}/{TREE}")
        if isinstance(tree, Finding):
            yield Finding(tree.op, tree.path, tree.kind, f"{tree.detail}; {_name(kernels)} made of it")
            continue
        trees[revision] = tree
        yield from _check_tree(folder, revision, tree, kernels)
    for kernel, manifest in manifests.items():
        if (sound := trees.get(name_revision(manifest["revision"]))) is not None:
            yield from _check_manifest(folder, kernel, manifest, sound, known[kernel])
        if description is not None and manifest["interface"] not in list_served_interfaces(description):
            detail = "its C interface is not the one that the index describes, nor one that this extends"
            yield Finding(folder.name, name_manifest(kernel), "skew", detail)
    if len(manifests) == len(known):  # else it is not known what the others name
        for revision in sorted(present - set(users)):
            yield Finding(folder.name, revision, "added", "no kernel is made of it")


def _read(folder: Path, kind: str, name: str) -> Row | Finding:
    try:
        return read_document(kind, folder / name)
    except BrokenDocument as error:
        return Finding.of(error)


def _check_manifest(folder: Path, kernel: str, manifest: Row, tree: Row, seal: str) -> Iterator[Finding]:
    name = name_manifest(kernel)
    if manifest["revision"] != hash_value(tree):
        yield Finding(folder.name, name, "changed", f"it is of revision {manifest['revision'][:20]}..., which is not there")
    elif make_seal(expand(manifest, tree)) != manifest["seal"]:
        yield Finding(folder.name, name, "changed", "it was edited after it was sealed: its seal is of another content")
    elif manifest["seal"] != seal:
        yield Finding(folder.name, name, "changed", "its seal is not the one that the index names")
    if manifest["kernel"] != kernel or manifest["op"] != folder.name:
        yield Finding(folder.name, name, "changed", f"it claims to be {manifest['op']}/{manifest['kernel']}")


def _check_tree(folder: Path, revision: str, tree: Row, kernels: Sequence[str]) -> Iterator[Finding]:
    """Check a revision's tree against its name, and the files below its folder against the tree."""
    made = _name(kernels)
    if name_revision(hash_value(tree)) != revision or tree["op"] != folder.name:
        yield Finding(folder.name, f"{revision}/{TREE}", "changed", f"it is not the tree that the folder is named after; {made} made of it")
    for path, digest in sorted(tree["files"].items()):
        source = folder / revision / path
        if not source.is_file():
            yield Finding(folder.name, f"{revision}/{path}", "missing", f"the tree lists this source; {made} made of it")
        elif hash_file(source) != digest:
            yield Finding(folder.name, f"{revision}/{path}", "changed", f"it is not the source that was sealed; {made} made of it")
    for source in sorted((folder / revision).rglob("*")):
        relative = str(source.relative_to(folder / revision))
        if not source.is_dir() and relative != TREE and relative not in tree["files"]:
            yield Finding(folder.name, f"{revision}/{relative}", "added", "the tree does not list it")


def _name(kernels: Sequence[str]) -> str:
    """Return the kernels of a revision, as the beginning of a clause."""
    more = len(kernels) - _MOST_NAMES
    names = ", ".join(kernels[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"{names} {'is' if len(kernels) == 1 else 'are'}"


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, "" where it cannot be read."""
    try:
        return hash_bytes(read_plain_file(path))
    except OSError:
        return ""
