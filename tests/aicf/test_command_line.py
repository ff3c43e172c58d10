"""``python -m aicf``: help that can be read, examples that run, and errors that name the argument."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result
from typer.testing import CliRunner

from aicf.__main__ import build_app
from contract.frozen_set import list_ops

ROOT = Path(__file__).resolve().parents[2]


def aicf(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aicf", *words]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=False)


def explain(*words: str) -> subprocess.CompletedProcess[str]:
    return aicf("explain", *words, *(() if "--arch" in words else ("--arch", "sm_90a")))


def explain_here(*words: str) -> Result:
    """Do as `explain` does in this process, which takes no second to start."""
    arguments = ["explain", *words, *(() if "--arch" in words else ("--arch", "sm_90a"))]
    return CliRunner(env={"COLUMNS": "80"}).invoke(build_app(arguments), arguments)


def list_examples(verb: str) -> list[list[str]]:
    text = aicf(verb, "--help").stdout
    assert "\n  Examples:\n" in text and "\\b" not in text and all(len(line) <= 80 for line in text.splitlines())
    lines = text.split("Examples:\n")[1].split("\n\n")[0].replace("\\\n", " ").splitlines()
    return [shlex.split(line)[3:] for line in lines if not line.lstrip().startswith("#")]


@pytest.mark.parametrize("verb", ["prebuild", "explain"])
def test_help_has_examples_of_the_verb(verb: str) -> None:
    examples = list_examples(verb)
    assert len(examples) >= 2 and all(words[0] == verb for words in examples)


def test_the_examples_of_explain_choose_a_kernel() -> None:
    for words in list_examples("explain"):
        done = explain_here(*words[1:])
        assert done.exit_code == 0 and "chosen:" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("nope M=1", 2, "op 'nope' is not frozen; there are:"),
        ("softmax rows=-1 columns=3", 2, "'rows=-1': must be a whole number"),
        ("softmax rows=4", 2, "sizes are columns, rows, got rows"),
        ("softmax rows=4 columns=5 dim=3", 2, "softmax has no 'dim'; there are: columns"),
        ("gemm_bias_act M=4 N=5 K=6 act=swish", 2, "must be one of none, relu"),
        ("gemm_bias_act M=4 N=5 K=6 lda=3", 2, "must be at least the row's 6 elements"),
        ("softmax rows=4 columns=5 --arch sm_70", 1, "nothing is frozen for compute capability 7.0; there are kernels for: sm_90a"),
    ],
)
def test_a_wrong_call_is_refused_by_name(words: str, code: int, text: str) -> None:
    done = explain_here(*words.split())
    assert done.exit_code == code and text in " ".join(done.stderr.split()) and "Traceback" not in done.stderr


def test_an_op_that_is_not_frozen_is_wrong_use_to_prebuild_too() -> None:
    done = aicf("prebuild", "nope")
    assert done.returncode == 2 and f"there are: {', '.join(list_ops(ROOT / 'frozen'))}" in done.stderr


def test_a_call_that_no_kernel_serves_is_explained_and_fails() -> None:
    done = explain("softmax", "rows=4", "columns=5", "--accumulate", "float64")
    assert done.returncode == 1 and "sums in float32, not in float64" in " ".join(done.stdout.split())


NETWORK = """
import numpy as np
import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F

def make_step():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    batch = Tensor(np.zeros((2, 8), np.float32)), Tensor(np.zeros(2, np.int64))
    return aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optim.Adam(model.parameters()), batch, backend="numpy")

NUMBER = 3
"""


def test_a_network_is_explained_with_pictures_and_so_is_a_saved_one(tmp_path: Path) -> None:
    (tmp_path / "network.py").write_text(NETWORK)
    done = aicf("explain", f"{tmp_path}/network.py:make_step", "--draw", str(tmp_path / "pictures"))
    assert done.returncode == 0 and "differentiate: 4 ->" in done.stdout and "CrossEntropy" in done.stdout, done.stderr
    pictures = {path.stem: ET.parse(path) for path in (tmp_path / "pictures").glob("*.svg")}
    assert pictures.keys() == {"recorded", "compiled", "arena"}
    words = [e.text for e in pictures["compiled"].iter() if e.tag.endswith("text")]
    assert words.count("LinearGrad") == 2 and {"input", "forward", "backward", "update", "Elementwise relu"} <= set(words)
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; import network; network.make_step().save({str(tmp_path / 'saved')!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    saved = aicf("explain", str(tmp_path / "saved"))
    assert saved.returncode == 0 and "CrossEntropy" in saved.stdout and "its passes ran where it was compiled" in saved.stdout


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("nowhere.py:make_step", "there is no file nowhere.py"),
        ("network.py:nope", "has no 'nope'"),
        ("network.py:NUMBER", "is int; it must be"),
    ],
)
def test_what_is_no_network_is_refused_by_name(tmp_path: Path, word: str, text: str) -> None:
    (tmp_path / "network.py").write_text(NETWORK)
    done = aicf("explain", word.replace("network.py", f"{tmp_path}/network.py"))
    assert done.returncode == 2 and text in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
