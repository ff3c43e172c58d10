"""The page that makes an op from nothing: its commands are run in a fresh project, and what it asks a person to write stays little."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from device.loader import find_emulator_library
from device.settings import read_settings
from tests.installed.pages import list_blocks, write_script
from tests.installed.tour import NEW_OP

# Lines that a person writes beyond kernels and NumPy.
MAX_LINES = 120
# The op's functions of arrays: what it computes, how exactly, how much work that is, and the same for a part of it.
NUMPY = frozenset({"turn", "reference", "tolerance", "cost", "restrict", "compute"})


def list_person_lines(title: str, text: str) -> list[str]:
    """Return the lines of a file that are neither empty, nor a comment, nor in one of the ``NUMPY`` functions."""
    in_numpy: set[int] = set()
    if title.endswith(".py"):
        functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name in NUMPY]
        in_numpy = {i for node in functions for i in range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = list(enumerate(text.splitlines(), 1))
    return [line for i, line in lines if i not in in_numpy and line.strip() and not line.strip().startswith(("//", "# "))]


def test_what_a_person_writes_beyond_kernels_and_numpy_is_little() -> None:
    blocks = list_blocks(NEW_OP.page)
    files = {title: text for _, title, text in blocks if title}
    assert {Path(title).name for title in files} == {"op.py", "kernels.cu", "launcher.cu", "opset.py", "README.md"}
    edits = [line for language, _, text in blocks if language == "sh" for line in text.splitlines() if line.startswith("sed ")]
    written = [line for title, text in files.items() if not title.endswith("kernels.cu") for line in list_person_lines(title, text)]
    assert len(written) > 80, "the files are read"
    assert len(written) + len(edits) <= MAX_LINES


@pytest.mark.parametrize(
    ("title", "text", "left"),
    [
        ("op.py", '"""words"""\n\ndef reference(x):\n    return x\n\n\nOP = 1\n', ['"""words"""', "OP = 1"]),
        ("launcher.cu", "// words\nint x;\n", ["int x;"]),
    ],
)
def test_lines_are_counted_outside_of_numpy(title: str, text: str, left: list[str]) -> None:
    assert list_person_lines(title, text) == left


@pytest.mark.slow
def test_an_op_is_made_from_nothing_to_frozen_and_called(emulated_device: object, tmp_path: Path) -> None:
    settings = read_settings()
    environ = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AICF_DEVICE": "emulated",
        "AICF_EMULATOR_LIBRARY": str(find_emulator_library(settings)),
        "AICF_CACHE_DIR": str(settings.cache_dir),
        "AICF_RECORDS_URL": f"sqlite:///{tmp_path}/records.sqlite",
    }
    project = tmp_path / "project"
    project.mkdir()

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=project, env=environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    run("aicf", "init")
    run("git", "init", "--quiet")
    run("git", "add", "--all")
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "a project")
    told = run("bash", "-c", write_script(NEW_OP.write(tmp_path / "page.md")))
    assert "4 of 4 variants verified" in told and " passed" in told and "0 findings" in told and "REFUSED" not in told
    rows = json.loads(run("aicf", "frozen", "list", "rope", "--json"))["rope"]
    assert {(row["kernel"].split("__")[0], row["role"]) for row in rows} == {("heads", "winner"), ("naive", "fallback")}
