"""Comparison with the reference: NaN never passes, and a mismatch says where."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.spec.dtypes import find_dtype
from harness.verify import compare as compare_module
from harness.verify.compare import compare, find_mismatches, is_right

FINITE = hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=6), elements=st.floats(-1e30, 1e30))


def as_f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@settings(max_examples=60, deadline=None)
@given(FINITE)
def test_rounding_to_the_output_dtype_is_within_half_an_ulp(expected: np.ndarray) -> None:
    actual = expected.astype(np.float32)
    bound = np.abs(np.spacing(actual).astype(np.float64))
    result = compare(actual, expected, bound)
    assert result.ok
    assert result.max_ulp <= 0.5
    assert result.max_error_ratio <= 0.5


@settings(max_examples=60, deadline=None)
@given(FINITE, st.data(), st.sampled_from([np.nan, np.inf, -np.inf, "beyond"]))
def test_one_bad_element_is_found_at_its_index(expected: np.ndarray, data: st.DataObject, wrong: float | str) -> None:
    index = tuple(data.draw(st.integers(0, n - 1)) for n in expected.shape)
    bound = np.abs(expected) * 1e-6 + 1.0
    actual = expected.copy()
    actual[index] = expected[index] + 2 * bound[index] if wrong == "beyond" else wrong
    result = compare(actual, expected, bound)
    assert not result.ok
    assert result.num_mismatched == 1
    assert result.first_bad_index == index
    assert result.max_error_ratio > 1
    assert f"first at {list(index)}" in result.describe("Y")


@settings(max_examples=100, deadline=None)
@given(
    FINITE, st.sampled_from(["float16", "bfloat16", "float32", "int32"]), st.sampled_from([0.0, 1e-2, np.inf, np.nan, -1.0]), st.booleans()
)
def test_what_is_right_is_told_quickly_and_no_differently(expected: np.ndarray, dtype: str, bound: float, is_moved: bool) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        actual = (expected % 1000).astype(find_dtype(dtype))
    wanted = actual.astype(np.float64) if is_moved else expected % 1000
    for bounds in (np.full(wanted.shape, bound), np.maximum(np.abs(wanted), 1e-9) * bound, np.asarray(bound)):
        with np.errstate(invalid="ignore"):
            quick, slow = compare(actual, wanted, bounds), compare_module._compare_any(actual, wanted, bounds)
        assert abs(quick.bias.mean - slow.bias.mean) < 1e-12
        assert repr(replace(quick, bias=slow.bias)) == repr(slow), "of what is wrong, bounds may be NaN"


@pytest.mark.parametrize(
    ("actual", "expected", "ok"),
    [
        (np.nan, np.nan, True),
        (np.nan, 0.0, False),
        (0.0, np.nan, False),
        (np.inf, np.inf, True),
        (np.inf, -np.inf, False),
        (3e38, np.inf, False),
        (np.inf, 3e38, False),
        (np.inf, 1e39, True),  # beyond float32: the rounded reference is infinite
        (-np.inf, 1e39, False),
        (0.0, -0.0, True),
    ],
)
def test_special_values(actual: float, expected: float, ok: bool) -> None:
    assert compare(as_f32(actual), np.array([expected]), np.array([1e-6])).ok is ok


def test_a_nan_bound_accepts_nothing_and_a_zero_bound_only_equality() -> None:
    assert not compare(as_f32(1.0), np.array([1.0]), np.array([np.nan])).ok
    assert compare(as_f32(1.0), np.array([1.0]), np.array([0.0])).ok
    missed = compare(as_f32(1.0000001), np.array([1.0]), np.array([0.0]))
    assert not missed.ok
    assert math.isinf(missed.max_error_ratio)


def test_bounds_broadcast_and_integers_compare() -> None:
    assert compare(np.array([[1, 2], [3, 4]], np.int32), np.array([[1.0, 2], [3, 4]]), np.array(0.0)).ok
    assert not compare(np.array([[1, 2], [3, 5]], np.int32), np.array([[1.0, 2], [3, 4]]), np.array([[0.0], [0.5]])).ok


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\), the reference \(3,\)"):
        compare(as_f32(1, 2), np.zeros(3), np.zeros(3))


def test_description_names_count_index_values_and_bound() -> None:
    text = compare(as_f32(1, 5, np.nan), np.array([1.0, 2, 3]), np.array(0.25)).describe("Y")
    assert text == "Y [3]: 2 of 3 elements wrong, 1 of them NaN; first at [1]: got 5.0, expected 2.0, error 3 where 0.25 is allowed"


_SPECIAL = (0.0, 1.0, -1.0, 1e-9, 65504.0, 65519.0, 65520.0, -65536.0, 3.4028234e38, 3.5e38, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
@pytest.mark.parametrize("bound", [0.0, 1e-3, 1e5, np.inf, np.nan])
def test_the_quick_verdict_is_that_of_every_element(dtype: str, bound: float) -> None:
    with np.errstate(all="ignore"):
        values = np.array([v for v in _SPECIAL if dtype != "int32" or abs(v) < 2**31]).astype(find_dtype(dtype))
    for expected in _SPECIAL:
        for actual in values:
            sides = (np.array([1, actual], values.dtype), np.array([1.0, expected]), np.array([0.0, bound]))
            assert is_right(*sides) == (not find_mismatches(*sides).any()), (actual, expected)


def test_the_quick_verdict_refuses_another_shape() -> None:
    with pytest.raises(ValueError, match="output has shape"):
        is_right(np.zeros(3, np.float32), np.zeros(2), np.zeros(1))


def test_an_infinity_that_the_dtype_asks_for_is_no_error() -> None:
    result = compare(np.array([np.inf, 2.0], np.float16), np.array([1e6, 2.0]), np.array(1e-3))
    assert result.ok and (result.max_abs_error, result.max_error_ratio, result.max_ulp) == (0.0, 0.0, 0.0)
    assert not compare(np.array([65504.0], np.float16), np.array([1e6]), np.array(1e-3)).ok
