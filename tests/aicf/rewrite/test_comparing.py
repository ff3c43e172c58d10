"""Results before and after a rewrite, compared: what rounding explains in each dtype, and what it never does."""

from __future__ import annotations

import numpy as np
import pytest

from aicf.opset import find_dtype
from aicf.rewrite.checking import compare


@pytest.mark.parametrize(("dtype", "unit"), [("float64", 2.0**-52), ("float32", 2.0**-23), ("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
def test_rounding_explains_some_units_of_the_results_dtype(dtype: str, unit: float) -> None:
    a = np.array([1.0, 4.0]).astype(find_dtype(dtype))
    b = (a.astype(np.float64) * (1 + 2 * unit)).astype(a.dtype)
    delta, scale, bound = compare([a], [b])
    assert 0 < delta <= bound
    assert (scale, bound) == (4.0, 64 * 4 * unit)


@pytest.mark.parametrize("other", [np.nan, -np.inf, 1.0])
def test_infinities_are_compared_by_sign_and_kind(other: float) -> None:
    a, b = np.array([np.inf, 1.0]), np.array([other, 1.0])
    assert compare([a], [b])[0] == np.inf
    assert compare([a], [a])[0] == 0
