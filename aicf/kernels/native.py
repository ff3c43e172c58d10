"""The framework's C++ extensions, compiled when they are first needed and kept by the hash of the source and of Python's ABI."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from device import UnavailableError
from device.settings import read_settings
from device.toolchain import BuildError

CALLS = Path(__file__).resolve().parents[1] / "ops" / "calls" / "calls.cpp"
# Sums must come out as in the generated C dispatcher, to the last bit: nothing is contracted.
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")


def build_extension(cache_dir: Path | None = None, source: Path = CALLS) -> Path:
    """Return the extension ``_aicf_<name of the source>``, from the cache or built now.

    Raises :class:`UnavailableError` where g++ or Python's headers are missing, and :class:`BuildError` with the compiler's text.
    """
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    sources = [path.read_text() for path in (source, *sorted(source.parent.glob("*.h")))]
    digest = sha256("\0".join([*sources, suffix, *_FLAGS]).encode()).hexdigest()
    place = (cache_dir or read_settings().cache_dir) / "extensions" / digest[:16] / f"{_name(source)}{suffix}"
    if place.is_file():
        return place
    compiler, include = shutil.which("g++"), Path(sysconfig.get_path("include"))
    if compiler is None:
        raise UnavailableError(
            "the framework's extensions need g++ once, which is not on the PATH; install it (Debian, Ubuntu: apt-get install g++)"
        )
    if not (include / "Python.h").is_file():
        raise UnavailableError(f"{include}/Python.h is missing; install Python's headers (Debian, Ubuntu: apt-get install python3-dev)")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".building-") as folder:
            made = Path(folder) / place.name
            command = [compiler, *_FLAGS, f"-I{include}", str(source), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
            if done.returncode != 0:
                raise BuildError(f"{source} does not compile:\n{done.stderr.strip()}")
            made.replace(place)  # of processes that build at once the last one's stays; they are the same
    except OSError as error:
        raise BuildError(f"{place.parent}: {error.strerror or error}; free space there, or point AICF_CACHE_DIR elsewhere") from error
    return place


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
