"""Small C and C++ libraries of the project itself, compiled on first use and cached by the hash of everything that goes into them."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from device.interface import UnavailableError
from device.settings import read_settings
from device.toolchain import BuildError

# Sums must come out alike in every build, to the last bit: nothing is contracted.
_FLAGS = ("-O2", "-fPIC", "-shared", "-ffp-contract=off")


# The optional package that brings libraries compiled already, laid out as the cache is: scripts/pack_kernels.py writes it.
_PREBUILT_PACKAGE = "aicf_kernels"


@cache
def find_prebuilt_dir() -> Path | None:
    """Return the folder of libraries that are installed compiled, laid out as the cache is; None where none are installed."""
    spec = importlib.util.find_spec(_PREBUILT_PACKAGE)
    return Path(spec.submodule_search_locations[0]) if spec is not None and spec.submodule_search_locations else None


def find_library(
    name: str, source: Path, flags: Sequence[str], headers: Sequence[Path] = (), cache_dir: Path | None = None
) -> tuple[Path, bool]:
    """Return where the library that :func:`build_library` makes lies, and whether it is there: installed, or in the cache."""
    texts = [path.read_text() for path in (source, *headers)]
    digest = sha256("\0".join([*texts, name, *_FLAGS, *flags]).encode()).hexdigest()
    inside = Path("extensions", digest[:16], name)
    place = (cache_dir or read_settings().cache_dir) / inside
    prebuilt = find_prebuilt_dir()
    if not place.is_file() and prebuilt is not None and (prebuilt / inside).is_file():
        return prebuilt / inside, True
    return place, place.is_file()


def build_library(
    name: str,
    source: Path,
    flags: Sequence[str],
    headers: Sequence[Path] = (),
    cache_dir: Path | None = None,
    include_dirs: Sequence[Path] = (),
) -> Path:
    """Return the shared library ``name`` made of one C or C++ source: installed, from the cache, or built now.

    ``headers`` are hashed with the source, beside the flags; what lies in ``include_dirs`` is not, and goes with the name. Raises
    :class:`UnavailableError` where g++ is missing, and :class:`BuildError` with the compiler's text.
    """
    place, is_there = find_library(name, source, flags, headers, cache_dir)
    if is_there:
        return place
    compiler = shutil.which("g++")
    if compiler is None:
        raise UnavailableError(
            f"{source.name} is compiled once by g++, which is not on the PATH; install it (Debian, Ubuntu: apt-get install g++)"
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".building-") as folder:
            made = Path(folder) / place.name
            command = [compiler, *_FLAGS, *flags, *(f"-I{folder}" for folder in include_dirs), str(source), "-o", str(made), "-lm"]
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
            if done.returncode != 0:
                raise BuildError(f"{source} does not compile:\n{done.stderr.strip()}")
            made.replace(place)  # of processes that build at once the last one's stays; they are the same
    except OSError as error:
        raise BuildError(f"{place.parent}: {error.strerror or error}; free space there, or point AICF_CACHE_DIR elsewhere") from error
    return place
