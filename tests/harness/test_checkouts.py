"""Two checkouts on one machine: the environment of one is not used in the other by mistake."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from device.settings import find_project_root


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A second checkout, as far as it matters: its code, its ops."""
    root = find_project_root()
    for name in ("harness", "device", "aicf", "ops"):
        (tmp_path / "clone" / name).mkdir(parents=True)
    (tmp_path / "clone" / "harness" / "__main__.py").write_text("print('the code of the clone')\n")
    (tmp_path / "clone" / "conftest.py").write_text((root / "conftest.py").read_text())
    (tmp_path / "clone" / "pyproject.toml").touch()
    return tmp_path / "clone"


@pytest.mark.skipif(
    find_spec("aicf_emulator") is None, reason="the project is not installed here: a checkout is imported from its own folder"
)
@pytest.mark.parametrize("words", [("harness", "list"), ("aicf", "explain", "softmax"), ("pytest", "-q")])
def test_an_environment_refuses_to_run_in_another_checkout(clone: Path, words: tuple[str, ...]) -> None:
    own = find_project_root()
    for folder in (clone, clone / "ops"):
        done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode in (2, 4), done.stdout + done.stderr  # 4: pytest's own code for wrong use
        assert f"the working directory is in {clone}" in done.stderr and f"the project of {own}" in done.stderr
        assert f"{clone}/.venv/bin/python, which `make env` makes there" in done.stderr
        assert "Traceback" not in done.stderr and "the code of the clone" not in done.stdout


def test_it_runs_where_there_is_no_checkout_and_deep_in_its_own(tmp_path: Path) -> None:
    for folder in (tmp_path, find_project_root() / "ops" / "softmax"):
        done = subprocess.run(
            [sys.executable, "-m", "harness", "list"], cwd=folder, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0 and "softmax" in done.stdout, done.stderr
