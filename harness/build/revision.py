"""An op as it was at another revision of the project: its sources, exported once into the cache."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

from device.settings import find_project_root, read_settings
from harness.build.store import full_disk_as_error
from harness.discover import LoadedOp, find_op
from harness.spec import SpecError


def find_op_at(name: str, revision: str, root: Path | None = None, cache_dir: Path | None = None) -> tuple[LoadedOp, str]:
    """Return the op as it was at a revision that git knows, and the revision's commit.

    Only ``ops/`` is taken from there: it is built and measured by the harness as it is now. Raises :class:`SpecError` where git does not
    know the revision, or where the op was not there.
    """
    project = root or find_project_root()
    commit = _run_git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    if not commit:
        raise SpecError(f"git knows no revision {revision!r} in {project}: give a commit, branch or tag")
    cache = cache_dir or read_settings().cache_dir
    folder = cache / "revisions" / commit
    if not folder.is_dir():
        archive = _run_git(project, "archive", "--format=tar", commit, "ops")
        if not archive:
            raise SpecError(f"revision {revision} has no folder ops")
        with full_disk_as_error(cache):
            _unpack(archive, folder)
    return find_op(name, folder / "ops"), commit


def _unpack(archive: bytes, folder: Path) -> None:
    """Make ``folder`` appear by one rename, whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            # Python 3.11 has filters from 3.11.4 on; git's own archive of a tree holds nothing that one would refuse.
            tar.extractall(made, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was first
                raise


def _run_git(folder: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, check=False, timeout=120, env=os.environ | {"LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecError(f"git cannot be run: {error}; a comparison with another revision needs it") from error
    return done.stdout if done.returncode == 0 else b""
