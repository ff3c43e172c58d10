"""Programs of these tests: compiled with the CUDA runtime shared, and run on the emulated device in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device.programs.process import make_environment
from device.toolchain import find_toolchain


@dataclass(frozen=True)
class Outcome:
    """How a run ended: exit code (minus the signal's number where one ended it), output, and the emulator's findings."""

    exit_code: int
    output: str
    errors: str
    findings: list[dict[str, Any]]

    @property
    def passed(self) -> bool:
        return self.exit_code == 0 and self.output.endswith("PASSED\n")

    @property
    def kinds(self) -> list[str]:
        return [finding["kind"] for finding in self.findings]


def build_program(source: Path, folder: Path, options: Sequence[str] = ()) -> Path:
    """Compile a ``.cu`` file to a program that holds PTX only; returns its path."""
    toolchain = find_toolchain()
    (folder / "libcudart.so").symlink_to(toolchain.cudart_library)  # -cudart shared links with -lcudart; the wheels have no such name
    path = folder / source.stem
    flags = ["-std=c++20", "-O3", "-lineinfo", "-cudart", "shared", "-cudadevrt", "none", f"-L{folder}"]
    flags += ["-gencode", "arch=compute_90a,code=compute_90a"]
    command = [str(toolchain.nvcc), *flags, *options, str(source), "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


def run_case(program: Path, library: Path, *arguments: str, **options: object) -> Outcome:
    """Run a program on the emulated device with all checks and the given options of the emulator."""
    report = program.with_suffix(".json")
    report.unlink(missing_ok=True)
    settings = {"checks": "all", "print_reports": 1, "summary": 2, "summary_file": report, **options}
    environment = make_environment(os.environ, library, {name: str(value) for name, value in settings.items()})
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, env=environment, timeout=120, check=False)
    findings = json.loads(report.read_text())["findings"] if report.is_file() else []
    return Outcome(done.returncode, done.stdout, done.stderr, findings)
