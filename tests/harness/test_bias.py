"""The mean signed error: roundings cancel, what is biased does not, and a few rows prove nothing."""

from __future__ import annotations

import numpy as np
import pytest

from harness.verify.bias import Bias, pool
from harness.verify.compare import compare
from harness.verify.findings import FaultKind, Tally


def make_output(share: float, rows: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an output whose errors are uniform within the bound, or all ``share`` of it; reference and bound beside it."""
    rng = np.random.default_rng(1)
    expected = rng.standard_normal((rows, 8))
    bound = np.full(expected.shape, 1e-3)
    error = rng.uniform(-1, 1, expected.shape) if share == 0 else np.full(expected.shape, share)
    return expected + error * bound, expected, bound


def test_roundings_cancel_and_a_bias_is_told_with_its_sign() -> None:
    fair, biased = compare(*make_output(0.0)), compare(*make_output(-0.9))
    assert fair.ok and biased.ok and biased.max_error_ratio < 1
    assert abs(fair.bias.mean) < 0.05 and fair.bias.find_fault() == ""
    assert biased.bias == Bias(pytest.approx(-0.9), 200)  # type: ignore[arg-type]
    assert "200 rows is -0.90 of the bound" in biased.bias.find_fault()


@pytest.mark.parametrize(("mean", "rows", "refused"), [(0.9, 53, True), (0.9, 40, False), (0.5, 172, True), (0.49, 10**6, False)])
def test_only_what_chance_cannot_be_is_a_fault(mean: float, rows: int, refused: bool) -> None:
    assert bool(Bias(mean, rows).find_fault()) is refused


def test_problems_are_pooled_by_their_rows() -> None:
    assert pool([Bias(1.0, 1), Bias(0.0, 3), Bias()]) == Bias(0.25, 4)
    assert pool([]) == Bias()


def test_a_wrong_output_has_no_bias() -> None:
    assert compare(*make_output(1.5)).bias == Bias()


def test_only_independent_inputs_count() -> None:
    tally = Tally()
    tally.note_comparison(compare(*make_output(0.9)), "ties")
    tally.note_bias()
    assert tally.faults == []
    tally.note_comparison(compare(*make_output(0.9)))
    tally.note_bias()
    assert [f.kind for f in tally.faults] == [FaultKind.BIASED]
