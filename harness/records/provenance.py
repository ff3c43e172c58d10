"""Where and from what a run was made: commit, toolchain, device, host."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from device.interface import Device
from device.loader import find_loaded_library
from harness.records.facts import EnvironmentFacts

_CHANGED = " with changes"


@dataclass(frozen=True)
class Commit:
    """The checkout's commit ("" outside a repository), and whether files differ from it."""

    sha: str
    dirty: bool

    @property
    def name(self) -> str:
        """The commit, with ``-dirty`` behind it where files differ."""
        return self.sha + ("-dirty" if self.dirty else "")

    def describe(self) -> str:
        """Return the commit in words, as pages and published files have it."""
        return f"commit {self.sha[:12] or 'unknown'}{_CHANGED if self.dirty else ''}"

    @classmethod
    def read(cls, text: str) -> Commit:
        """Return the commit that :meth:`describe` wrote, as far as it is written."""
        return cls(text.removeprefix("commit ").removesuffix(_CHANGED), text.endswith(_CHANGED))


def find_commit(folder: Path) -> Commit:
    """Ask git; a folder outside a repository, or a machine without git, gives no commit and counts as dirty."""
    sha = _run_git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    changes = _run_git(folder, "status", "--porcelain")
    return Commit((sha or "").strip(), changes is None or bool(changes.strip()))


def is_ancestor(folder: Path, sha: str) -> bool:
    """Return whether the checkout's commit is this one or follows it; a commit that git does not know is none of its ancestors."""
    return bool(sha) and _run_git(folder, "merge-base", "--is-ancestor", sha, "HEAD") is not None


def _run_git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def describe_environment(device: Device, toolchain: str, target: str) -> EnvironmentFacts:
    """Return the facts that results depend on beside sources and flags."""
    p = device.properties
    return EnvironmentFacts(
        device_kind=find_device_kind(device),
        device_name=p.name,
        device_uuid=p.uuid,
        driver_version=p.driver_version,
        runtime_version=p.runtime_version,
        runtime_hash=_hash_runtime(),
        toolchain=toolchain,
        target=target,
        host=f"{platform.system()} {platform.release()} {platform.machine()}; Python {platform.python_version()}; NumPy {np.__version__}",
    )


def _hash_runtime() -> str:
    library = find_loaded_library()
    return hashlib.sha256(library.read_bytes()).hexdigest() if library is not None else ""


def find_device_kind(device: Device) -> str:
    """Return ``emulated`` or ``cuda``."""
    return "emulated" if device.is_emulated else "cuda"
