"""The C++ extension of the fast path (``calls/``), compiled on first use and cached by content."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType

from device import UnavailableError
from device.native import build_library
from device.toolchain import BuildError

_NAME = "_aicf_calls"
_SOURCE = Path(__file__).with_name("calls") / "calls.cpp"


def build_extension(cache_dir: Path | None = None) -> Path:
    """Return the extension, from the cache or built now.

    Raises :class:`UnavailableError` where g++ or Python's headers are missing, and :class:`BuildError` with the compiler's text.
    """
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise UnavailableError(f"{include}/Python.h is missing; install Python's headers (Debian, Ubuntu: apt-get install python3-dev)")
    flags = ("-std=c++20", "-fvisibility=hidden", f"-I{include}")
    headers = sorted(_SOURCE.parent.glob("*.h"))
    return build_library(f"{_NAME}{sysconfig.get_config_var('EXT_SUFFIX')}", _SOURCE, flags, headers, cache_dir)


@cache
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
