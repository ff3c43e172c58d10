"""Choosing and loading the runtime, in processes of their own: a process can load one ``libcudart.so.13`` only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from device.loader import SONAME, find_cuda_library, find_emulator_library, find_gpus, find_loaded_library
from device.settings import read_settings

ROOT = Path(__file__).resolve().parents[2]


def run_python(code: str, **environ: str) -> str:
    """Run code in a fresh process at the project root and return what it printed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("AICF_")}
    library = os.environ.get("AICF_EMULATOR_LIBRARY")
    env |= {"AICF_EMULATOR_LIBRARY": library} if library else {}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env | environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


REPORT_ERROR = """
import device
try:
    {body}
except (device.UnavailableError, device.SettingError) as error:
    print(type(error).__name__, error)
"""


def fail_with(body: str, **environ: str) -> str:
    """Run a statement that must raise one of the package's errors; return the error's name and text."""
    text = run_python(REPORT_ERROR.format(body=body), **environ)
    assert text, "the statement raised nothing"
    return text


def test_importing_the_package_loads_no_runtime_and_no_cupy() -> None:
    code = "import sys, device; from device.loader import find_loaded_library; print(find_loaded_library(), 'cupy' in sys.modules)"
    assert run_python(code) == "None False"


def test_an_unknown_device_names_the_choices() -> None:
    assert fail_with("device.open_device('gpu')") == "SettingError device='gpu': must be one of auto, cuda, emulated"
    assert fail_with("device.open_device()", AICF_DEVICE="fast") == "SettingError AICF_DEVICE='fast': must be one of auto, cuda, emulated"


def test_a_missing_library_is_named() -> None:
    text = fail_with("device.open_device('emulated')", AICF_EMULATOR_LIBRARY="/nowhere/libcudart.so.13")
    assert text == "UnavailableError AICF_EMULATOR_LIBRARY=/nowhere/libcudart.so.13: no such file"


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / SONAME
    path.write_text("not a library")
    text = fail_with("device.open_device('emulated')", AICF_EMULATOR_LIBRARY=str(path))
    assert text.startswith(f"UnavailableError cannot load {path}")


def test_nvidias_runtime_is_not_taken_for_the_emulated_one() -> None:
    path = find_cuda_library()
    assert path is not None
    text = fail_with("device.open_device('emulated')", AICF_EMULATOR_LIBRARY=str(path))
    assert "is not the emulated device's library" in text


def test_a_library_that_was_built_for_another_cpu_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path, source = tmp_path / SONAME, tmp_path / "library.c"
    source.write_text('const char* aicfEmulatorVersion(void) { return "1 none"; }')
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    text = fail_with("device.open_device('emulated')", AICF_EMULATOR_LIBRARY=str(path))
    assert text.startswith(f"UnavailableError {path} was built on another machine") and "make env" in text


def test_a_runtime_that_came_first_is_refused_by_name() -> None:
    path = find_cuda_library()
    body = f"import ctypes; ctypes.CDLL({str(path)!r}); device.open_device('emulated')"
    text = fail_with(body)
    assert text.startswith(f"UnavailableError another {SONAME} is loaded already ({path})")
    assert "before anything that loads the CUDA runtime" in text


def test_the_emulated_runtime_bars_the_real_one() -> None:
    text = fail_with("device.open_device('emulated'); from device.loader import load_cuda; load_cuda()")
    assert "Use one device in a process" in text


def test_the_cuda_device_without_a_gpu_says_what_to_do() -> None:
    if find_gpus().count:
        pytest.skip("this machine has a GPU")
    text = fail_with("device.open_device('cuda')")
    assert text.startswith("UnavailableError no GPU: ")
    assert "AICF_DEVICE=emulated" in text


def test_auto_without_a_gpu_is_the_emulated_device() -> None:
    if find_gpus().count:
        pytest.skip("this machine has a GPU")
    assert run_python("import device; print(device.open_device().is_emulated, device.choose_device().name)") == "True emulated"


def test_a_process_has_one_device() -> None:
    code = "import device; a = device.open_device('emulated'); print(a is device.open_device(), a is device.open_device('emulated'))"
    assert run_python(code) == "True True"
    text = fail_with("device.open_device('emulated'); device.open_device('cuda')")
    assert "this process has opened the emulated device" in text


def test_loaded_libraries_are_found_by_name(tmp_path: Path) -> None:
    library = tmp_path / f"{SONAME}.0.96"
    library.touch()
    other = tmp_path / "libcudart.so.12"
    other.touch()
    maps = tmp_path / "maps"
    line = "7f00-7f01 r-xp 00000000 08:01 42   {}\n"
    maps.write_text("7ffd-7ffe rw-p 00000000 00:00 0   [stack]\n" + line.format(other) + "7f00-7f01 r-xp 00000000 00:00 0\n")
    assert find_loaded_library(maps) is None
    maps.write_text(maps.read_text() + line.format(library))
    assert find_loaded_library(maps) == library


def test_opening_the_emulated_device_loads_nothing_heavy() -> None:
    heavy = ("cupy", "pandas", "rich", "scipy", "typer")
    code = f"import sys, device; device.open_device('emulated'); print([name for name in {heavy} if name in sys.modules])"
    assert run_python(code) == "[]"


def test_the_emulator_library_is_one_this_process_may_use() -> None:
    assert find_emulator_library(read_settings()).name == SONAME


def test_nvidias_runtime_has_every_function_that_is_declared() -> None:
    assert run_python("import device.loader as l, device.cudart as c; print(c.Cudart(l.load_cuda()).is_emulated)") == "False"


def test_an_error_has_its_name_number_text_and_remedy() -> None:
    if find_gpus().count:
        pytest.skip("this machine has a GPU")
    code = """
import device, device.loader as l, device.cudart as c
runtime = c.Cudart(l.load_cuda())
try:
    runtime.create_handle("cudaMalloc", 100)
except device.DeviceError as error:
    print(error.code, error)
"""
    error, remedy = run_python(code).splitlines()
    assert error.startswith("35 cudaMalloc: cudaErrorInsufficientDriver (35), ")
    assert "AICF_DEVICE=emulated" in remedy
