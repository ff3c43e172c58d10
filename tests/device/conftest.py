"""The test kernels, compiled once per test run."""

from __future__ import annotations

import ctypes
import subprocess
from ctypes import c_float, c_int, c_size_t, c_void_p
from pathlib import Path

import pytest

from device import Device
from device.toolchain import find_toolchain

SOURCE = Path(__file__).with_name("kernels.cu")


class Kernels:
    """The functions of ``kernels.cu``; each must return ``cudaSuccess`` unless called through :meth:`attempt`."""

    _PROTOTYPES = (
        ("launch_fill", (c_void_p, c_float, c_int, c_void_p)),
        ("launch_scale", (c_void_p, c_float, c_int, c_void_p)),
        ("launch_reverse", (c_void_p, c_int, c_int, c_void_p)),
        ("launch_too_wide", (c_void_p, c_void_p)),
        ("queue_zero_fill", (c_void_p, c_size_t, c_void_p)),
        ("synchronize_device", ()),
    )

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        for name, argtypes in self._PROTOTYPES:
            getattr(self._library, name).argtypes = argtypes

    def attempt(self, name: str, *args: float) -> int:
        """Call a function and return its ``cudaError_t``."""
        code: int = getattr(self._library, name)(*args)
        return code

    def call(self, name: str, *args: float) -> None:
        assert self.attempt(name, *args) == 0


@pytest.fixture(scope="session")
def kernel_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "kernels.so"
    toolchain = find_toolchain()
    library_folder = path.parent / "lib"  # -cudart shared links with -lcudart, and the wheels have no libcudart.so
    library_folder.mkdir()
    (library_folder / "libcudart.so").symlink_to(toolchain.cudart_library)
    command = [
        str(toolchain.nvcc),
        "-shared",
        "-Xcompiler",
        "-fPIC",
        "-std=c++20",
        "-O3",
        "-lineinfo",
        "-cudart",
        "shared",
        "--compress-mode=none",
    ]
    command += [
        "-gencode",
        "arch=compute_90a,code=[sm_90a,compute_90a]",
        f"-L{library_folder}",
        f"-L{toolchain.cudart_library.parent}",
        str(SOURCE),
        "-o",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def kernels(device: Device, kernel_library: Path) -> Kernels:
    """The kernels, bound to the runtime of ``device``."""
    return Kernels(kernel_library)
