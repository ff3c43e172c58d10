"""Ops that are judged on part of their outputs: the part is that of the whole, and what is wrong in it is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.compare.drawn.problems import draw_problems
from harness.compare.drawn.timing import expect
from harness.discover import find_op, find_ops
from harness.spec import Op, Problem
from harness.timing.rounds import TIMING_DISTRIBUTION
from harness.verify.inputs import make_inputs
from harness.verify.places import Restriction
from harness.verify.reference import compute_expected

DEAR = ("sdpa",)  # its reference
OPS = {name: op for name in find_ops() if (op := find_op(name).op).sampling is not None}

# A device, a kernel, a stream: choosing places needs none.
UNUSED: Any = None


def list_problems(op: Op) -> list[Problem]:
    """Return problems of little work, listed and drawn, some of more rows and columns than are sampled."""
    listed = [p for p in op.problems if 1e4 <= op.cost(p).bytes_moved <= 2e6][:6]
    return listed + [d.problem for d in draw_problems(op, 40, 0) if op.cost(d.problem).bytes_moved <= 2e7][:3]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in DEAR)) for name in OPS])
def test_a_sample_is_that_of_the_whole(name: str) -> None:
    op = OPS[name]
    num_sampled = 0
    for problem in list_problems(op):
        inputs = make_inputs(op, problem, TIMING_DISTRIBUTION)
        (whole,) = compute_expected(op, problem, inputs, float("inf")).parts
        sampled = compute_expected(op, problem, inputs, -1.0)
        num_sampled += any(p.places is not None for p in sampled.parts)
        for part in sampled.parts:
            for output, values in part.outputs.items():
                expected = part.take(output, whole.outputs[output])
                # A product of fewer rows may add in another order: what cancels is off by roundings of its terms.
                np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-13 * float(np.abs(expected).max(initial=0.0)))
        assert sampled.find_wrong({n: v.astype(np.float64) for n, v in whole.outputs.items()}) == ""
    assert num_sampled > 0, "none of the problems is large enough to be sampled"


@pytest.mark.parametrize("name", OPS)
def test_large_problems_as_they_are_drawn_are_sampled_and_small_ones_whole(name: str) -> None:
    op = OPS[name]
    small = min(op.problems, key=lambda p: op.cost(p).bytes_moved)
    assert expect(op, small).describe() == "whole"


def test_a_row_that_is_wrong_along_all_of_it_is_found() -> None:
    op = OPS["transpose"]
    problem = Problem({"rows": 300, "columns": 200})
    expected = compute_expected(op, problem, make_inputs(op, problem, "uniform"), -1.0)
    right = np.ascontiguousarray(expected.inputs["x"].T)
    assert expected.find_wrong({"y": right}) == ""
    shifted = np.roll(right, 1, axis=0)
    assert "elements wrong" in expected.find_wrong({"y": shifted})


def test_places_of_an_axis_of_billions_are_chosen_without_an_array_of_it() -> None:
    op = find_op("optimizer").op
    length = 2**36  # 512 GiB of indices
    (places,) = Restriction(op, Problem({"N": length}), seed=1).choose_places({}).values()
    assert places[0] == 0 and places[-1] == length - 1
    assert (np.diff(places) > 0).all() and np.diff(places).max() < length // 2


def test_single_values_are_no_places() -> None:
    """A counter beside long arrays: sampled blocks write it somewhere in between, and it says nothing of where the arrays are judged."""
    op = find_op("optimizer").op
    problem = op.complete(Problem({"N": 10_000}, {"advances": True}))
    written = {name: (np.arange(300, 340),) for name in ("p", "m", "v")} | {"steps_done": ()}
    (places,) = Restriction(op, problem, seed=1).choose_places(written).values()
    assert set(places) <= set(range(300, 340)) and {300, 339} <= set(places)
