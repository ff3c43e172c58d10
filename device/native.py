"""Small C and C++ libraries of the project itself, compiled on first use and cached by the hash of everything that goes into them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from device.interface import UnavailableError
from device.settings import read_settings
from device.toolchain import BuildError

# Sums must come out alike in every build, to the last bit: nothing is contracted.
_FLAGS = ("-O2", "-fPIC", "-shared", "-ffp-contract=off")


def build_library(name: str, source: Path, flags: Sequence[str], headers: Sequence[Path] = (), cache_dir: Path | None = None) -> Path:
    """Return the shared library ``name`` made of one C or C++ source, from the cache or built now.

    ``headers`` are hashed with the source, beside the flags. Raises :class:`UnavailableError` where g++ is missing, and
    :class:`BuildError` with the compiler's text.
    """
    texts = [path.read_text() for path in (source, *headers)]
    words = [*_FLAGS, *flags]
    digest = sha256("\0".join([*texts, name, *words]).encode()).hexdigest()
    place = (cache_dir or read_settings().cache_dir) / "extensions" / digest[:16] / name
    if place.is_file():
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
            command = [compiler, *words, str(source), "-o", str(made), "-lm"]
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
            if done.returncode != 0:
                raise BuildError(f"{source} does not compile:\n{done.stderr.strip()}")
            made.replace(place)  # of processes that build at once the last one's stays; they are the same
    except OSError as error:
        raise BuildError(f"{place.parent}: {error.strerror or error}; free space there, or point AICF_CACHE_DIR elsewhere") from error
    return place
