"""The kernels of ``kernels.cu``, compiled once per test run, and what the tests do with them."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_int, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.kernels import WITHOUT_LARGE_HEADERS
from device.loader import find_cuda_library

from .cuda_runtime import Runtime

SOURCE = Path(__file__).with_name("kernels.cu")


def find_nvcc() -> str:
    """The compiler of the wheels, of whichever version is imported first: toolkits.py runs tests with others than the project's own."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (path := Path(folder) / "cu13" / "bin" / "nvcc").is_file():
            return str(path)
    path_on_system = shutil.which("nvcc")
    assert path_on_system is not None, "no nvcc: it is a dependency of the project (nvidia-cuda-nvcc)"
    return path_on_system


def build(source: Path, folder: Path, options: Sequence[str] = ("-O3", "-lineinfo")) -> Path:
    """Compile a ``.cu`` file to a shared object that holds PTX only; returns its path."""
    runtime = find_cuda_library()
    assert runtime is not None, "nvidia-cuda-runtime is a dependency of the project"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{source.stem}.so"
    command = [find_nvcc(), "-shared", "-Xcompiler", "-fPIC", "-std=c++20", *options, "-cudart", "none", "-cudadevrt", "none"]
    command += WITHOUT_LARGE_HEADERS
    command += ["--compress-mode=none", "-gencode", "arch=compute_90a,code=compute_90a", "-Xlinker", str(runtime), str(source)]
    command += ["-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


class Kernels:
    """Runs kernels on arrays, which are copied to the device before and back after; a scalar is an int or a ctypes value."""

    def __init__(self, cuda: Runtime, path: Path) -> None:
        self.cuda = cuda
        self.library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        self.status = 0

    @contextmanager
    def options(self, **values: object) -> Iterator[None]:
        """Set options of the emulator for a while."""
        now = self.cuda.options()
        before = {name: now[name] for name in values}
        for name, value in values.items():
            assert self.cuda.set_option(name, value) == 0, self.cuda.message()
        try:
            yield
        finally:
            for name, value in before.items():
                self.cuda.set_option(name, value)

    def run(self, name: str, *args: Any, checks: str = "all") -> tuple[list[NDArray[Any]], list[dict[str, Any]]]:
        """Run ``run_<name>`` under the checks; returns the arrays afterwards (empty when the launch failed) and the reports."""
        addresses: list[int] = []
        converted: list[Any] = []
        for arg in args:
            if isinstance(arg, np.ndarray):
                addresses.append(self.cuda.alloc(arg))
                converted.append(c_void_p(addresses[-1]))
            else:
                converted.append(c_int(arg) if isinstance(arg, int) else arg)
        with self.options(checks=checks):
            getattr(self.library, f"run_{name}")(*converted)
            launch = self.cuda.code("cudaGetLastError")
            self.status = launch or self.cuda.code("cudaDeviceSynchronize")
        arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
        results = []
        if self.status == 0:
            results = [self.cuda.read(a, v.size, v.dtype.type).reshape(v.shape) for a, v in zip(addresses, arrays, strict=True)]
            for address in addresses:
                self.cuda.call("cudaFree", address)
        else:
            self.cuda.recover(*addresses)
        return results, self.cuda.reports()


def kinds(reports: Sequence[dict[str, Any]]) -> set[str]:
    return {str(report["kind"]) for report in reports}
