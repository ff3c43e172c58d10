"""NVIDIA's tools as programs: found once, run with a time limit, and remembered if they refuse, so that nobody waits for them again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from device.interface import UnavailableError
from device.settings import find_project_root
from harness.errors import ToolError

NCU, NSYS, SANITIZER = "ncu", "nsys", "compute-sanitizer"
REMEDIES = {
    NCU: "install NVIDIA Nsight Compute, which the CUDA toolkit brings, and put ncu on the PATH",
    NSYS: "install NVIDIA Nsight Systems and put nsys on the PATH",
    SANITIZER: "install the CUDA toolkit's compute-sanitizer and put it on the PATH",
}
# Where an installer leaves them without touching the PATH.
_FOLDERS = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute", "/opt/nvidia/nsight-systems/bin")


@dataclass(frozen=True)
class Done:
    """A program that ended: its status and all that it printed."""

    status: int
    text: str


@dataclass
class Tools:
    """What is there. ``refusals`` says by tool why it cannot be used, once that is known: it is not tried again."""

    timeout_s: float = 300.0
    refusals: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> str:
        """Return a tool's path. Raises :class:`UnavailableError` where it is missing, or refused before."""
        if name in self.refusals:
            raise UnavailableError(self.refusals[name])
        found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(_FOLDERS))
        if found is None:
            self.refuse(name, f"{name} is not installed; {REMEDIES[name]}")
        assert found is not None
        return found

    def refuse(self, name: str, reason: str) -> None:
        """Remember that a tool cannot be used, and raise :class:`UnavailableError`."""
        self.refusals[name] = reason
        raise UnavailableError(reason)

    def run(self, command: Sequence[str | Path]) -> Done:
        """Run a program to its end. Raises :class:`ToolError` where it takes too long; what it started is ended with it."""
        words = [str(word) for word in command]
        root = str(find_project_root())
        environ = dict(os.environ, PYTHONPATH=os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])]), PYTHONUNBUFFERED="1")
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environ, start_new_session=True
        ) as process:
            try:
                text, _ = process.communicate(timeout=self.timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise ToolError(f"{Path(words[0]).name} did not end within {self.timeout_s:.0f} s and was stopped") from None
        return Done(process.returncode, text)


def shorten(text: str, num_lines: int = 12) -> str:
    """Return the last lines of what a program printed."""
    return "\n".join(text.strip().splitlines()[-num_lines:])
