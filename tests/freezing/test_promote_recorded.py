"""Times that were recorded on a GPU fill buckets that have none, if the machine code is still the one that was timed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import FrozenError
from harness.freezing.decide import recorded_times
from harness.freezing.decide.promote import Decision, Request
from harness.freezing.decide.promote_recorded import promote_recorded
from harness.freezing.decide.recorded_times import RecordedTime, Recording, find_untimed_code, list_variants, read_recording
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.verify import check_op
from harness.records.published import list_published
from tests.freezing.test_promote import BUCKET, LOADED, make_candidate, make_hold, make_session, run_promote

OLD, NEW = "block_online/threads128", "block_online/threads256"
CONDITIONS = {
    "device": "an H200",
    "driver": 13000,
    "toolchain": "nvcc",
    "commit": "c",
    "host": "h",
    "command": "bench softmax",
    "recorded_in": "f",
}
LONG = "rows1024_columns131072"


def make_recording(times_us: dict[str, dict[str, float]]) -> Recording:
    times = {p: {n: RecordedTime(t, f"{p} {n}", (t, t)) for n, t in row.items()} for p, row in times_us.items()}
    return Recording(times, CONDITIONS, "HEAD")


def run_adopt(root: Path, names: dict[str, int], recording: Recording, **request: Any) -> dict[str, Decision]:
    candidates = [make_candidate(name, number) for name, number in names.items()]
    wanted = Request(**({"command": "promote softmax"} | request))
    decisions = promote_recorded(make_session(), read_frozen_op(root, "softmax"), candidates, wanted, recording, lambda _: None)
    assert check_op(root, "softmax") == []
    return {d.bucket.split("/")[-1]: d for d in decisions if "/half/" not in d.bucket}


def test_the_least_mean_time_takes_a_bucket_and_every_time_of_the_set_is_kept(tmp_path: Path) -> None:
    recording = make_recording(
        {
            "rows8192_columns8192": {OLD: 100.0, NEW: 90.0, "cudnn": 1.0},
            "rows4096_columns1000": {OLD: 40.0, NEW: 41.0},
            LONG: {OLD: 500.0, NEW: 600.0},
        }
    )
    assert list_variants(LOADED.op, recording) == [OLD, NEW]
    found = run_adopt(tmp_path, {OLD: 1, NEW: 2}, recording)
    assert "threads256" in found["middle_rows"].kernel and "on 1 of 1 problems, recorded on an H200" in found["middle_rows"].reason
    assert "threads128" in found["to_131072"].kernel and "on 1 of 2 problems" in found["to_1024"].reason
    assert (found["short_rows"].outcome, found["short_rows"].reason) == ("refused", "no problem of the bucket is recorded")
    frozen = read_frozen_op(tmp_path, "softmax")
    assert {e["status"] for e in frozen.entries} == {"measured"}
    times = {(m["problem"], m["kernel"].split("__")[1]): m["median_us"] for m in frozen.medians}
    assert len(times) == 6 and times[LONG, "threads256"] == 600.0 and times["rows8192_columns8192", "threads128"] == 100.0
    entry = next(e for e in frozen.entries if e["bucket"]["region"] == "middle_rows")
    evidence = json.loads((tmp_path / "softmax" / entry["evidence"]["file"]).read_text())
    assert evidence["conditions"]["recorded_in"] == "f"
    assert evidence["contests"][0]["contenders"] == [OLD, NEW, "cudnn"] and evidence["contests"][0]["times_us"][0] == [100.0, 100.0]


def test_a_problem_of_a_run_that_was_cut_short_says_nothing(tmp_path: Path) -> None:
    recording = make_recording({"rows8192_columns8192": {OLD: 9.0, NEW: 8.0}, LONG: {OLD: 500.0}})
    found = run_adopt(tmp_path, {OLD: 1, NEW: 2}, replace(recording, all_timed=True))
    assert "threads256" in found["middle_rows"].kernel
    assert (found["long_rows"].outcome, found["long_rows"].reason) == ("refused", "no problem of the bucket is recorded")


def test_recorded_times_challenge_no_measured_entry(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}))
    found = run_adopt(tmp_path, {NEW: 2}, make_recording({"rows4096_columns1000": {NEW: 1.0}}), buckets=(BUCKET,))
    assert (found["to_1024"].outcome, found["to_1024"].reason) == ("kept", "recorded times challenge no measured entry")


def test_a_dry_run_of_recorded_times_writes_nothing(tmp_path: Path) -> None:
    found = run_adopt(tmp_path, {NEW: 2}, make_recording({"rows8192_columns8192": {NEW: 1.0}}), dry_run=True)
    assert found["middle_rows"].outcome == "promoted" and list(tmp_path.iterdir()) == []


def test_times_of_another_machine_code_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    builds = [make_candidate(OLD, 1).build, make_candidate(NEW, 2).build]
    recording = Recording({}, CONDITIONS, "HEAD", {OLD: f"{1:064x}", NEW: f"{3:064x}"})
    found = find_untimed_code(make_session(), recording, builds)
    assert found[OLD] == "" and found[NEW] == "the machine code that was timed at HEAD differs: time it again"
    # A file without hashes: the variants are built as they were at its commit.
    session = make_session()
    session.toolchain, session.settings = None, SimpleNamespace(jobs=1)
    monkeypatch.setattr(recorded_times, "find_op_at", lambda name, revision: (LOADED, revision))
    monkeypatch.setattr(
        recorded_times, "build_op", lambda loaded, variants, **_: [SimpleNamespace(variant=v, code_hash=f"{1:064x}") for v in variants]
    )
    found = find_untimed_code(session, Recording({}, CONDITIONS, "abc"), builds)
    assert found[OLD] == "" and "timed at abc" in found[NEW]
    # Its commit does not say what was timed where the tree had changes; a hash does.
    found = find_untimed_code(session, Recording({}, CONDITIONS, "abc", {NEW: f"{2:064x}"}, dirty=True), builds)
    assert "timed with changes beyond commit abc, and nothing says which machine code" in found[OLD] and found[NEW] == ""


def test_published_records_and_goals_are_read(tmp_path: Path) -> None:
    (path,) = [p for p in list_published("softmax") if p.suffix == ".parquet"]
    recording = read_recording(path)
    assert recording.conditions["device"] == "NVIDIA H200"
    assert set(recording.code_hashes) >= set(list_variants(LOADED.op, recording)) != set()
    times = recording.times["rows8192_columns8192"]
    assert all(len(t.samples_us) > 10 and min(t.samples_us) <= t.median_us <= max(t.samples_us) for t in times.values())
    environment = {"device_kind": "cuda", "device_name": "G", "driver_version": 1, "toolchain": "t", "host": "h"}
    rows = {"P": {OLD: {"status": "passed", "mode": "cold", "median_us": 5.0}, NEW: {"status": "failed"}}}
    goals = {"command": "compare softmax", "environment": environment, "commit": "commit abc", "timings": rows}
    (tmp_path / "goals.json").write_text(json.dumps(goals))
    recording = read_recording(tmp_path / "goals.json")
    assert recording.revision == "abc" and list(recording.times["P"]) == [OLD] and not recording.dirty
    (tmp_path / "goals.json").write_text(json.dumps(goals | {"commit": "commit abc with changes"}))
    recording = read_recording(tmp_path / "goals.json")
    assert recording.dirty and recording.revision == "abc" and recording.conditions["commit"] == "abc-dirty"
    goals["environment"] = environment | {"device_kind": "emulated"}
    (tmp_path / "goals.json").write_text(json.dumps(goals))
    with pytest.raises(FrozenError, match="was recorded on the emulated device"):
        read_recording(tmp_path / "goals.json")
