"""ONNX's own tests of single operators: those of the operators that are served pass, or are refused; none gives another answer."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed here: pip install 'aicf[onnx]'")

from aicf import Tensor, frontends  # noqa: E402
from aicf.errors import UnsupportedError  # noqa: E402
from aicf.frontends.onnx_rules import RULES  # noqa: E402

# Modules of cases that take seconds to be made, or need packages, and are of other operators.
OTHERS = ("attention", "averagepool", "image_decoder", "linear_attention", "lppool", "maxpool")
HOST = {"Constant", "ConstantOfShape", "Range"}
# Their answers are random numbers of the reference's own generator.
RANDOM = {"test_training_dropout", "test_training_dropout_default"}
# Of the release that the count below is of; another one has some more or fewer.
RELEASE, PASSED, REFUSED = "1.23", 723, 265
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "framework.md"


def collect() -> list[Any]:
    """Return the cases of which all operators are served."""
    import onnx.backend.test.case.node as cases

    with warnings.catch_warnings(action="ignore"):
        for module in pkgutil.iter_modules(cases.__path__):
            if module.name not in OTHERS:
                importlib.import_module(f"{cases.__name__}.{module.name}")
    served = RULES.keys() | HOST
    found = {case.name: case for case in cases._NodeTestCases if {node.op_type for node in case.model.graph.node} <= served}
    return [case for name, case in found.items() if name not in RANDOM]


def to_array(value: Any) -> np.ndarray:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def find_fault(case: Any) -> str:
    """Return what is wrong with a case's answers, nothing where they are right; raises what the front end or a call raises."""
    for inputs, outputs in case.data_sets:
        made = frontends.onnx(case.model)(*(Tensor(to_array(x)) for x in inputs))
        for found, expected in zip(made if isinstance(made, tuple) else (made,), map(to_array, outputs), strict=True):
            if found.type.shape != expected.shape or found.dtype != expected.dtype.name:
                return f"{found.type} instead of {expected.dtype}{expected.shape}"
            values, wanted = (a.astype(np.float64) if found.type.is_float else a for a in (found.numpy(), expected))
            if not np.allclose(values, wanted, case.rtol, case.atol, equal_nan=True):
                return f"{values} instead of {wanted}"
    return ""


def test_no_operator_gives_a_wrong_answer() -> None:
    counts, faults, operators = Counter[str](), {}, set()
    for case in collect():
        try:
            fault = find_fault(case)
        except (UnsupportedError, TypeError, ValueError):
            counts["refused"] += 1
            continue
        counts["wrong" if fault else "passed"] += 1
        faults |= {case.name: fault} if fault else {}
        operators |= {node.op_type for node in case.model.graph.node}
    assert faults == {}
    assert operators >= RULES.keys()
    assert counts["passed"] > 0.7 * counts.total()
    if onnx.__version__.startswith(RELEASE):
        assert (counts["passed"], counts["refused"]) == (PASSED, REFUSED)


def test_the_documentation_counts_them_too() -> None:
    text = " ".join(DOCUMENT.read_text().split())
    assert f"ONNX {RELEASE} has {PASSED + REFUSED} tests" in text and f"{PASSED} pass, {REFUSED} are rejected" in text
