"""Sweeps: the file round trip, and that a wrong or refused variant is a point with its reason and never a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import RecordError
from harness.stats import StopReason
from harness.sweep import Sweep, SweepPoint, load_sweep, make_policy, save_sweep

POINTS = (
    SweepPoint("toy", "a/n1", "N4", "passed", code_hash="ab", median_us=3.5, q1_us=3.25, q3_us=4.0, num_samples=20, clock_mhz=1980.0),
    SweepPoint("toy", "a/n2", "N4", "unsupported", "N must be 3"),
)


def test_a_sweep_survives_its_file(tmp_path: Path) -> None:
    sweep = Sweep({"device": "NVIDIA H200", "date": "2026-11-21"}, POINTS)
    save_sweep(tmp_path / "s.json", sweep)
    assert load_sweep(tmp_path / "s.json") == sweep


@pytest.mark.parametrize("text", ["", "[]", '{"format": "sweep 0", "about": {}, "points": []}', '{"format": "sweep 1"}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"s\.json"):
        load_sweep(path)


def test_the_policy_takes_the_samples_that_were_asked_for() -> None:
    rule = make_policy(20).stop
    assert rule.decide([1.0 + 0.01 * i for i in range(19)], 0.1) is None
    assert rule.decide([1.0 + 0.01 * i for i in range(20)], 0.1) is StopReason.MAX_SAMPLES
    assert rule.decide([1.0] * 5, 0.6) is StopReason.BUDGET
