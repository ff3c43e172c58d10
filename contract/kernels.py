"""A sealed kernel: its manifest, checked against its seal, and the sources that it is built from."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.documents import read_plain_file
from contract.errors import FrozenError
from contract.layout import (
    INDEX,
    SOURCES,
    TREE,
    expand,
    hash_bytes,
    hash_value,
    make_seal,
    make_tree,
    name_manifest,
    name_revision,
    name_symbol,
)
from contract.schemas import read_document

REMEDY = "`python -m harness frozen verify` says more"

# How hard the host's compiler tries: nvcc's -O is for it alone, and device code is the same with any. A launcher is checks of arguments and
# one launch: -O3, with which older kernels were sealed, takes g++ 1.6 times as long for nothing.
HOST_EFFORT = "-O2"
# And where only the emulated device runs what is launched, which takes far longer than any launcher.
EMULATED_HOST_EFFORT = "-O0"

# nvcc includes <cmath> in everything, and from C++17 on that holds libstdc++'s special functions (zeta, Bessel, ...), with half of all that
# the compilers read: a third of their time. <algorithm> has held the algorithms on ranges since C++20, and those for execution policies:
# another sixth. Their include guards leave them out; the code that comes out is the same. Sources that do want them, or what they include
# in turn, are compiled with them. (std::min and std::max are in neither.)
WITHOUT_LARGE_HEADERS = ("-D_GLIBCXX_BITS_SPECFUN_H=1", "-D_RANGES_ALGO_H=1", "-D_PSTL_GLUE_ALGORITHM_DEFS_H=1", "-D_STL_ALGO_H=1")


@dataclass(frozen=True)
class FrozenKernel:
    """A sealed kernel: its manifest with the ``files`` of its revision, as it was sealed, and the folder that holds these."""

    manifest: Mapping[str, Any]
    folder: Path

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(self.manifest["kernel"])

    @property
    def op(self) -> str:
        """The op that it is a kernel of."""
        return str(self.manifest["op"])

    @property
    def arch(self) -> str:
        """The architecture that it was built for, ``sm_90a``."""
        return str(self.manifest["arch"])

    @property
    def machine_code(self) -> str:
        """The SHA-256 of code and constants that its sources come to, "" where none is pinned."""
        return str(self.manifest["build"]["machine_code"].get(self.arch, ""))

    @property
    def revision(self) -> str:
        """The hash of the tree of its sources."""
        return hash_value(make_tree(self.op, self.manifest["files"]))

    @property
    def sources(self) -> Path:
        """The folder that its sources lie in as in ``ops/``."""
        return self.folder / SOURCES

    @property
    def flags(self) -> list[str]:
        """What nvcc is called with, but for the compiler of the host, the source and where the object goes."""
        build = self.manifest["build"]
        flags = [HOST_EFFORT if flag == "-O3" else flag for flag in build["flags"]]
        return [*flags, "-gencode", build["gencode"], f"-I{self.sources.resolve()}"]

    @property
    def source(self) -> Path:
        """The file that nvcc compiles."""
        return self.folder.resolve() / str(self.manifest["build"]["source"])

    def read_source(self, name: str) -> bytes:
        """Return a source by its path below the revision's folder; raises :class:`FrozenError` unless it is what was sealed."""
        path = self.folder / name
        try:
            content = read_plain_file(path)
        except FileNotFoundError:
            raise FrozenError(f"{path}: is missing; {REMEDY}") from None
        except OSError as error:
            raise FrozenError(f"{path}: cannot be read: {error}; {REMEDY}") from error
        if hash_bytes(content) != self.manifest["files"].get(name):
            raise FrozenError(f"{path}: is not what was sealed; {REMEDY}")
        return content

    def check_sources(self) -> None:
        """Raise :class:`FrozenError`, naming the file, unless all sources are there and are what was sealed."""
        for name in sorted(self.manifest["files"]):
            self.read_source(name)


def read_kernel(folder: Path, name: str, *, seal: str | None = None, interfaces: Container[str] | None = None) -> FrozenKernel:
    """Return a kernel of the op whose folder it is, its manifest checked against schema, seal and name.

    ``seal`` is what the index says that it is, ``interfaces`` are those that it describes or extends. Raises :class:`FrozenError`, naming
    the file and field.
    """
    path = folder / name_manifest(name)
    manifest = read_document("manifest", path, "the index names this kernel")
    revision = folder / name_revision(manifest["revision"])
    tree = read_document("tree", revision / TREE, f"{name} is made of it")
    if hash_value(tree) != manifest["revision"]:
        raise FrozenError(f"{revision / TREE}: it is not the tree that {path.name} names; {REMEDY}")
    sealed = expand(manifest, tree)
    if make_seal(sealed) != sealed["seal"] or seal not in (None, sealed["seal"]):
        raise FrozenError(f"{path}: seal: the manifest is not what was sealed; {REMEDY}")
    if manifest["kernel"] != name or manifest["op"] != folder.name:
        raise FrozenError(f"{path}: kernel: it claims to be {manifest['op']}/{manifest['kernel']}")
    for call, symbol in manifest["entry_points"].items():  # a symbol of another name may be anything that is linked, `system` among it
        if symbol != name_symbol(manifest["op"], call, manifest["kernel"]):
            raise FrozenError(f"{path}: entry_points/{call}: {symbol} is not this kernel's")
    if interfaces is not None and manifest["interface"] not in interfaces:
        raise FrozenError(f"{path}: interface: it is neither the C interface that {INDEX} describes nor one that this extends")
    return FrozenKernel(sealed, revision)
