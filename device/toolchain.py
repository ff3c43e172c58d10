"""Finding the compilers: NVIDIA's from the project's wheels or of an installed CUDA toolkit of the same release, and the system's g++."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from device.interface import UnavailableError

CUDA_RELEASE = "13.0"
# That of the project's wheels: compilers of the release compile everything, and this one what is frozen to the same machine code.
NVCC_VERSION = "13.0.88"
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


@lru_cache(maxsize=1)
def find_toolchain() -> Toolchain:
    """Return the compilers, or raise :class:`UnavailableError` that names what is missing and how to get it."""
    nvcc, version = _find_nvcc()
    cxx = shutil.which("g++")
    if cxx is None:
        raise UnavailableError("g++ is not on the PATH; install it (Debian, Ubuntu: apt-get install g++)")
    root = nvcc.parent.parent
    return Toolchain(
        nvcc=nvcc,
        nvcc_version=version,
        cxx=Path(cxx),
        cxx_version=_run([cxx, "--version"]).splitlines()[0],
        cuda_include=_first(root, "include", "targets/x86_64-linux/include", needs="cuda_runtime_api.h"),
        cudart_library=_first(root, "lib", "lib64", "targets/x86_64-linux/lib", needs="libcudart.so.13") / "libcudart.so.13",
        cuobjdump=_find_tool(nvcc, "cuobjdump"),
        nvdisasm=_find_tool(nvcc, "nvdisasm"),
    )


def _first(root: Path, *folders: str, needs: str) -> Path:
    for folder in folders:
        if (root / folder / needs).exists():
            return root / folder
    raise UnavailableError(
        f"{needs} is not below {root}: that CUDA toolkit is not whole; install the project again (make clean; make doctor)"
    )


def _nvcc_candidates() -> Iterator[Path]:
    yield Path(sysconfig.get_path("platlib")) / "nvidia" / "cu13" / "bin" / "nvcc"
    if home := os.environ.get("CUDA_HOME"):
        yield Path(home) / "bin" / "nvcc"
    if found := shutil.which("nvcc"):
        yield Path(found)
    yield Path("/usr/local/cuda/bin/nvcc")


def _find_nvcc() -> tuple[Path, str]:
    refused = []
    for candidate in _nvcc_candidates():
        if not candidate.is_file():
            continue
        path = candidate.resolve()
        match = _RELEASE.search(_run([str(path), "--version"]))
        if match and match[1] == CUDA_RELEASE:
            return path, match[2]
        refused.append(f"{path} is release {match[1] if match else 'unknown'}")
    seen = f" (found but not usable: {'; '.join(refused)})" if refused else ""
    raise UnavailableError(f"no nvcc of release {CUDA_RELEASE}{seen}; install the project's compiler: {name_remedy()}")


def _find_tool(nvcc: Path, name: str) -> Path | None:
    beside = nvcc.with_name(name)
    if beside.is_file():
        return beside
    for candidate in Path(sysconfig.get_path("platlib")).glob(f"nvidia/*/bin/{name}"):
        return candidate
    found = shutil.which(name)
    return Path(found) if found else None


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except OSError as error:
        raise UnavailableError(f"{command[0]} cannot be run: {error}") from error
    return done.stdout + done.stderr
