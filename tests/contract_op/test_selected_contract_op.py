"""A call of a generated op as the framework sees it: strides of single dimensions, scalars, tensors that are overwritten in place."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from aicf.errors import FrozenError
from aicf.ops.arguments import Signature
from aicf.ops.arrays import View
from aicf.ops.functions import describe
from contract.calls import Interface, Problem
from contract.structs import make_params
from harness.build.interface import describe_interface, read_api
from harness.testing import OpUnderTest

UNDER_TEST = OpUnderTest(Path(__file__).parent / "ops" / "blend", has_machine_code=True)
SIZES = {"B": 2, "H": 3, "S": 9, "D": 5, "V": 4, "R": 3, "P": 7}


@pytest.fixture(scope="module")
def row() -> dict[str, Any]:
    return describe_interface(UNDER_TEST.op, read_api(UNDER_TEST.loaded))


def test_strides_and_scalars_reach_the_struct(row: dict[str, Any]) -> None:
    query = Interface("blend", row).make_query(Problem(SIZES, {}, {"x": (200, 8, 24, 1)}, None, {"decay": 0.25}))
    assert query.strides["x"] == (200, 8, 24, 1)
    assert query.strides["state"] == (105, 35, 5, 1), "rows that follow each other"
    params: Any = make_params(row, query.by_size, query.attributes, {}, query.strides, query.scalars)
    assert (params.x_stride0, params.x_stride1, params.x_stride2, params.y_stride3, params.decay) == (200, 8, 24, 1, 0.25)
    left_out: Any = make_params(row, query.by_size, query.attributes, {}, query.strides)
    assert left_out.decay == 0.5


@pytest.mark.parametrize(
    ("strides", "scalars", "text"),
    [
        ({"x": 8}, {}, "strides of x = 8: must be a tuple of 4 whole numbers"),
        ({"x": (200, 8, 24)}, {}, "must be a tuple of 4 whole numbers"),
        ({}, {"decay": 1.5}, "decay = 1.5: must be from 0.0 to 1.0"),
        ({}, {"decay": float("nan")}, "decay = nan"),
        ({}, {"gain": 1.0}, "no scalar 'gain'; there are: decay"),
    ],
)
def test_what_a_call_cannot_have_is_refused(row: dict[str, Any], strides: dict[str, Any], scalars: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Interface("blend", row).make_query(Problem(SIZES, {}, strides, None, scalars))


def test_a_function_takes_what_is_overwritten_and_refuses_what_it_cannot_pass(row: dict[str, Any]) -> None:
    with pytest.raises(FrozenError, match="has scalars or sizes that follow from others"):
        Signature(Interface("blend", row)).require_callable()
    plain = {key: value for key, value in copy.deepcopy(row).items() if key not in ("scalars", "derived")}
    signature = Signature(Interface("blend", plain))
    signature.require_callable()
    assert [name for name, _ in signature.inputs] == ["x", "w", "table", "index", "rate", "state", "mask"]
    assert [t["name"] for t in signature.list_outputs({})] == ["y"]
    views = {
        "x": View(1 << 20, (2, 3, 9, 5), (200, 8, 24, 1), "float32"),
        "w": View(2 << 20, (3,), (1,), "float32"),
        "table": View(3 << 20, (4, 5), (6, 1), "float32"),
        "index": View(4 << 20, (2, 7), (7, 1), "int64"),
        "rate": View(5 << 20, (), (), "float32"),
        "state": View(6 << 20, (2, 3, 7, 5), (105, 5, 15, 1), "float32"),
    }
    problem = signature.make_problem(views, {"step": 1})
    assert dict(problem.sizes) == SIZES and problem.strides["x"] == (200, 8, 24, 1) and problem.strides["table"] == 6
    with pytest.raises(ValueError, match="x: expected contiguous rows"):
        signature.make_problem(views | {"x": View(1 << 20, (2, 3, 9, 5), (200, 8, 24, 2), "float32")}, {"step": 1})


def test_an_extent_that_is_a_number_is_held_to_it(row: dict[str, Any]) -> None:
    fixed = {key: value for key, value in copy.deepcopy(row).items() if key not in ("scalars", "derived")}
    (x,) = (tensor for tensor in fixed["tensors"] if tensor["name"] == "x")
    assert x["shape"][0]["value"][1] == "H"
    x["shape"][0]["value"][1] = 3
    signature = Signature(Interface("blend", fixed))
    assert "x (input): [B, 3, S, D]" in describe(signature)
    views = {
        "x": View(1 << 20, (2, 3, 9, 5), (200, 8, 24, 1), "float32"),
        "w": View(2 << 20, (3,), (1,), "float32"),
        "table": View(3 << 20, (4, 5), (6, 1), "float32"),
        "index": View(4 << 20, (2, 7), (7, 1), "int64"),
        "rate": View(5 << 20, (), (), "float32"),
        "state": View(6 << 20, (2, 3, 7, 5), (105, 5, 15, 1), "float32"),
    }
    assert dict(signature.make_problem(views, {"step": 1}).sizes) == SIZES
    with pytest.raises(ValueError, match=r"x: expected shape \(B, 3, S, D\), got \(2, 4, 9, 5\)"):
        signature.make_problem(views | {"x": View(1 << 20, (2, 4, 9, 5), (200, 8, 24, 1), "float32")}, {"step": 1})
