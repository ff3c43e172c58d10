"""Running compilers: as children that an interrupt stops, on sources that stay unchanged, with errors that show the source line."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from device.toolchain import make_environment
from harness.build.store import full_disk_as_error, hash_file
from harness.errors import BuildError

_MAX_ATTEMPTS = 3
_ERROR_LINE = re.compile(r"^(?P<file>[^\s:(][^:(]*)[(:](?P<line>\d+)\)?(?::\d+)?:? *: *(?:fatal )?error", re.MULTILINE)


class Compiler:
    """Runs compilers as child processes of their own group, so that an interrupt ends all of them.

    With a ``niceness`` they give way to other processes by so much.
    """

    def __init__(self, niceness: int = 0) -> None:
        self._niceness = niceness
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, command: Sequence[str], folder: Path) -> tuple[int, str]:
        """Return exit status and combined output of a command run in ``folder``."""
        with self._lock:
            if self._stopped:
                raise BuildError("interrupted")
            process = subprocess.Popen(
                list(command),
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",  # compilers quote source lines, whatever their encoding
                start_new_session=True,
                env=make_environment(folder),
            )
            self._running.add(process)
        if self._niceness:
            # What it starts inherits it. One that has ended already needs none.
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, min(19, os.getpriority(os.PRIO_PROCESS, 0) + self._niceness))
        try:
            output, _ = process.communicate()
        except BaseException:  # an interrupt reaches only this process: the child is in a session of its own
            _kill_group(process)
            with process:  # closes its pipe and waits for it
                raise
        finally:
            with self._lock:
                self._running.discard(process)
        return process.returncode, output

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more may be started."""
        return self._stopped

    def stop(self) -> None:
        """Kill what runs and start nothing more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill_group(process)


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def compile_steadily(
    compiler: Compiler, commands: Sequence[Sequence[str]], scratch: Path, roots: Sequence[Path]
) -> tuple[int, str, dict[str, str]]:
    """Run commands whose first writes ``deps.d``; return status, output and the hashes of the files below ``roots`` that were read.

    A file that is edited while the compiler runs would be hashed as it is now and compiled as it was: such a result is made again.
    """
    started = scratch / "started"
    for _ in range(_MAX_ATTEMPTS):
        with full_disk_as_error(scratch.parents[1]):
            started.touch()
        log = ""
        for command in commands:
            status, output = compiler.run(command, scratch)
            log += output
            if status != 0:
                return status, log, {}
        files = hash_dependencies(scratch / "deps.d", roots)
        if not any(_is_changed_since(Path(path), started) for path in files):
            return 0, log, files
    return 1, "the sources changed each time while they were compiled; build again when they are still", {}


def _is_changed_since(path: Path, marker: Path) -> bool:
    # The change time: unlike the modification time, no tool sets it back.
    return not path.exists() or path.stat().st_ctime_ns > marker.stat().st_ctime_ns


def hash_dependencies(depfile: Path, roots: Sequence[Path]) -> dict[str, str]:
    """Return the hash of each file below ``roots`` that a make-style dependency file names.

    The compilers' own headers are left out: they are in the compilers' identity.
    """
    text = depfile.read_text().replace("\\\n", " ").split(":", 1)[1]
    names = (name.replace("\\ ", " ") for name in re.findall(r"(?:\\ |\S)+", text))
    # Links are not followed: a folder linked into a root belongs to it.
    paths = {Path(os.path.abspath(depfile.parent / name)) for name in names}  # noqa: PTH100
    return {str(p): hash_file(p) for p in sorted(paths) if any(p.is_relative_to(root.absolute()) for root in roots)}


def describe_failure(log: str, cache_root: Path) -> str:
    """Return the compiler's text with the offending source line under the first error."""
    if "No space left on device" in log:
        raise BuildError(f"the disk that holds the cache {cache_root} is full; free space there, or point AICF_CACHE_DIR to another disk")
    match = _ERROR_LINE.search(log)
    if match is None:
        return log.strip()
    path, number = Path(match["file"]), int(match["line"])
    try:
        line = path.read_text(encoding="utf-8", errors="replace").splitlines()[number - 1]
    except (OSError, IndexError):
        return log.strip()
    return f"{log.strip()}\n\n{path.name}:{number}: {line.strip()}"
