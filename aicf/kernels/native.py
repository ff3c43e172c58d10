"""The framework's C++ extensions, compiled when they are first needed and kept by the hash of the source and of Python's ABI."""

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

CALLS = Path(__file__).resolve().parents[1] / "ops" / "calls" / "calls.cpp"


def build_extension(cache_dir: Path | None = None, source: Path = CALLS) -> Path:
    """Return the extension ``_aicf_<name of the source>``, from the cache or built now.

    Raises :class:`UnavailableError` where g++ or Python's headers are missing, and :class:`BuildError` with the compiler's text.
    """
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise UnavailableError(f"{include}/Python.h is missing; install Python's headers (Debian, Ubuntu: apt-get install python3-dev)")
    name = f"{_name(source)}{sysconfig.get_config_var('EXT_SUFFIX')}"
    flags = ("-std=c++20", "-fvisibility=hidden", f"-I{include}")
    return build_library(name, source, flags, sorted(source.parent.glob("*.h")), cache_dir)


@cache
def load_extension(source: Path = CALLS) -> ModuleType:
    """Return the extension, imported once a process; raises what :func:`build_extension` raises."""
    path, name = build_extension(source=source), _name(source)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BuildError(f"{path} is no Python extension")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def _name(source: Path) -> str:
    return f"_aicf_{source.stem}"
