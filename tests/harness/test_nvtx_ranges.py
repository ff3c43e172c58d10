"""NVTX ranges: what is timed or verified runs inside a range that names op, variant, problem and phase, and is out of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from device.interface import Stream
from harness import nvtx_ranges
from harness.nvtx_ranges import find_range, mark_range, name_range
from harness.timing.timer import Mode
from harness.verify.crosscheck import record_outputs
from harness.verify.findings import Status
from harness.verify.judge import Verifier
from harness.verify.plan import Effort
from tests.harness.fake_device import FakeDevice
from tests.harness.test_timing import Gpu
from tests.harness.toy_op import ToyKernel, make_toy

OP = make_toy()


class Listener:
    """Stands for a tool: keeps the ranges that are open, and every name that was opened."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.seen: dict[str, None] = {}

    def get_event_attributes(self, message: str) -> str:
        return message

    def push_range(self, message: str) -> None:
        self.open.append(message)
        self.seen[message] = None

    def pop_range(self) -> None:
        self.open.pop()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    found = Listener()
    monkeypatch.setattr(nvtx_ranges.nvtx, "get_domain", {nvtx_ranges.DOMAIN: found}.__getitem__)
    find_range.cache_clear()
    yield found
    find_range.cache_clear()


def test_a_range_has_four_parts_and_closes_when_its_work_fails(listener: Listener) -> None:
    assert name_range("op", "kernel/bm1_bn2", "M1-act=none", "cold") == "op/kernel:bm1_bn2/M1-act=none/cold"
    with pytest.raises(ZeroDivisionError), mark_range("op", "v", "p", "verify"):
        assert listener.open == ["op/v/p/verify"]
        1 / 0  # noqa: B018
    assert listener.open == []


def test_no_name_is_no_range(listener: Listener) -> None:
    with find_range(""):
        assert listener.open == []


def test_every_sample_is_queued_in_its_range(listener: Listener) -> None:
    gpu = Gpu(lambda _: 50.0)
    inside: list[list[str]] = []

    def launch(stream: Stream) -> None:
        inside.append(list(listener.open))
        gpu.launch(stream)

    timer = gpu.make_timer()
    subject = timer.prepare(launch, Mode.COLD, "o/v/p/cold")
    inside.clear()
    timer.measure([subject])
    assert len(inside) > 30 and all(names == ["o/v/p/cold"] for names in inside)


def test_a_crosscheck_names_each_launch(listener: Listener) -> None:
    device, problem = FakeDevice(), OP.problems[0]
    assert list(record_outputs(device, OP, {OP.variants[0]: ToyKernel(device)}, [problem], ["normal"]))
    assert list(listener.seen) == [name_range(OP.name, OP.variants[0].name, problem.name, "crosscheck")] and listener.open == []


def test_verify_runs_each_problem_in_a_range(listener: Listener) -> None:
    device = FakeDevice()
    result = Verifier(OP, device, Effort(num_hidden=0)).verify(OP.variants[0], ToyKernel(device))
    assert listener.open == []
    done = [p.problem for p in result.problems if p.status is not Status.NOT_RUN]
    assert list(listener.seen) == [name_range(OP.name, OP.variants[0].name, problem, "verify") for problem in done]
