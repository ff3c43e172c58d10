"""Which AICF this is: release, commit, compilers, the emulated device's build, and the formats that it reads and writes."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import subprocess
from hashlib import sha256
from pathlib import Path

from contract.layout import SCHEMA_VERSION
from device import UnavailableError
from device.loader import find_emulator_library
from device.settings import read_settings
from device.toolchain import find_toolchain

# Beside this module in a wheel, and nowhere else.
_BUILT = Path(__file__).with_name("built.json")


def describe_version() -> str:
    """Return the version in words, a line per part; what is not on this machine is said in its line."""
    lines = [
        f"aicf {importlib.metadata.version('aicf')}, {find_commit()}",
        f"toolchain: {_describe_toolchain()}",
        f"emulated device: {_describe_emulator()}",
        f"frozen set: format {SCHEMA_VERSION}",
    ]
    return "\n".join(lines)


def find_commit() -> str:
    """Return the commit that this code is of: what the wheel was built from, or what the checkout has now."""
    if _BUILT.is_file():
        built = json.loads(_BUILT.read_text())
        return f"{'commit ' + built['commit'] if built['commit'] else 'of no known commit'}, built on {built['date']}"
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "of no known commit"
    return f"commit {done.stdout.strip()}, in a checkout" if done.returncode == 0 else "of no known commit"


def _describe_toolchain() -> str:
    try:
        return find_toolchain().identity
    except UnavailableError as error:
        return f"none ({error})"


def _describe_emulator() -> str:
    try:
        path = find_emulator_library(read_settings())
        library = ctypes.CDLL(str(path))
        library.aicfEmulatorVersion.restype = ctypes.c_char_p
        return f"{library.aicfEmulatorVersion().decode()}, sha256 {sha256(path.read_bytes()).hexdigest()[:16]}, {path}"
    except (UnavailableError, OSError, AttributeError) as error:
        return f"none ({error})"
