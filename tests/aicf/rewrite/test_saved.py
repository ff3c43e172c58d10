"""Snapshots in files: a run goes on from one with the same bits, also where it was killed while it was rewritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aicf.data import DataLoader
from aicf.errors import StateError
from aicf.rewrite.log import Statistics
from tests.aicf.rewrite.killed_run import PLANNED, X, Y, start

ROOT = Path(__file__).resolve().parents[3]


def load() -> DataLoader:
    return DataLoader((X, Y), batch=8, seed=5)


def test_a_run_goes_on_from_a_file_with_the_same_bits(tmp_path: Path) -> None:
    path, run, loader = tmp_path / "run.safetensors", start(), load()
    run.fit(loader, 3)
    for _, rule in PLANNED:
        run.apply(rule)
    run.set_batch(4)
    run.fit(loader, 3)
    run.snapshot().save(path)
    expected = run.fit(loader, 4)
    again, other = start(), load()
    again.resume(path, other)
    assert other.batch == 4 and len(again.records) == 6 and again.steps_done == 6
    assert again.fit(other, 4) == expected and again.log.losses == run.log.losses
    assert [s.step for s in again.log.find_all(Statistics)] == [s.step for s in run.log.find_all(Statistics)] == [2, 5, 7, 9]
    one, two = ({k: v for k, v in each.step.state_dict().items() if not k.startswith("observation:")} for each in (run, again))
    assert one.keys() == two.keys() and all(np.array_equal(one[k], two[k]) for k in one)
    again.thaw("0")
    run.thaw("0")
    assert again.fit(other, 2) == run.fit(loader, 2)  # with the moments that rested


def test_a_file_of_another_run_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    path, run = tmp_path / "run.safetensors", start()
    run.widen("0", 12)
    run.snapshot().save(path)
    other = start()
    other.deepen("1")
    before, step = other.step.state_dict(), other.step
    with pytest.raises(StateError, match="began with another step"):
        other.resume(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StateError, match=r"run\.safetensors: cannot be read"):
        other.resume(path)
    assert other.step is step and all(np.array_equal(before[k], v) for k, v in step.state_dict().items())


def test_a_run_that_is_killed_while_it_is_rewritten_goes_on_from_before_or_after_it(tmp_path: Path) -> None:
    environ = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "AICF_DEVICE": "emulated"}
    command = [sys.executable, "-m", "tests.aicf.rewrite.killed_run", str(tmp_path), "2", "1"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rewrites"] == len(PLANNED)
    assert all(trial["killed"] and trial["same"] for trial in found["trials"]), found
