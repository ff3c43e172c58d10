"""Bit comparison of two recordings: distances in units of the last place, and refusal of what does not match."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import RecordError
from harness.verify.crosscheck import load_outputs, measure_ulps, save_outputs

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(FLOATS)
def test_the_next_float_is_one_ulp_away(value: float) -> None:
    x = np.array([value], np.float32)
    with np.errstate(over="ignore"):  # after the largest comes infinity
        following = np.nextafter(x, np.float32(np.inf))
    if np.isfinite(following).all() and not (x == 0).all() and not (following == 0).all():
        assert measure_ulps(x, following)[0] == 1


@given(FLOATS, FLOATS)
def test_distance_is_symmetric_and_zero_only_for_equal_values(a: float, b: float) -> None:
    x, y = np.array([a], np.float32), np.array([b], np.float32)
    assert measure_ulps(x, y)[0] == measure_ulps(y, x)[0] >= 0
    assert (measure_ulps(x, y)[0] == 0) == (a == b)


def test_zeros_of_both_signs_are_no_distance_apart() -> None:
    assert measure_ulps(np.array([0.0], np.float32), np.array([-0.0], np.float32))[0] == 0


def test_recordings_survive_a_round_trip_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "outputs.npz"
    save_outputs(path, {"naive|n5|normal|y": np.arange(5, dtype=np.float32)}, "a device")
    outputs, about = load_outputs(path)
    assert about == "a device" and outputs["naive|n5|normal|y"].tolist() == [0, 1, 2, 3, 4]
    path.write_bytes(b"not a recording")
    with pytest.raises(RecordError, match="holds no outputs"):
        load_outputs(path)
