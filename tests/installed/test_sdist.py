"""The package as users have it without a wheel for their machine: an sdist, installed outside of the checkout."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.installed.environment import NATIVE, ROOT, Environment

# That all sources are there and compile is all that is asked of the emulated device here; a release build of them is the wheel's test's.
DEBUG = ("-C", "cmake.build-type=Debug", "-C", "cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O0")


@pytest.mark.slow
def test_an_sdist_installs_and_says_what_a_call_gets(tmp_path: Path) -> None:
    fresh = Environment.make(tmp_path / "venv")
    with (ROOT / "pyproject.toml").open("rb") as file:
        fresh.install(*tomllib.load(file)["build-system"]["requires"], cwd=tmp_path)
    fresh.run("python", "-c", f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})", cwd=ROOT)
    (sdist,) = tmp_path.glob("aicf-*.tar.gz")
    fresh.install(*NATIVE, *DEBUG, sdist, cwd=tmp_path)
    told = fresh.run("aicf", "explain", "softmax", "rows=4096", "columns=1000", "--arch", "sm_90a", cwd=tmp_path)
    assert "chosen:" in told
    assert "pip install 'aicf[workbench]'" in fresh.run("aicf", "init", cwd=tmp_path, code=3)
