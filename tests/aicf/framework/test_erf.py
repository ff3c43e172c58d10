"""The error function of arrays beside that of single numbers."""

from __future__ import annotations

import math

import numpy as np

from aicf.opset.erf import compute_erf


def test_it_is_within_a_unit_in_the_last_place_everywhere() -> None:
    rng = np.random.default_rng(0)
    drawn = [rng.normal(scale=s, size=5000) for s in (1e-8, 0.1, 1.0, 3.0)]
    edges = np.array([0.0, 5e-324, 1e-300, 0.84375, 1.25, 1.0 / 0.35, 6.0, 1e9, np.inf])
    beside = [edges, np.nextafter(edges, 0.0), np.nextafter(edges, np.inf)]
    x = np.concatenate([*drawn, *beside, np.linspace(-7.0, 7.0, 10001)])
    x = np.concatenate([x, -x])
    truth = np.array([math.erf(v) for v in x])
    assert (np.abs(compute_erf(x) - truth) <= np.spacing(np.abs(truth))).all()


def test_shapes_signs_and_nan_stay() -> None:
    made = compute_erf(np.array([[np.nan, -0.0], [0.0, -1.0]]))
    assert made.shape == (2, 2) and np.isnan(made[0, 0]) and np.signbit(made).tolist()[0][1] is True and not np.signbit(made[1, 0])
    assert compute_erf(0.5).shape == () and compute_erf(np.zeros((0, 3))).shape == (0, 3)
