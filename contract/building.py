"""Building a frozen kernel from its sealed sources with the manifest's flags and nvcc; the result is cached under the manifest's seal.

A kernel that is in the cache, or installed compiled, needs no compiler. Several processes may build at once: one does, the others wait.
What is there is complete: it was made in a folder next to its place and renamed. Every source is checked against its hash first, and the
machine code against the manifest's afterwards, so that what runs is what was verified and measured.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from contract.errors import FrozenError
from contract.kernels import WITHOUT_LARGE_HEADERS, FrozenKernel
from device.cubin import hash_host_code, hash_machine_code
from device.interface import UnavailableError
from device.native import find_prebuilt_dir
from device.settings import read_settings
from device.toolchain import BuildError, Toolchain, find_toolchain, make_environment, name_remedy

# What ptxas said of a kernel, and the hash of its launcher's code, beside its library.
PTXAS_LOG, HOST_HASH = "ptxas.txt", "host.sha256"
_LIBRARY, _DIGEST = "kernel.so", "kernel.so.sha256"


class NotBuiltError(RuntimeError):
    """A kernel is not in the cache, and no compiler is to be asked (:func:`without_compiler`)."""


class _Compiler(threading.local):
    """Whether this thread may compile."""

    is_barred = False


_compiler = _Compiler()
# The kernels that this process has compiled, in order.
_compiled: list[str] = []


@contextmanager
def without_compiler() -> Iterator[None]:
    """In the block, on this thread, a kernel that is not in the cache raises :class:`NotBuiltError` and is not compiled."""
    before, _compiler.is_barred = _compiler.is_barred, True
    try:
        yield
    finally:
        _compiler.is_barred = before


def is_compiler_barred() -> bool:
    """Whether this thread is in :func:`without_compiler`; it must say so to threads that build for it."""
    return _compiler.is_barred


def list_compiled() -> tuple[str, ...]:
    """Return the names of the kernels that this process has compiled so far, as ``op/kernel``."""
    return tuple(_compiled)


def build_kernel(kernel: FrozenKernel, cache_dir: Path | None = None) -> Path:
    """Return the kernel's shared library: from the cache, installed, or built now; beside it lie :data:`PTXAS_LOG` and :data:`HOST_HASH`.

    Raises :class:`FrozenError` where a source or the machine code is not what was sealed, :class:`BuildError` with the compiler's text or
    where the cache cannot be written, and :class:`UnavailableError` where there is no compiler.
    """
    inside = Path("frozen", kernel.op, f"{kernel.name}-{str(kernel.manifest['seal'])[:16]}")
    place = (cache_dir or read_settings().cache_dir) / inside
    if _is_whole(place):
        return place / _LIBRARY
    prebuilt = find_prebuilt_dir()
    if prebuilt is not None and _is_whole(prebuilt / inside):
        return prebuilt / inside / _LIBRARY
    kernel.check_sources()
    return find_or_build(place, kernel, _require_pinned)


def find_or_build(place: Path, kernel: FrozenKernel, check: Callable[[FrozenKernel, Toolchain, Path], None]) -> Path:
    """Return the library at ``place``; where it is not there whole, compile it, ``check`` it, and put it there.

    Raises as :func:`build_kernel`, and what ``check`` raises.
    """
    if _is_whole(place):
        return place / _LIBRARY
    if _compiler.is_barred:
        raise NotBuiltError(f"{kernel.op}/{kernel.name} is not in the cache {place.parent}; python -m aicf prebuild {kernel.op} builds it")
    try:
        toolchain = find_toolchain()
    except UnavailableError as error:
        raise UnavailableError(f"{kernel.op}/{kernel.name} must be built from its sealed sources: {error}") from error
    root = place.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f".{place.name}.lock"):
            if not _is_whole(place):
                _build(kernel, toolchain, place, check)
    except OSError as error:
        raise BuildError(f"{root}: {error.strerror or error}; free space there, or point AICF_CACHE_DIR elsewhere") from error
    return place / _LIBRARY


def compile_kernel(kernel: FrozenKernel, toolchain: Toolchain, scratch: Path) -> Path:
    """Compile a kernel from its revision's folder alone, in an empty folder; return the library there, with what lies beside it.

    Raises :class:`BuildError` with the compiler's text. Sources and machine code are not checked against anything here.
    """
    object_file, library = scratch / "object.o", scratch / _LIBRARY
    command = [str(toolchain.nvcc), "-ccbin", str(toolchain.cxx), *kernel.flags, "-c", str(kernel.source), "-o", str(object_file)]
    for first in ([*command, *WITHOUT_LARGE_HEADERS], command):
        status, text = _run(first, scratch)
        if status == 0:
            break
    log = text
    if status == 0:
        link = [str(toolchain.cxx), "-shared", "-o", str(library), str(object_file), str(toolchain.cudart_library)]
        status, text = _run(link, scratch)
    if status != 0:
        raise BuildError(f"{kernel.name} does not compile from its sealed sources:\n{text.strip()}")
    (scratch / HOST_HASH).write_text(hash_host_code(object_file))
    object_file.unlink()
    (scratch / PTXAS_LOG).write_text(log)
    return library


def _run(command: list[str], folder: Path) -> tuple[int, str]:
    """Return the exit status of a compiler that is run in a folder, and what it said."""
    done = subprocess.run(
        command, cwd=folder, env=make_environment(folder), capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    return done.returncode, done.stdout + done.stderr


def find_other_code(kernel: FrozenKernel, library: Path) -> str:
    """Return "" where a library has the machine code that the kernel's manifest pins, else what differs."""
    found = hash_machine_code(library)
    if found == kernel.machine_code:
        return ""
    return f"the machine code is {found[:16]}..., the manifest pins {kernel.machine_code[:16] or 'none'}..."


def _is_whole(place: Path) -> bool:
    """Whether the library is there with the content that it was stored with: a disk that ran full leaves less."""
    try:
        is_same = sha256((place / _LIBRARY).read_bytes()).hexdigest() == (place / _DIGEST).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return is_same and all((place / name).is_file() for name in (PTXAS_LOG, HOST_HASH))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(kernel: FrozenKernel, toolchain: Toolchain, place: Path, check: Callable[[FrozenKernel, Toolchain, Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".building-") as name:
        made = Path(name, "made")
        made.mkdir()
        library = compile_kernel(kernel, toolchain, made)
        check(kernel, toolchain, library)
        (made / _DIGEST).write_text(sha256(library.read_bytes()).hexdigest())
        if place.exists():  # damaged, or this would not be built
            shutil.rmtree(place)
        made.rename(place)
    _compiled.append(f"{kernel.op}/{kernel.name}")


def _require_pinned(kernel: FrozenKernel, toolchain: Toolchain, library: Path) -> None:
    if fault := find_other_code(kernel, library):
        sealed_with = kernel.manifest["build"]["toolchain"]["nvcc"]
        raise FrozenError(
            f"{kernel.op}/{kernel.name}: build/machine_code: nvcc {toolchain.nvcc_version} makes another kernel of the sealed sources "
            f"than nvcc {sealed_with}, whose was verified and measured: {fault}; {name_remedy(sealed_with)}"
        )
