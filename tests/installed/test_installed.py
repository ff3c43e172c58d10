"""The package as users have it: a wheel and an sdist, installed from the registry that pip is configured for, outside of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# This machine's level alone, and what is compiled already: another level and a release's build folder are the build's own business.
NATIVE = ("-C", "cmake.define.AICF_ENGINE_LEVELS=native")
VARIANT = "scalar/threads128"
CALL = """
import numpy as np
import aicf.ops
x = np.arange(1000, dtype=np.float32) - 500
got = aicf.ops.scale_shift(x, np.full(1000, 2, np.float32), np.ones(1000, np.float32))
np.testing.assert_array_equal(got, np.maximum(2 * x + 1, 0))
np.testing.assert_allclose(aicf.ops.softmax(np.ones((2, 4), np.float32)), 0.25)
"""


@dataclass(frozen=True)
class Environment:
    """A fresh virtual environment with a home of its own."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
        return cls(folder)

    def run(self, *words: object, cwd: Path, code: int = 0) -> str:
        ours = ("AICF_", "PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS", "op")
        environ = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        environ |= {"PATH": f"{self.folder / 'bin'}:{environ['PATH']}", "HOME": str(self.folder.parent), "AICF_DEVICE": "emulated"}
        done = subprocess.run([str(w) for w in words], cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == code, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def install(self, *words: object, cwd: Path) -> None:
        self.run("pip", "install", "--quiet", "--no-compile", *words, cwd=cwd)


@pytest.mark.slow
def test_a_project_of_ones_own_from_the_wheel_to_a_library(tmp_path: Path) -> None:
    fresh, project = Environment.make(tmp_path / "venv"), tmp_path / "project"
    project.mkdir()
    fresh.run("pip", "wheel", "--quiet", "--no-deps", *NATIVE, "-C", "build-dir=build/{wheel_tag}", "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("aicf-*.whl")
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"aicf", "aicf_emulator"}
    fresh.install(f"{wheel}[workbench]", cwd=tmp_path)

    told = fresh.run("aicf", "--version", cwd=tmp_path)
    assert "toolchain: nvcc 13.0" in told and "x86-64-v" in told and "frozen set: format 1" in told
    assert "run `aicf init`" in fresh.run("aicf", "bench", "softmax", cwd=project, code=2)

    fresh.run("aicf", "init", cwd=project)
    fresh.run("make", "op=my_sum", "new", "args=--kind reduction", cwd=project)
    assert {"scale_shift", "my_sum"} <= set(fresh.run("make", "list", cwd=project).split())
    assert "passed" in fresh.run("aicf", "verify", "scale_shift", "--variant", VARIANT, cwd=project)
    for words in (("init", "-q"), ("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")):
        fresh.run("git", *words, cwd=project)
    assert "1 of 1 variants verified" in fresh.run("make", "op=scale_shift", "bench", f"variant={VARIANT}", cwd=project)
    assert "1 of 1 buckets changed" in fresh.run("aicf", "promote", "scale_shift", "--fallback", "--variant", VARIANT, cwd=project)
    assert (project / "frozen" / "scale_shift" / "index.jsonl").is_file()

    fresh.run("python", "-c", CALL, cwd=project)
    fresh.run("aicf", "deploy", "scale_shift", cwd=project)
    assert "aicf_scale_shift(" in (project / "build" / "prefix" / "include" / "aicf_kernels.h").read_text()
    assert list((project / "build" / "prefix").glob("lib*/libaicf_kernels.a"))


@pytest.mark.slow
def test_an_sdist_installs_and_says_what_a_call_gets(tmp_path: Path) -> None:
    fresh = Environment.make(tmp_path / "venv")
    with (ROOT / "pyproject.toml").open("rb") as file:
        fresh.install(*tomllib.load(file)["build-system"]["requires"], cwd=tmp_path)
    fresh.run("python", "-c", f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})", cwd=ROOT)
    (sdist,) = tmp_path.glob("aicf-*.tar.gz")
    fresh.install(*NATIVE, sdist, cwd=tmp_path)
    told = fresh.run("aicf", "explain", "softmax", "rows=4096", "columns=1000", "--arch", "sm_90a", cwd=tmp_path)
    assert "chosen:" in told
    assert "pip install 'aicf[workbench]'" in fresh.run("aicf", "init", cwd=tmp_path, code=3)
