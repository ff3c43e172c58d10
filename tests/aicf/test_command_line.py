"""``python -m aicf``: help that can be read, examples that run, and errors that name the argument."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from contract.frozen_set import list_ops

ROOT = Path(__file__).resolve().parents[2]


def aicf(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aicf", *words]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=False)


def explain(*words: str) -> subprocess.CompletedProcess[str]:
    return aicf("explain", *words, *(() if "--arch" in words else ("--arch", "sm_90a")))


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
        done = explain(*words[1:])
        assert done.returncode == 0 and "chosen:" in done.stdout, done.stderr


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
    done = explain(*words.split())
    assert done.returncode == code and text in " ".join(done.stderr.split()) and "Traceback" not in done.stderr


def test_an_op_that_is_not_frozen_is_wrong_use_to_prebuild_too() -> None:
    done = aicf("prebuild", "nope")
    assert done.returncode == 2 and f"there are: {', '.join(list_ops(ROOT / 'frozen'))}" in done.stderr


def test_a_call_that_no_kernel_serves_is_explained_and_fails() -> None:
    done = explain("softmax", "rows=4", "columns=5", "--accumulate", "float64")
    assert done.returncode == 1 and "sums in float32, not in float64" in " ".join(done.stdout.split())
