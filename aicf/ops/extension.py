"""The C++ extension of the fast path (``calls/``), compiled on first use and cached by content."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType

from device import UnavailableError
from device.native import build_library, find_library
from device.toolchain import BuildError

_NAME = "_aicf_calls"
_FLAGS = ("-std=c++20", "-fvisibility=hidden")
_SOURCE = Path(__file__).with_name("calls") / "calls.cpp"


def build_extension(cache_dir: Path | None = None) -> Path:
    """Return the extension: installed, from the cache, or built now.

    Raises :class:`UnavailableError` where g++ or Python's headers are missing, and :class:`BuildError` with the compiler's text.
    """
    # The file's name says which Python its ABI is of.
    name, headers = f"{_NAME}{sysconfig.get_config_var('EXT_SUFFIX')}", sorted(_SOURCE.parent.glob("*.h"))
    path, is_there = find_library(name, _SOURCE, _FLAGS, headers, cache_dir)
    if is_there:
        return path
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise UnavailableError(f"{include}/Python.h is missing; install Python's headers (Debian, Ubuntu: apt-get install python3-dev)")
    return build_library(name, _SOURCE, _FLAGS, headers, cache_dir, [include])


@cache
def load_extension() -> ModuleType:
    """Return the extension, imported once a process; raises what :func:`build_extension` raises."""
    path = build_extension()
    spec = importlib.util.spec_from_file_location(_NAME, path)
    if spec is None or spec.loader is None:
        raise BuildError(f"{path} is not a Python extension")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module
    return module
