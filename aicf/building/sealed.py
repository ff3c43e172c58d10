"""Building a frozen kernel: sealed sources, the manifest's flags, nvcc; the result is kept under the manifest's seal.

A kernel that is in the cache needs no compiler. Several processes may build at once: one does, the others wait. What is there is whole: it
was made in a folder beside its place and renamed. Every source is held against its hash first, and the machine code against the manifest's
afterwards, so that what runs is what was verified and measured.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from aicf.errors import FrozenError
from contract.kernels import FrozenKernel
from device import UnavailableError
from device.cubin import hash_machine_code
from device.settings import read_settings
from device.toolchain import BuildError, Toolchain, find_toolchain, name_remedy

_LIBRARY, _DIGEST = "kernel.so", "kernel.so.sha256"
_REMEDY = "`python -m harness frozen verify` says more"


def build_kernel(kernel: FrozenKernel, cache_dir: Path | None = None) -> Path:
    """Return the kernel's shared library, from the cache or built now.

    Raises :class:`FrozenError` where a source or the machine code is not what was sealed, :class:`BuildError` with the compiler's text or
    where the cache cannot be written, and :class:`UnavailableError` where there is no compiler.
    """
    root = (cache_dir or read_settings().cache_dir) / "frozen" / str(kernel.manifest["op"])
    place = root / f"{kernel.name}-{str(kernel.manifest['seal'])[:16]}"
    if _is_whole(place):
        return place / _LIBRARY
    check_sources(kernel)
    try:
        toolchain = find_toolchain()
    except UnavailableError as error:
        raise UnavailableError(f"{kernel.manifest['op']}/{kernel.name} must be built from its sealed sources: {error}") from error
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f".{place.name}.lock"):
            if not _is_whole(place):
                _build(kernel, toolchain, place)
    except OSError as error:
        raise BuildError(f"{root}: {error.strerror or error}; free space there, or point AICF_CACHE_DIR elsewhere") from error
    return place / _LIBRARY


def check_sources(kernel: FrozenKernel) -> None:
    """Raise :class:`FrozenError`, naming the file, unless all sources are there and are what was sealed."""
    for name, digest in sorted(kernel.manifest["files"].items()):
        path = kernel.folder / name
        if not path.is_file():
            raise FrozenError(f"{path}: is missing; {_REMEDY}")
        if sha256(path.read_bytes()).hexdigest() != digest:
            raise FrozenError(f"{path}: is not what was sealed; {_REMEDY}")


def _is_whole(place: Path) -> bool:
    """Whether the library is there with the content that it was stored with: a disk that ran full leaves less."""
    try:
        return sha256((place / _LIBRARY).read_bytes()).hexdigest() == (place / _DIGEST).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(kernel: FrozenKernel, toolchain: Toolchain, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".building-") as name:
        scratch = Path(name)
        made = scratch / "made"
        made.mkdir()
        _compile(kernel, toolchain, scratch, made / _LIBRARY)
        _check_machine_code(kernel, toolchain, made / _LIBRARY)
        (made / _DIGEST).write_text(sha256((made / _LIBRARY).read_bytes()).hexdigest())
        if place.exists():  # damaged, or this would not be built
            shutil.rmtree(place)
        made.rename(place)


def _compile(kernel: FrozenKernel, toolchain: Toolchain, scratch: Path, library: Path) -> None:
    build = kernel.manifest["build"]
    folder = kernel.folder.resolve()
    flags = [*build["flags"], "-gencode", build["gencode"], f"-I{folder / 'sources'}"]
    commands = (
        [str(toolchain.nvcc), "-ccbin", str(toolchain.cxx), *flags, "-c", str(folder / build["source"]), "-o", "object.o"],
        [str(toolchain.cxx), "-shared", "-o", str(library), "object.o", str(toolchain.cudart_library)],
    )
    # nvcc appends user flags and leaves temporary files where TMPDIR says: a build must depend on what is sealed alone.
    environ = {k: v for k, v in os.environ.items() if k not in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")}
    environ |= {"TMPDIR": str(scratch), "LC_ALL": "C.UTF-8"}
    for command in commands:
        done = subprocess.run(command, cwd=scratch, env=environ, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode != 0:
            raise BuildError(f"{kernel.name} does not compile from its sealed sources:\n{(done.stdout + done.stderr).strip()}")


def _check_machine_code(kernel: FrozenKernel, toolchain: Toolchain, library: Path) -> None:
    expected = kernel.manifest["build"]["machine_code"].get(kernel.arch)
    found = hash_machine_code(library)
    if expected is not None and found != expected:
        sealed_with = kernel.manifest["build"]["toolchain"]["nvcc"]
        raise FrozenError(
            f"{kernel.manifest['op']}/{kernel.name}: build/machine_code: nvcc {toolchain.nvcc_version} makes {found[:16]}... of the "
            f"sealed sources, and {expected[:16]}... was verified and measured, made by nvcc {sealed_with}: {name_remedy(sealed_with)}"
        )
