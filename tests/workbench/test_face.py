"""The face for Python: the command line's options, names and errors, and nothing that only one of both can do."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import aicf
from harness.errors import SpecError
from harness.spec import SpecError as PublicSpecError
from harness.terminal import console, notebook
from harness.workbench import Op

METHODS = ("build", "verify", "bench", "sweep", "model", "compare", "profile", "promote", "crosscheck", "inspect")
# What says how the terminal shows a result, or how much of an op it begins with; and of ``model``, what judges the model and no op.
SHOWN = {"op", "json", "everything", "first_look", "lines", "validate", "fit", "out"}


@pytest.mark.parametrize("verb", METHODS)
def test_a_method_has_the_options_of_its_verb_with_their_defaults(verb: str) -> None:
    command = inspect.signature(importlib.import_module(f"harness.commands.{verb}").run).parameters
    method = inspect.signature(getattr(Op, verb)).parameters
    own = {name: p.default for name, p in method.items() if name not in ("self", "quiet")}
    assert own == {name: p.default for name, p in command.items() if name not in SHOWN}


def test_the_door_opens_when_it_is_asked() -> None:
    assert aicf.workbench.Op is Op and "tune" in dir(aicf.workbench)
    assert SpecError is PublicSpecError is aicf.workbench.SpecError
    with pytest.raises(AttributeError):
        aicf.workbench.nothing  # noqa: B018


def test_an_op_is_found_by_name_or_folder_and_a_wrong_name_lists_those_there_are() -> None:
    op = Op("softmax")
    assert Op(op.folder).variants == op.variants and "softmax" in repr(op)
    assert {"problem", "suites"} <= set(op.problems.columns) and len(op.problems) == len(op.spec.problems)
    with pytest.raises(SpecError, match=r"unknown op 'softmx'.*softmax"):
        Op("softmx")
    assert "softmax" in set(aicf.workbench.list()["op"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda op: op.verify(variant="nothing"), "nothing"),
        (lambda op: op.sweep(strategy="luck"), "--strategy luck: must be one of random, grid, tpe, cmaes"),
        (lambda op: op.compare(base="a", against="b"), "compare needs one of --base NAME, --against REV"),
        (lambda op: op.compare(seed=3), "are for drawn problems: with --drawn N"),
        (lambda op: op.promote(at="HEAD"), "--at goes with --recorded"),
        (lambda op: op.profile(tool="gdb"), "--tool gdb: must be one of"),
        (lambda op: op.crosscheck(), "crosscheck needs one of --save FILE and --against FILE"),
    ],
)
def test_wrong_use_is_the_error_of_the_command_line(call: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call(Op("softmax"))


def test_a_notebook_shows_a_bar_and_takes_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, what: Any) -> None:
            shown.append(what.data)

    def display(what: Any, *, display_id: bool) -> Handle:
        shown.append(what.data)
        return Handle()

    fake = ModuleType("IPython")
    fake.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    face = ModuleType("IPython.display")
    face.display, face.HTML = display, lambda data: SimpleNamespace(data=data)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", face)
    monkeypatch.setattr(notebook, "_EVERY_S", 0.0)
    with console.open_progress("build x", 2) as progress:
        progress.advance("a<b>")
    with console.open_stages("bench x", {"build": 1, "verify": 1}) as stages:
        stages.advance("build", "v")
    assert 'value="1" max="2"' in shown[1] and "a&lt;b&gt;" in shown[1]
    assert "build 1/1 · verify 0/1" in shown[4]
    assert shown[2] == shown[5] == ""


def test_workers_of_a_script_without_a_guard_do_not_run_it_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('once', flush=True)\n"
        "import tests.workbench.echo as echo\n"
        "from harness.processes.feed import JobFeed\n"
        "from harness.processes.pool import run_jobs\n"
        "print([a for _, a in run_jobs(echo.Echo, (), JobFeed([3], is_closed=True), num_workers=1, timeout_s=60.0)])\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, str(script)], cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "once\n[3]\n", done.stderr
