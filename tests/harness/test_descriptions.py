"""Mistakes in an op's description are told by their place in it, in a few lines, whatever was under way."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from device import Device
from device.settings import find_project_root
from harness.discover import find_op, load_op
from harness.records.database import Records
from harness.scaffold import create_op
from harness.spec import Kernel, Problem, SpecError, Tunable
from harness.spec.callables import Described
from harness.verify.reference import compute_expected
from tests.harness.test_session import run

OP = find_op("softmax").op
PROBLEM = OP.select_problems("verify")[0]


def divide(*_: object) -> dict[str, object]:
    return {"Y": np.add("text", {})}


def look_up(inputs: dict[str, object], *_: object) -> object:
    return inputs["no such tensor"]


@pytest.mark.parametrize("name", ["reference", "tolerance", "cost"])
def test_an_exception_in_a_description_names_op_problem_and_line(name: str) -> None:
    op = replace(OP, **{name: divide})  # type: ignore[arg-type]
    with pytest.raises(SpecError) as caught:
        compute_expected(op, PROBLEM, {t.name: np.zeros(t.resolve_shape(PROBLEM), np.float32) for t in op.inputs}, whole_flops=-1)
        op.cost(PROBLEM)
    first, place, error = str(caught.value).splitlines()
    assert first == f"op {OP.name}, problem {PROBLEM.name}: {name}() fails"
    assert re.fullmatch(rf'  {re.escape(__file__)}:\d+: return \{{"Y": np\.add\("text", \{{\}}\)\}}', place)
    assert "Error" in error


def test_a_missing_key_is_said_in_words_and_a_result_of_another_kind_too() -> None:
    inputs = {t.name: np.zeros(t.resolve_shape(PROBLEM), np.float32) for t in OP.inputs}
    for function, message in (
        (look_up, "KeyError: there is no 'no such tensor'"),
        (lambda *_: [1], r"reference\(\) must return arrays by tensor name, not list"),
        (lambda *_: {}, r"reference\(\) must give output 'y'"),
        (lambda *_: {OP.outputs[0].name: np.ones(7)}, r"the shape \(7,\)"),
    ):
        with pytest.raises(SpecError, match=message):
            compute_expected(replace(OP, reference=function), PROBLEM, inputs)


def test_described_functions_compare_as_what_they_stand_for() -> None:
    assert replace(OP).reference == OP.reference and isinstance(OP.reference, Described)
    assert not isinstance(OP.reference.function, Described)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("[][1]", "IndexError: list index out of range"),
        ("assert False, 'the tile is odd'", "AssertionError: the tile is odd"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("open('/no/such/file')", "FileNotFoundError"),
    ],
)
def test_an_op_file_that_fails_names_the_line(tmp_path: Path, line: str, message: str) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "op.py").write_text(f"import math\n\n{line}\n")
    with pytest.raises(SpecError) as caught:
        load_op(folder)
    first, place = str(caught.value).splitlines()
    assert first.startswith(f"{folder / 'op.py'} cannot be loaded: {message}") and place == f"  {folder / 'op.py'}:3: {line}"


def test_an_unknown_suite_and_a_variant_listed_twice_are_refused() -> None:
    with pytest.raises(SpecError, match=r"no suite 'verfy'; did you mean 'verify'\? \(suites: verify, bench, emulated, sweep\)"):
        replace(OP, problems=(Problem(PROBLEM.sizes, suites=frozenset({"verfy", "bench"})),))
    tunable = Tunable("threads", (32, 64), "of a block")
    with pytest.raises(SpecError, match="kernel twice: variant twice/threads32 is listed more than once"):
        Kernel("twice", "", tunables=(tunable,), variants=({"threads": 32}, {"threads": 64}, {"threads": 32}))


def test_every_op_still_loads() -> None:
    for name in ("softmax", "transpose", "gemm_bias_act", "gemm_backward"):
        assert find_op(name).op.name == name


@pytest.mark.slow
def test_a_broken_reference_is_said_once_and_no_variant_is_blamed(
    emulated_device: Device, tmp_path: Path, store: Records, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole verb, on an op whose reference asks for a tensor that it does not have."""
    ops = tmp_path / "ops"
    ops.mkdir()
    (ops / "common").symlink_to(find_project_root() / "ops" / "common")
    source = create_op("broken", ops_dir=ops) / "op.py"
    text = source.read_text()
    assert 'inputs["shift"]' in text
    source.write_text(text.replace('inputs["shift"]', 'inputs["shfit"]', 1))
    monkeypatch.setattr("harness.discover.find_ops", lambda ops_dir=None: {"broken": ops / "broken"})
    code, out, err = run(capsys, "verify", "broken", "--variant", "scalar/threads128", "--device", "emulated")
    assert code == 2, err
    first, place, error = err.splitlines()[-3:]
    assert first.startswith("harness: op broken, problem n1") and first.endswith("reference() fails")
    assert str(source) in place and "shfit" in place and error == "  KeyError: there is no 'shfit'"
    assert "Traceback" not in err and "crashed" not in err and not out
    assert store.list_results() == []
