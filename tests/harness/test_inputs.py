"""Random inputs: the same everywhere, and each distribution what its name says."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.spec import SpecError
from harness.verify.inputs import DISTRIBUTIONS, LAST_OF_ALL, REPEATED, draw, make_inputs
from tests.harness.toy_op import make_toy


def sample(distribution: str, shape: tuple[int, ...] = (64, 33), dtype: str = "float32", **changes: object) -> np.ndarray:
    names = {"op": "toy", "problem": "p", "tensor": "A", "seed": 0} | changes
    return draw(shape, dtype, distribution, **names)  # type: ignore[arg-type]


PINNED = "b4525b15b9dba3134154fd672a5b71b63653d6d45b2b8b9f8063331f3fe39fd7"


def test_values_are_pinned_across_machines() -> None:
    digest = hashlib.sha256(b"".join(sample(d).tobytes() for d in ("uniform", "ties", "nonfinite"))).hexdigest()
    assert digest == PINNED


@pytest.mark.parametrize("change", [{"op": "other"}, {"problem": "q"}, {"tensor": "B"}, {"seed": 1}])
def test_every_part_of_the_name_changes_the_values(change: dict[str, object]) -> None:
    assert not np.array_equal(sample("normal"), sample("normal", **change))
    assert np.array_equal(sample("normal"), sample("normal"))


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(["float16", "float32", "float64", "int8", "uint8", "int32", "int64"]),
    distribution=st.sampled_from(DISTRIBUTIONS),
)
def test_shape_dtype_and_layout(shape: tuple[int, ...], dtype: str, distribution: str) -> None:
    values = sample(distribution, shape, dtype)
    assert values.shape == shape
    assert values.dtype == np.dtype(dtype)
    assert values.flags.c_contiguous
    if distribution != "nonfinite":
        assert np.isfinite(values).all()


def test_many_values_repeat_and_a_search_ends_at_the_last_of_all() -> None:
    values = sample(REPEATED, (3, 65521), "float16")
    assert np.array_equal(values[0], values[2]) and abs(float(values.astype(np.float32).std()) - 1) < 0.1
    for shape in ((1 << 17, 1), (1, 1 << 17), (3, 5), (1,)):
        for dtype in ("float16", "bfloat16", "float32"):
            found = sample(LAST_OF_ALL, shape, dtype).astype(np.float64).reshape(-1)
            assert np.argmax(found) == found.size - 1 and np.count_nonzero(found == found.max()) == 1


def test_distributions_are_what_they_say() -> None:
    assert abs(float(sample("normal").std()) - 1) < 0.1
    assert -1 <= sample("uniform").min() < -0.9
    assert 0.9 < sample("uniform").max() <= 1
    wide = np.abs(sample("wide"))
    assert wide.max() / wide.min() > 2.0**38
    assert len(np.unique(sample("ties"))) == 5
    small = np.abs(sample("denormal"))
    share = float(((small > 0) & (small < np.finfo(np.float32).smallest_normal)).mean())
    assert 0.4 < share < 0.6
    special = sample("nonfinite")
    assert (np.isnan(special).sum(), np.isposinf(special).sum(), np.isneginf(special).sum()) == (1, 1, 1)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_wide_products_neither_overflow_nor_vanish(dtype: str) -> None:
    left, right = sample("wide", dtype=dtype), sample("wide", dtype=dtype, tensor="B")
    products = np.abs(left.astype(np.float64) * right)
    assert products.sum(axis=0).max() < np.finfo(dtype).max


def test_absent_tensors_are_left_out() -> None:
    op = make_toy()
    assert set(make_inputs(op, op.problems[0])) == {"A", "B", "bias"}
    assert set(make_inputs(op, op.problems[2])) == {"A", "B"}


@pytest.mark.parametrize(
    ("dtype", "distribution", "message"),
    [
        ("float32", "gaussian", "no input distribution 'gaussian'; there are: normal, uniform"),
        ("float7", "normal", "NumPy knows no dtype 'float7'"),
        ("complex64", "normal", "no random values for dtype 'complex64'"),
    ],
)
def test_what_is_not_known_is_refused(dtype: str, distribution: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        sample(distribution, dtype=dtype)


@pytest.mark.parametrize(("distribution", "place"), [("largest_first", 0), ("largest_last", 32), ("largest_middle", 16)])
def test_the_largest_of_each_row_is_where_the_name_says(distribution: str, place: int) -> None:
    values = sample(distribution)
    assert (values.argmax(axis=1) == place).all()
    gaps = np.diff(np.sort(values, axis=1), axis=1)[:, -1]
    assert (gaps[::2] > 88).all() and (gaps[1::2] < 20).all() and (gaps > 10).all()


def test_the_largest_takes_every_place_in_turn() -> None:
    assert set(sample("largest_anywhere").argmax(axis=1)) == set(range(33))


def test_all_of_a_row_are_equal_but_one_at_most() -> None:
    counts = [len(np.unique(row)) for row in sample("one_differs")]
    assert set(counts) == {1, 2}
    assert sum(c == 1 for c in counts) == 64 // 5
    assert all(np.unique(row, return_counts=True)[1].min() in (1, 33) for row in sample("one_differs"))


def test_shifted_rows_lie_far_from_zero_on_both_sides() -> None:
    means = sample("shifted").mean(axis=1)
    assert (means[::2] < -100).all() and (means[1::2] > 100).all()
