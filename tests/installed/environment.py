"""A fresh virtual environment, with a home of its own, to install the package in."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# This machine's level alone, and what is compiled already: another level and a release's build folder are the build's own business.
NATIVE = ("-C", "cmake.define.AICF_ENGINE_LEVELS=native")


@dataclass(frozen=True)
class Environment:
    """A fresh virtual environment with a home of its own."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
        return cls(folder)

    def run(self, *words: object, cwd: Path, code: int = 0, path: str | None = None) -> str:
        """Run a command and return what it says; ``path`` is where programs are looked for behind the environment's own."""
        ours = ("AICF_", "PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS", "op")
        environ = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        environ |= {
            "PATH": f"{self.folder / 'bin'}:{environ['PATH'] if path is None else path}",
            "HOME": str(self.folder.parent),
            "AICF_DEVICE": "emulated",
        }
        done = subprocess.run([str(w) for w in words], cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == code, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def install(self, *words: object, cwd: Path) -> None:
        self.run("pip", "install", "--quiet", "--no-compile", *words, cwd=cwd)
