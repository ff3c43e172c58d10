"""Ops that are judged on part of their outputs: the part is that of the whole, and what is wrong in it is found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from harness.compare.drawn.problems import draw_problems
from harness.discover import find_op, find_ops
from harness.spec import Indices, Op, Problem
from harness.timing.ahead import expect
from harness.timing.rounds import TIMING_DISTRIBUTION
from harness.verify.inputs import make_inputs
from harness.verify.places import Restriction, is_sampled_in_full, list_restrictions
from harness.verify.reference import compute_expected

DEAR = ("sdpa",)  # its reference
OPS = {name: op for name in find_ops() if (op := find_op(name).op).sampling is not None}

# A device, a kernel, a stream: choosing places needs none.
UNUSED: Any = None


def list_problems(op: Op) -> list[Problem]:
    """Return problems of little work, listed and drawn, some of more rows and columns than are sampled."""

    def count_inputs(problem: Problem) -> int:
        return sum(math.prod(t.resolve_shape(problem)) for t in op.inputs if t.present(problem))

    listed = [p for p in op.problems if 1e4 <= op.cost(p).bytes_moved <= 2e6 and count_inputs(p) <= 1e6][:6]
    return listed + [d.problem for d in draw_problems(op, 40, 0) if op.cost(d.problem).bytes_moved <= 2e7][:3]


EACH_OP = pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in DEAR)) for name in OPS])


def find_restriction(op: Op, problem: Problem) -> Restriction:
    """Return the only one that a problem has."""
    (found,) = list_restrictions(op, problem, 1)
    return found


@EACH_OP
def test_a_sample_is_that_of_the_whole(name: str) -> None:
    op = OPS[name]
    num_sampled = 0
    if not any(is_sampled_in_full(op, problem) for problem in list_problems(op)):
        assert name == "cross_entropy", "its loss is a sum over all logits"
        return
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


@EACH_OP
def test_what_a_restriction_needs_gives_its_outputs_as_they_are_in_the_whole(name: str) -> None:
    """The inputs are cut to what ``find_needed`` names, and nothing else, as they are put into a device's memory."""
    op = OPS[name]
    num_judged = 0
    for problem in list_problems(op):
        inputs = make_inputs(op, problem, TIMING_DISTRIBUTION)
        (whole,) = compute_expected(op, problem, inputs, float("inf"), float("inf")).parts
        pointing = {t.name: inputs[t.name] for t in op.inputs if t.name in inputs and isinstance(t.resolve_values(problem), Indices)}
        for restriction in list_restrictions(op, problem, 1, pointing):
            places = restriction.choose_places({})
            needed, small = restriction.find_needed(places)
            cut = {n: v for n, v in restriction.restrict({}, places, dry=True)[0].items() if n not in needed}
            cut |= {n: pointing[n] if n in pointing else inputs[n][np.ix_(*axes)] if axes else inputs[n] for n, axes in needed.items()}
            (part,) = compute_expected(op, small, cut, float("inf"), float("inf")).parts
            for output in restriction.outputs:
                expected = whole.outputs[output.name]
                for axis, chosen in places.items() if expected.ndim else ():
                    expected = np.take(expected, chosen, restriction.find_axis(output.name, axis))
                limit = 1e-13 * float(np.abs(np.nan_to_num(expected)).max(initial=0.0))
                np.testing.assert_allclose(part.outputs[output.name], expected, rtol=1e-12, atol=limit)
                num_judged += 1
    assert num_judged > 0


def test_outputs_with_other_axes_are_judged_one_after_the_other() -> None:
    op = OPS["layernorm_backward"]
    problem = op.complete(Problem({"rows": 500, "columns": 300}, {"with_bias": True}))
    rows, columns = list_restrictions(op, problem, 1)
    assert (rows.names, columns.names) == (("dx",), ("dweight", "dbias"))
    assert list(rows.choose_places({})) == [0] and list(columns.choose_places({})) == [1]
    needed = columns.find_needed({1: np.array([3, 7])})[0]
    assert [len(axis) for axis in needed["x"]] == [500, 2] and [len(axis) for axis in needed["weight"]] == [2]
    parts = compute_expected(op, problem, make_inputs(op, problem), -1.0).parts
    assert [sorted(part.outputs) for part in parts] == [["dx"], ["dbias", "dweight"]]


