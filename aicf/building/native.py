"""The framework's one C++ extension, compiled when the first call needs it and kept by the hash of its source and of Python's ABI."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from device import UnavailableError
from device.settings import read_settings
from device.toolchain import BuildError

_SOURCE = Path(__file__).resolve().parents[1] / "ops" / "calls.cpp"
_NAME = "_aicf_calls"
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")


def build_extension(cache_dir: Path | None = None) -> Path:
    """Return the extension, from the cache or built now.

    Raises :class:`UnavailableError` where g++ or Python's headers are missing, and :class:`BuildError` with the compiler's text.
    """
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    digest = sha256("\0".join([_SOURCE.read_text(), suffix, *_FLAGS]).encode()).hexdigest()
    place = (cache_dir or read_settings().cache_dir) / "extensions" / digest[:16] / f"{_NAME}{suffix}"
    if place.is_file():
        return place
    compiler, include = shutil.which("g++"), Path(sysconfig.get_path("include"))
    if compiler is None:
        raise UnavailableError(
            "calls from Python need g++ once, which is not on the PATH; install it (Debian, Ubuntu: apt-get install g++)"
        )
    if not (include / "Python.h").is_file():
        raise UnavailableError(f"{include}/Python.h is missing; install Python's headers (Debian, Ubuntu: apt-get install python3-dev)")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".building-") as folder:
            made = Path(folder) / place.name
            command = [compiler, *_FLAGS, f"-I{include}", str(_SOURCE), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
            if done.returncode != 0:
                raise BuildError(f"{_SOURCE} does not compile:\n{done.stderr.strip()}")
            made.replace(place)  # of processes that build at once the last one's stays; they are the same
    except OSError as error:
        raise BuildError(f"{place.parent}: {error.strerror or error}; free space there, or point AICF_CACHE_DIR elsewhere") from error
    return place


@lru_cache(maxsize=1)
def load_extension() -> ModuleType:
    """Return the extension, imported once a process; raises what :func:`build_extension` raises."""
    path = build_extension()
    spec = importlib.util.spec_from_file_location(_NAME, path)
    if spec is None or spec.loader is None:
        raise BuildError(f"{path} is no Python extension")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module
    return module
