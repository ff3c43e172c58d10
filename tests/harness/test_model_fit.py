"""Fitting and judging the time model: known parameters are found again, held-out points are not fitted to, ranks are Spearman's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.model.fit import (
    PRIOR,
    Point,
    correlate_ranks,
    find_best_share,
    find_first_tenth,
    fit_parameters,
    hold_out,
    model_points,
    split_by_op,
    split_by_variant,
)
from harness.model.time_model import LATENCIES, THROUGHPUTS, combine

TRUTH = {**PRIOR, "dram": 1.4, "issue": 2.0, "latency_far": 900.0}


def make_points(count: int = 90) -> list[Point]:
    rng = np.random.default_rng(5)
    points = []
    for i in range(count):
        terms = dict.fromkeys((*THROUGHPUTS, *LATENCIES), 0.0)
        terms |= {name: float(v) for name, v in zip(("dram", "issue", "shared"), 10 ** rng.uniform(0, 3, 3), strict=True)}
        terms["far"] = float(10 ** rng.uniform(-3, 0))
        points.append(Point(f"op{i % 3}", f"v{i // 2}", f"p{i % 2}", terms, combine(terms, TRUTH)))
    return points


def test_a_fit_finds_the_parameters_that_made_the_times() -> None:
    points = make_points()
    found = fit_parameters(points)
    for name in ("dram", "issue", "latency_far"):
        assert found[name] == pytest.approx(TRUTH[name], rel=0.1)
    assert found["fp64"] == pytest.approx(PRIOR["fp64"])  # nothing tells it
    modelled = model_points(points, found)
    assert np.abs(np.log(modelled / [p.measured_us for p in points])).max() < 0.05


def test_one_point_and_all_points_are_joined_alike() -> None:
    points = make_points(6)
    np.testing.assert_allclose(model_points(points, TRUTH), [combine(p.terms, TRUTH) for p in points])


def test_folds_hold_out_every_point_once_and_keep_a_variant_together() -> None:
    points = make_points()
    for folds in (split_by_variant(points), split_by_op(points)):
        assert sorted(i for fold in folds for i in fold) == list(range(len(points)))
    place = {i: n for n, fold in enumerate(split_by_variant(points)) for i in fold}
    assert all(place[i] == place[j] for i, p in enumerate(points) for j, q in enumerate(points) if p.group == q.group)


def test_held_out_times_do_not_depend_on_the_held_out_points() -> None:
    points = make_points(30)
    folds = split_by_op(points)
    before = hold_out(points, folds)
    spoiled = [Point(p.op, p.variant, p.problem, p.terms, 1e3 * p.measured_us if p.op == "op0" else p.measured_us) for p in points]
    after = hold_out(spoiled, folds)
    held = folds[0]
    np.testing.assert_allclose(before[held], after[held])


def test_rank_correlation() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert correlate_ranks(a, np.exp(a)) == pytest.approx(1.0)
    assert correlate_ranks(a, -a) == pytest.approx(-1.0)
    assert correlate_ranks(a, np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(0.8)
    assert correlate_ranks(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(math.sqrt(3) / 2)
    assert math.isnan(correlate_ranks(a, np.ones(4)))


def test_best_share_is_the_place_of_the_fastest_in_the_models_order() -> None:
    measured, modelled = np.array([5.0, 1.0, 3.0, 9.0]), np.array([2.0, 4.0, 3.0, 8.0])
    assert find_best_share(measured, modelled) == 0.75
    assert find_best_share(measured, measured) == 0.25
    tied = np.array([1.004, 1.0, 3.0, 9.0])
    assert find_best_share(tied, modelled) == 0.75
    assert find_best_share(tied, modelled, 0.005) == 0.25


def test_the_first_tenth_loses_what_its_fastest_takes_longer() -> None:
    measured, modelled = np.arange(1.0, 31.0), np.roll(np.arange(1.0, 31.0), -2)  # the best is the model's third
    assert find_first_tenth(measured, modelled) == 1.0
    assert find_first_tenth(measured, modelled, 0.05) == 29.0
