"""Large problems of which some blocks run: what those have wrong is the variant's fault unless other blocks have a part in it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from device import DeviceError
from device.observer import LaunchCounters
from harness.discover import find_op
from harness.spec import Problem
from harness.verify.feasibility import NotJudgedError, require_few_bytes
from harness.verify.findings import FaultKind, Tally
from harness.verify.places import Restriction
from harness.verify.sampling import SampledRun

OP = find_op("softmax").op


class Observer:
    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.num_cleared = 0

    def clear_error(self) -> None:
        self.num_cleared += 1

    def take_counters(self) -> list[LaunchCounters]:
        return [LaunchCounters("kernel", (9, 1, 1), (32, 1, 1), self.counts)]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return, filled as they come, whether each launch is counted; nothing else is done."""
    made: list[bool] = []
    for owner, name, answer in ((SampledRun, "_find_written", {}), (Restriction, "choose_places", {}), (SampledRun, "_upload", ({}, None))):
        monkeypatch.setattr(owner, name, lambda *_, _answer=answer: _answer)
    monkeypatch.setattr(SampledRun, "_launch", lambda self, case, limit, *, counters=False: made.append(counters))
    return made


def judge(monkeypatch: pytest.MonkeyPatch, found: Callable[[Tally], None], **counts: int) -> Tally:
    monkeypatch.setattr(SampledRun, "_judge", lambda self, *_: found(self.tally))
    device: Any = SimpleNamespace(observer=Observer(counts))
    run = SampledRun(device, OP, OP.problems[0], None, Tally(), None)  # type: ignore[arg-type]
    run.tally.add(FaultKind.OUT_OF_BOUNDS_READ, "sampled", "seen while it was located")
    try:
        run._judge_partial(None)  # type: ignore[arg-type]
    except NotJudgedError as error:
        run.tally.checks[f"not judged: {error}"] = None
    return run.tally


def add_mismatch(tally: Tally) -> None:
    tally.add(FaultKind.MISMATCH, "sampled", "2 elements wrong")


def fail_to_launch(tally: Tally) -> None:
    raise DeviceError("the launch failed")


def test_what_is_right_is_not_counted(monkeypatch: pytest.MonkeyPatch, launches: list[bool]) -> None:
    tally = judge(monkeypatch, lambda tally: tally.note_check("sampled"), global_atomics=3)
    assert launches == [False] and list(tally.checks) == ["sampled"] and len(tally.faults) == 1


def test_what_is_wrong_without_atomics_is_the_variants_fault(monkeypatch: pytest.MonkeyPatch, launches: list[bool]) -> None:
    tally = judge(monkeypatch, add_mismatch, global_atomics=0)
    assert launches == [False, True] and [f.kind for f in tally.faults] == [FaultKind.OUT_OF_BOUNDS_READ, FaultKind.MISMATCH]


@pytest.mark.parametrize("counter", ["global_atomics", "bulk_reduce_bytes"])
@pytest.mark.parametrize("found", [add_mismatch, fail_to_launch])
def test_with_atomics_nothing_is_said_but_what_was_seen_before(
    monkeypatch: pytest.MonkeyPatch, launches: list[bool], found: Callable[[Tally], None], counter: str
) -> None:
    tally = judge(monkeypatch, found, **{counter: 7})
    assert launches == [False, True] and [f.kind for f in tally.faults] == [FaultKind.OUT_OF_BOUNDS_READ]
    assert "atomics on global memory" in next(iter(tally.checks))


def test_a_launch_that_fails_without_atomics_fails(monkeypatch: pytest.MonkeyPatch, launches: list[bool]) -> None:
    with pytest.raises(DeviceError, match="the launch failed"):
        judge(monkeypatch, fail_to_launch)


def test_few_blocks_that_would_reach_the_limit_are_not_started() -> None:
    require_few_bytes(OP, Problem({"rows": 8, "columns": 131072}))
    with pytest.raises(NotJudgedError, match="move 1074 MB, too many to run here"):
        require_few_bytes(OP, Problem({"rows": 1024, "columns": 131072}))


def test_where_a_place_needs_most_of_the_inputs_a_whole_launch_is_not_judged() -> None:
    op = find_op("gemm_backward").op
    attributes = {"dtype": "float32", "w_layout": "kn"}
    tall = op.complete(Problem({"M": 4194864, "N": 1024, "K": 64}, attributes))
    wide = op.complete(Problem({"M": 64, "N": 1024, "K": 4195000}, attributes))
    assert "the reference of a single place" in Restriction(op, tall, 1).find_obstacle()
    assert not Restriction(op, wide, 1).find_obstacle()
    narrow = op.complete(Problem({"M": 4194704, "N": 64, "K": 1024}, attributes))
    assert "a single place needs" in Restriction(op, narrow, 1).find_obstacle()
    device: Any = SimpleNamespace(observer=None, properties=SimpleNamespace(memory_bytes=1 << 40))
    with pytest.raises(NotJudgedError, match="the reference of a single place"):
        SampledRun(device, op, tall, None, Tally(), None).run()  # type: ignore[arg-type]
