"""Fixtures of the emulator's tests: the library, built if need be, and the runtime under test."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from device import UnavailableError, read_settings
from device.loader import find_cuda_library, find_emulator_library
from tests.sharing import make_once

from .cuda_runtime import COUNTS, PTX, ROOT, Runtime, run_isolated
from .kernels import SOURCE, Kernels, build


def _tool(name: str) -> str:
    beside_python = Path(sys.executable).with_name(name)
    found = str(beside_python) if beside_python.is_file() else shutil.which(name)
    assert found is not None, f"{name} is needed to build the emulator: pip install {name}"
    return found


@pytest.fixture(scope="session")
def emulator_library() -> Path:
    """The emulator's libcudart.so.13 that the device backend would take too; built here where there is none yet."""
    build = ROOT / "build" / "emulator"
    build.mkdir(parents=True, exist_ok=True)
    with (build / "tests.lock").open("w") as lock:  # other processes of the tests may want it too
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return find_emulator_library(read_settings())
        except UnavailableError:
            _build_emulator(build)
    return build / "libcudart.so.13"


def _build_emulator(build: Path) -> None:
    ninja = _tool("ninja")
    configure = [_tool("cmake"), "-S", str(ROOT / "device" / "emulator"), "-B", str(build), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    for command in ([*configure, "-DCMAKE_BUILD_TYPE=Release"], [ninja, "-C", str(build)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.fixture(scope="session")
def runtime_library(request: pytest.FixtureRequest) -> Path:
    """The library under test: the emulator's, or NVIDIA's where AICF_DEVICE=cuda asks for the GPU."""
    if os.environ.get("AICF_DEVICE") == "cuda":
        path = find_cuda_library()
        assert path is not None, "AICF_DEVICE=cuda, and there is no libcudart.so.13 of NVIDIA's"
        return path
    library: Path = request.getfixturevalue("emulator_library")
    return library


@pytest.fixture(scope="session")
def _loaded_runtime(runtime_library: Path) -> Runtime:
    return Runtime(runtime_library)


@pytest.fixture(scope="session")
def _first_options(_loaded_runtime: Runtime) -> dict[str, str]:
    """The emulator's options as a process finds them that has set none; tests of other folders may have set some in this one."""
    if not _loaded_runtime.is_emulated:
        return {}
    done = run_isolated(_loaded_runtime.path, "import json\nprint(json.dumps(cuda.options()))")
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _restore(runtime: Runtime, options: dict[str, str]) -> None:
    """Forget errors and reports, and set every option back to what `options` says."""
    runtime.code("cudaGetLastError")
    if runtime.is_emulated:
        now = runtime.options()
        # What is counted is nobody's to set.
        for name in (n for n, value in options.items() if now[n] != value and n not in COUNTS):
            assert runtime.set_option(name, options[name]) == 0, runtime.message()
        runtime.reports()


@pytest.fixture
def cuda(_loaded_runtime: Runtime, _first_options: dict[str, str]) -> Iterator[Runtime]:
    """The runtime, with no error and no option left over from the test before, and none left for the tests of other folders."""
    _restore(_loaded_runtime, _first_options)
    yield _loaded_runtime
    _restore(_loaded_runtime, _first_options)


@pytest.fixture
def emulator(cuda: Runtime) -> Runtime:
    """The runtime, for tests of what the emulator alone has."""
    if not cuda.is_emulated:
        pytest.skip("this is about the emulator's own reports and options, and AICF_DEVICE=cuda chose the GPU")
    return cuda


@pytest.fixture(scope="session")
def ptx_library(_loaded_runtime: Runtime) -> int:
    """The kernels of :data:`PTX`, loaded."""
    return _loaded_runtime.load(PTX)


@pytest.fixture(scope="session")
def kernels_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``kernels.cu``, which several files are about, compiled once."""
    return make_once(tmp_path_factory, "kernels", lambda folder: build(SOURCE, folder)) / f"{SOURCE.stem}.so"


@pytest.fixture
def kernels(emulator: Runtime, kernels_library: Path) -> Kernels:
    """The kernels of ``kernels.cu``; files about others have a fixture of this name of their own."""
    return Kernels(emulator, kernels_library)


@pytest.fixture
def word(cuda: Runtime) -> Iterator[int]:
    """Address of one 32-bit word of device memory, which is 0."""
    address = cuda.alloc(np.zeros(1, np.uint32))
    yield address
    cuda.code("cudaFree", address)
