"""Finding the compilers: NVIDIA's, from the project's wheels or an installed CUDA toolkit of the same release, and the system's g++."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from device.interface import UnavailableError

CUDA_RELEASE = "13.0"
# That of the project's wheels: compilers of the release compile everything, and this one what is frozen to the same machine code.
NVCC_VERSION = "13.0.88"
_CUDART = "libcudart.so.13"
_RELEASE = re.compile(r"release (\d+\.\d+), V([\d.]+)")


class BuildError(RuntimeError):
    """A source does not compile, or the compiler or the cache cannot be used."""


@dataclass(frozen=True)
class Toolchain:
    """Absolute paths of the compilers, and their versions as the tools print them. The disassemblers are None where not installed."""

    nvcc: Path
    nvcc_version: str
    cxx: Path
    cxx_version: str
    cuda_include: Path
    cudart_library: Path
    cuobjdump: Path | None
    nvdisasm: Path | None

    @property
    def identity(self) -> str:
        """What a build depends on besides sources and flags."""
        return f"nvcc {self.nvcc_version}; {self.cxx_version}"


def name_remedy(version: str = NVCC_VERSION) -> str:
    """Return the command that installs a compiler of this version, all three parts of it."""
    return " ".join(["pip install", *(f"nvidia-{part}=={version}" for part in ("cuda-nvcc", "nvvm", "cuda-crt"))])


@dataclass(frozen=True)
class _Toolkit:
    """An nvcc of the wanted release with what belongs to it."""

    nvcc: Path
    version: str
    include: Path
    cudart_library: Path


@lru_cache(maxsize=1)
def find_toolchain() -> Toolchain:
    """Return the compilers, or raise :class:`UnavailableError` that names what is missing and how to get it."""
    toolkit = _find_toolkit(_nvcc_candidates())
    cxx = shutil.which("g++")
    if cxx is None:
        raise UnavailableError("g++ is not on the PATH; install it (Debian, Ubuntu: apt-get install g++)")
    return Toolchain(
        nvcc=toolkit.nvcc,
        nvcc_version=toolkit.version,
        cxx=Path(cxx),
        cxx_version=_run([cxx, "--version"]).splitlines()[0],
        cuda_include=toolkit.include,
        cudart_library=toolkit.cudart_library,
        cuobjdump=_find_tool(toolkit.nvcc, "cuobjdump"),
        nvdisasm=_find_tool(toolkit.nvcc, "nvdisasm"),
    )


def _nvcc_candidates() -> Iterator[Path]:
    yield Path(sysconfig.get_path("platlib")) / "nvidia" / "cu13" / "bin" / "nvcc"
    if home := os.environ.get("CUDA_HOME"):
        yield Path(home) / "bin" / "nvcc"
    for folder in filter(None, os.environ.get("PATH", "").split(os.pathsep)):
        yield Path(folder) / "nvcc"
    yield Path("/usr/local/cuda/bin/nvcc")


def _find_toolkit(candidates: Iterable[Path]) -> _Toolkit:
    """Return the first whole toolkit of the release; what cannot be used is passed over, and named where nothing can."""
    refused: dict[Path, str] = {}
    for candidate in candidates:
        path = candidate.resolve()
        if not candidate.is_file() or path in refused:
            continue
        found = _examine_nvcc(path)
        if isinstance(found, _Toolkit):
            return found
        refused[path] = found
    seen = f" (found but not usable: {'; '.join(f'{path} {why}' for path, why in refused.items())})" if refused else ""
    raise UnavailableError(f"no nvcc of release {CUDA_RELEASE}{seen}; install the project's compiler: {name_remedy()}")


def _examine_nvcc(path: Path) -> _Toolkit | str:
    """Return the toolkit that an nvcc belongs to, or why it cannot be used, as the rest of a sentence."""
    try:
        match = _RELEASE.search(_run([str(path), "--version"]))
    except UnavailableError as error:
        return str(error).removeprefix(f"{path} ")
    if match is None or match[1] != CUDA_RELEASE:
        return f"is release {match[1] if match else 'unknown'}"
    root = path.parent.parent
    include = _first(root, "include", "targets/x86_64-linux/include", needs="cuda_runtime_api.h")
    library = _first(root, "lib", "lib64", "targets/x86_64-linux/lib", needs=_CUDART)
    if include is None or library is None:
        missing = "cuda_runtime_api.h" if include is None else _CUDART
        return f"has no {missing} below {root}: a wrapper, or a toolkit that is not whole"
    return _Toolkit(path, match[2], include, library / _CUDART)


def _first(root: Path, *folders: str, needs: str) -> Path | None:
    return next((root / folder for folder in folders if (root / folder / needs).exists()), None)


def _find_tool(nvcc: Path, name: str) -> Path | None:
    beside = nvcc.with_name(name)
    if beside.is_file():
        return beside
    for candidate in Path(sysconfig.get_path("platlib")).glob(f"nvidia/*/bin/{name}"):
        return candidate
    found = shutil.which(name)
    return Path(found) if found else None


def make_environment(scratch: Path) -> dict[str, str]:
    """Return the environment to compile in.

    nvcc appends user flags and leaves temporary files where TMPDIR says; both would make a build depend on more than it is given.
    """
    env = {k: v for k, v in os.environ.items() if k not in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")}
    return env | {"TMPDIR": str(scratch), "LC_ALL": "C.UTF-8"}


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not end"
        raise UnavailableError(f"{command[0]} cannot be run: {reason}") from error
    return done.stdout + done.stderr