def test_an_output_that_needs_all_inputs_is_computed_whole_and_the_others_are_judged_by_places() -> None:
    op = OPS["cross_entropy"]
    problem = op.complete(Problem({"rows": 500, "classes": 30}, {"with_dbias": True}))
    assert not is_sampled_in_full(op, problem)
    assert find_restriction(op, problem).names == ("dlogits",)
    expected = compute_expected(op, problem, make_inputs(op, problem), -1.0)
    assert expected.describe() == "whole" and set(expected.parts[0].outputs) == {"loss", "dlogits", "dbias"}
    assert list_restrictions(op, op.complete(Problem({"rows": 500, "classes": 30}, {"with_gradient": False})), 1) == []


def test_indices_are_aimed_at_the_rows_that_are_judged() -> None:
    """Of a table of a million rows, eight indices would hit none of those."""
    op = OPS["embedding_backward"]
    problem = op.complete(Problem({"count": 5000, "vocabulary": 1 << 20, "width": 4}))
    indices = np.asarray(make_inputs(op, problem)["indices"])
    (restriction,) = list_restrictions(op, problem, 1, {"indices": indices})
    places = restriction.choose_places({})
    aimed = restriction.aim(places)["indices"]
    assert aimed[0] in places[0] and aimed[-1] in places[0]
    assert np.isin(aimed, places[0]).sum() > 1000 > 100 > np.isin(indices, places[0]).sum()
    assert (aimed == indices).sum() > 3000, "most still point anywhere"


def test_an_index_of_an_input_points_to_its_last_row() -> None:
    """Of four million rows, some 400 begin beyond 2^32 elements: sixteen indices would hit none of those."""
    op = OPS["embedding"]
    problem = op.complete(Problem({"count": 64, "vocabulary": 1 << 20, "width": 4}))
    indices = np.asarray(make_inputs(op, problem)["indices"])
    (restriction,) = list_restrictions(op, problem, 1, {"indices": indices})
    aimed = restriction.aim(restriction.choose_places({}))["indices"]
    assert aimed[-1] == (1 << 20) - 1 != indices[-1]
    assert (aimed[:-1] == indices[:-1]).all(), "the others point anywhere"


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
    (places,) = find_restriction(op, Problem({"N": length})).choose_places({}).values()
    assert places[0] == 0 and places[-1] == length - 1
    assert (np.diff(places) > 0).all() and np.diff(places).max() < length // 2


def test_places_are_fewer_where_each_needs_many_rows_of_the_inputs() -> None:
    sizes = {"a": 8, "b": 8, "c": 224, "d": 8, "yb": 8, "yc": 224, "yd": 8, "yn": 8} | {f"n{i}": 8 for i in range(8)}
    restriction = find_restriction(OPS["strided_copy"], Problem(sizes, {"dtype": "float16"}))
    ((axis, places),) = restriction.choose_places({}).items()
    assert len(places) == 16 and restriction.find_work({axis: places})[1] == 16 * 8**3
    assert restriction.find_obstacle({axis: np.arange(224)}, 2**16) == "a single place needs 114688 rows of the inputs"


def test_single_values_are_no_places() -> None:
    """A counter beside long arrays: sampled blocks write it somewhere in between, and it says nothing of where the arrays are judged."""
    op = find_op("optimizer").op
    problem = op.complete(Problem({"N": 10_000}, {"advances": True}))
    written = {name: (np.arange(300, 340),) for name in ("p", "m", "v")} | {"steps_done": ()}
    (places,) = find_restriction(op, problem).choose_places(written).values()
    assert set(places) <= set(range(300, 340)) and {300, 339} <= set(places)
