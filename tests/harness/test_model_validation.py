"""The model's validation: its tables and files, and what the committed points of an H200 say about the committed parameters."""

from __future__ import annotations

import csv
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.errors import RecordError
from harness.model.fit import correlate_ranks, find_first_tenth, model_points
from harness.model.time_model import PARAMETERS, load_machine
from harness.records.sweeps import SweepPoint, load_sweep
from harness.sweep.model_validation import (
    COLUMNS,
    _check_code,
    make_csv,
    make_report,
    read_points,
    summarize_points,
    validate,
    write_parameters,
)
from harness.targets import find_target
from tests.harness.test_model_fit import TRUTH, make_points

FOLDER = Path(__file__).resolve().parents[2] / "profiles" / "model"
ABOUT = {"device": "NVIDIA H200", "samples": "15", "toolchain": "nvcc 13; g++", "commit": "abc", "date": "2026-11-21"}


def test_report_and_points_round_trip(tmp_path: Path) -> None:
    found = validate(make_points(60))
    report = make_report(found, ABOUT, find_target("h200"))
    assert "60 measured times of 60 variants of op0, op1, op2" in report
    rows = summarize_points(found, found.fitted)
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert rows[0][:3] == ["all", "60", "1.000"]
    path = tmp_path / "points.csv"
    path.write_text(make_csv(found))
    again = read_points(path)
    assert [(p.group, p.problem) for p in again] == [(p.group, p.problem) for p in found.points]
    assert again[7].terms["far"] == pytest.approx(found.points[7].terms["far"], rel=1e-5)


def test_fitted_parameters_replace_those_of_their_target_alone() -> None:
    found = replace(validate(make_points(30)), parameters=TRUTH)
    fitted = "[h200.fitted]\nrecord = 'old'\n[h200.fitted.parameters]\nissue = 9\n\n"
    text = f"[a100]\nx = 1.0\n\n[h200]\nclock_mhz = 5.0  # kept\n\n{fitted}[h100]\ny = 2\n"
    made = write_parameters(text, "h200", found, "new.csv")
    data = tomllib.loads(made)
    assert "# kept" in made and data["a100"] == {"x": 1.0} and data["h100"] == {"y": 2}
    assert data["h200"]["fitted"]["record"] == "new.csv"
    assert data["h200"]["fitted"]["parameters"]["issue"] == TRUTH["issue"]
    assert data["h200"]["fitted"]["kernels"] == list(found.kernels) and found.kernels[0].startswith("op0/")
    assert set(tomllib.loads(write_parameters("[h200]\n", "h200", found, ""))["h200"]["fitted"]["parameters"]) == set(PARAMETERS)


def test_times_of_other_machine_code_are_refused() -> None:
    point = SweepPoint("toy", "a/n1", "N4", "passed", code_hash="ab", median_us=3.5)
    _check_code(point, "ab")
    with pytest.raises(RecordError, match="toy a/n1: the machine code is not what was timed"):
        _check_code(point, "cd")


def test_the_committed_parameters_are_those_of_the_committed_points() -> None:
    points = read_points(FOLDER / "h200.csv")
    with (FOLDER / "h200.csv").open(newline="") as file:
        fitted = np.array([float(row["fitted_us"]) for row in csv.DictReader(file)])
    modelled = model_points(points, load_machine("h200").parameters)
    np.testing.assert_allclose(modelled, fitted, rtol=0.01)


@pytest.mark.parametrize(("column", "name"), [("by_variant_us", "interval"), ("by_op_us", "unseen_interval")])
def test_the_committed_intervals_hold_80_percent_of_the_committed_times_that_were_held_out(column: str, name: str) -> None:
    with (FOLDER / "h200.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    machine = load_machine("h200")
    low, high = getattr(machine, name)
    shares = [float(r["measured_us"]) / float(r[column]) for r in rows]
    assert np.mean([low <= share <= high for share in shares]) == pytest.approx(0.8, abs=0.005)
    assert machine.kernels == {f"{r['op']}/{r['variant'].partition('/')[0]}" for r in rows}
    text = (FOLDER / "h200.md").read_text()
    assert f"{low:.2f} to {high:.2f} times it" in text


def test_the_committed_times_are_those_of_the_sweeps() -> None:
    sweeps = [load_sweep(path) for path in FOLDER.glob("h200-sweep-*.json")]
    timed = {(p.op, p.variant, p.problem): p.median_us for sweep in sweeps for p in sweep.points if p.status == "passed"}
    points = read_points(FOLDER / "h200.csv")
    assert len(points) == len(timed)
    for point in points:
        assert point.measured_us == pytest.approx(timed[point.op, point.variant, point.problem], rel=1e-5)


def test_variants_that_the_fit_did_not_see_are_ranked_as_the_h200_ranks_them() -> None:
    with (FOLDER / "h200.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({(r["op"], r["variant"]) for r in rows}) >= 300 and len({r["op"] for r in rows}) >= 3
    measured = np.array([float(r["measured_us"]) for r in rows])
    for column in ("by_variant_us", "by_op_us"):
        modelled = np.array([float(r[column]) for r in rows])
        assert correlate_ranks(measured, modelled) >= 0.95
        for place in {(r["op"], r["problem"]) for r in rows}:
            members = [i for i, r in enumerate(rows) if (r["op"], r["problem"]) == place]
            assert correlate_ranks(measured[members], modelled[members]) >= 0.85
            assert find_first_tenth(measured[members], modelled[members]) <= 1.02
