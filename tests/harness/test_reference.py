"""Outputs of large problems are judged on a sample: it is the whole reference's part, covers every band, and catches a wrong tile."""

from __future__ import annotations

import numpy as np
import pytest

from harness.discover import find_op
from harness.spec import Problem
from harness.verify.inputs import make_inputs
from harness.verify.reference import BAND, Expected, choose_places, compute_expected

OP = find_op("gemm_bias_act").op
NK = {"act": "relu", "dtype": "bfloat16", "b_layout": "nk", "with_bias": True, "save_z": True}
PROBLEM = Problem({"M": 300, "N": 400, "K": 16}, NK)


def _expect(problem: Problem, whole_flops: float = 0.0) -> Expected:
    return compute_expected(OP, problem, make_inputs(OP, problem, "uniform"), whole_flops)


@pytest.mark.parametrize("attributes", [NK, {"act": "silu", "with_bias": True}], ids=["nk", "kn"])
def test_a_sample_is_part_of_the_whole(attributes: dict[str, bool | int | float | str]) -> None:
    problem = Problem(PROBLEM.sizes, attributes)
    whole, sampled = _expect(problem, 1e12), _expect(problem)
    assert [p.axis for p in sampled.parts] == [0, 1] and whole.parts[0].axis is None
    for part in sampled.parts:
        for name, values in part.outputs.items():
            # Another shape of product may sum in another order.
            np.testing.assert_allclose(values, part.take(name, whole.parts[0].outputs[name]), rtol=1e-12, atol=1e-14)
    assert sampled.describe() == "sampled: all along 64 places of axis 0 and 64 places of axis 1"
    assert whole.describe() == "whole"


@pytest.mark.parametrize("extent", [1, 63, 64, 65, 4096, 8192, 16384, 16385])
def test_places_cover_every_band_the_same_each_time(extent: int) -> None:
    places = choose_places(OP, PROBLEM, 0, extent)
    assert (np.diff(places) > 0).all() and places[0] >= 0 and places[-1] < extent
    assert np.diff(np.concatenate([[0], places, [extent - 1]])).max() < 2 * BAND
    np.testing.assert_array_equal(places, choose_places(OP, PROBLEM, 0, extent))


def test_a_wrong_tile_a_wrong_row_and_a_wrong_column_are_caught_and_the_right_output_passes() -> None:
    whole = _expect(PROBLEM, 1e12).parts[0]
    sampled = _expect(PROBLEM)
    right = {name: values.astype(np.float32) for name, values in whole.outputs.items()}
    assert all(c.ok for c in sampled.compare(right).values())
    for rows, columns in ((slice(128, 256), slice(256, 384)), (slice(77, 78), slice(None)), (slice(None), slice(399, 400))):
        wrong = {name: values.copy() for name, values in right.items()}
        wrong["z"][rows, columns] += 1.0
        found = sampled.compare(wrong)
        assert found["y"].ok and not found["z"].ok
        row, column = found["z"].first_bad_index or (-1, -1)
        assert wrong["z"][row, column] != right["z"][row, column]


def test_a_small_problem_is_judged_whole() -> None:
    problem = OP.select_problems("verify")[0]
    assert compute_expected(OP, problem, make_inputs(OP, problem)).describe() == "whole"


def test_a_cheap_function_of_a_long_array_is_judged_on_a_sample() -> None:
    problem = Problem({"N": 1 << 16}, {"dtype": "float32"})
    op = find_op("optimizer").op
    inputs = make_inputs(op, problem)
    assert compute_expected(op, problem, inputs).describe() == "whole"
    assert (
        compute_expected(op, problem, inputs, whole_bytes=op.cost(problem).bytes_moved - 1)
        .describe()
        .startswith("sampled: all along 512 places")
    )


@pytest.mark.parametrize("wrong_row", [None, 0])
def test_where_a_sum_needs_the_whole_what_has_rows_is_compared_on_a_sample_if_asked_for(wrong_row: int | None) -> None:
    op = find_op("cross_entropy").op
    problem = Problem({"rows": 700, "classes": 9}, {"with_dbias": True})
    inputs = make_inputs(op, problem)
    whole = compute_expected(op, problem, inputs, whole_bytes=0.0)
    thinned = compute_expected(op, problem, inputs, whole_bytes=0.0, is_thinned=True)
    assert whole.describe() == "whole" and thinned.describe() == "sampled: all along 64 places of axis 0"
    outputs = {name: values.astype(np.float32) for name, values in whole.parts[0].outputs.items()}
    assert sorted(name for part in thinned.parts for name in part.outputs) == sorted(outputs)
    places = next(part.places for part in thinned.parts if part.places is not None)
    if wrong_row is not None:
        outputs["dlogits"][places[wrong_row], 3] += 1.0
    found = thinned.compare(outputs)
    assert found["loss"].ok and found["dbias"].ok and found["dlogits"].ok == (wrong_row is None)
    if wrong_row is not None:
        assert found["dlogits"].first_bad_index == (places[wrong_row], 3)
