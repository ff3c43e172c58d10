"""Sampling with the next batch queued before the last one is read, on a fake GPU that idles while it has nothing to do."""

from __future__ import annotations

import ctypes
import math
import threading
from dataclasses import replace

import numpy as np
import pytest

from device.interface import Event, Stream
from harness.sweep.worker import make_policy
from harness.timing.batches import Mode, TimingError
from harness.timing.nvml import ClockMonitor
from harness.timing.stats import StopReason
from harness.timing.timer import Timer
from tests.harness.fake_device import FakeDevice, FakeEvent, FakeInstruments, FakeStream
from tests.harness.test_timing import FakeNvml

CALL_US = 8.0
POLICY = make_policy(20, 5)


class HostStream(FakeStream):
    """Calls cost the host time."""

    device: IdlingDevice

    def record(self, event: Event) -> None:
        self.device.host_us += CALL_US
        super().record(event)
        assert isinstance(event, FakeEvent)
        self.device.recorded.append(event)


class IdlingDevice(FakeDevice):
    """A GPU that begins what was queued on a held stream when the host lets it go, and not before: until then it idles."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[FakeEvent] = []
        self.idle_us = 0.0

    def create_stream(self, *, non_blocking: bool = True) -> FakeStream:
        return HostStream(self, self._make_handle())


class IdlingInstruments(FakeInstruments):
    """Letting a stream go moves what was queued on it to where the host is."""

    device: IdlingDevice

    def hold(self, stream: Stream) -> int:
        self.device.host_us += CALL_US
        self.device.recorded.clear()
        self.held: list[int] = []
        return super().hold(stream)

    def stamp(self, stream: Stream, index: int) -> None:
        self.device.host_us += CALL_US
        super().stamp(stream, index)
        self.held.append(index)

    def release(self) -> None:
        super().release()
        if not self.held:
            return
        late_us = max(0.0, self.device.host_us - self.stamps_us[self.held[0]])
        self.device.idle_us += late_us
        self.device.clock_us += late_us
        for event in self.device.recorded:
            event.at_us += late_us
        for index in self.held:
            self.stamps_us[index] += late_us


class Rig:
    """A timer whose launches take ``time_us`` on the GPU."""

    def __init__(self, time_us: float = 1000.0) -> None:
        self.device = IdlingDevice()
        self.tools = IdlingInstruments(self.device)
        self.time_us = time_us
        self.num_launches = 0
        self.pauses: list[float] = []
        self.timer = Timer(self.device, POLICY, lambda: self.device.host_us * 1e-6, self.tools, self.pauses.append)
        self.subject = self.timer.prepare(self.launch, Mode.COLD)
        self.device.idle_us = 0.0

    def launch(self, stream: Stream) -> None:
        self.device.host_us += CALL_US
        self.num_launches += 1
        self.device.enqueue(stream.handle, lambda: setattr(self.device, "clock_us", self.device.clock_us + self.time_us))


def test_the_gpu_does_not_wait_for_the_host() -> None:
    rig = Rig()
    started_us, before = rig.device.clock_us, rig.num_launches
    (run,) = rig.timer.sample([rig.subject])
    assert run.reason is StopReason.SETTLED and run.settled and run.times_us == pytest.approx([1000.0] * 10)
    assert rig.num_launches - before == 20, "two windows of five, of which the second runs into the samples, and these"
    assert rig.device.idle_us < 0.02 * (rig.device.clock_us - started_us)


def test_batch_by_batch_it_would_wait() -> None:
    """What the sampler is for: the same samples in calls of their own."""
    rig = Rig()
    started_us = rig.device.clock_us
    for _ in range(4):
        rig.timer.run_batch([rig.subject] * 5)
    assert rig.device.idle_us > 0.03 * (rig.device.clock_us - started_us)


def test_all_samples_are_kept_in_their_order() -> None:
    rig = Rig()
    drawn = iter(range(100))

    def launch(stream: Stream) -> None:
        time_us = 1000.0 * (1 + 0.1 * (next(drawn) % 3))
        rig.device.enqueue(stream.handle, lambda: setattr(rig.device, "clock_us", rig.device.clock_us + time_us))

    subject = replace(rig.subject, run=launch)
    policy = replace(POLICY, warmup_agreement=1.0)
    rig.timer.policy = policy
    (run,) = rig.timer.sample([subject])
    assert run.reason is StopReason.MAX_SAMPLES and len(run.times_us) == len(run.clocks_mhz) == 20
    assert run.times_us == pytest.approx([1000.0 * (1 + 0.1 * (i % 3)) for i in range(next(drawn) - 20, next(drawn) - 1)])


def test_what_was_too_slow_from_the_first_is_not_warmed_up_for() -> None:
    rig = Rig()
    before = rig.num_launches
    (run,) = rig.timer.sample([rig.subject], 900.0)
    assert (run.reason, len(run.times_us), run.warmup_s, run.settled) == (StopReason.TOO_SLOW, 5, 0.0, False)
    assert rig.num_launches - before == 5
    (run,) = rig.timer.sample([replace(rig.subject, least_us=0.0)], 900.0)
    assert (run.reason, len(run.times_us), run.settled) == (StopReason.TOO_SLOW, 10, True), "the first samples say nothing"


def test_a_slow_start_alone_is_no_reason_to_give_up() -> None:
    rig = Rig()
    rig.time_us = 800.0
    (run,) = rig.timer.sample([rig.subject], 900.0)
    assert (run.reason, run.settled) == (StopReason.SETTLED, True) and run.times_us == pytest.approx([800.0] * 10)
    rig.time_us = 1000.0
    rig.tools.clock_mhz = lambda now_us: 900.0
    assert rig.timer.prepare(rig.launch, Mode.COLD).least_us == 0.0, "a slowed-down GPU says nothing of the launch"
    (run,) = rig.timer.sample([rig.subject], 900.0)
    assert len(run.times_us) >= 10 and rig.pauses


def test_a_batch_that_overruns_is_queued_again_smaller() -> None:
    rig = Rig()
    rig.tools.max_held = 2
    (run,) = rig.timer.sample([rig.subject])
    assert run.times_us == pytest.approx([1000.0] * 10)
    rig.tools.max_held = 0
    with pytest.raises(TimingError, match="held too long"):
        rig.timer.sample([rig.subject])
    rig.tools.max_held = 10**9
    (run,) = rig.timer.sample([rig.subject])
    assert run.times_us == pytest.approx([1000.0] * 10), "nothing is left of what failed"


def test_a_launch_that_fails_leaves_nothing_behind() -> None:
    rig = Rig()
    left = iter(range(8))

    def launch(stream: Stream) -> None:
        if next(left, None) is None:
            raise RuntimeError("no more")
        rig.launch(stream)

    with pytest.raises(TimingError, match="no more"):
        rig.timer.sample([replace(rig.subject, run=launch)])
    assert rig.tools.calls[-1] == "release" and rig.timer._batches.num_ahead == 0
    (run,) = rig.timer.sample([rig.subject])
    assert run.times_us == pytest.approx([1000.0] * 10)


def test_the_driver_is_asked_while_the_gpu_works() -> None:
    asked_by: list[str] = []

    class Nvml(FakeNvml):
        def nvmlDeviceGetClockInfo(self, handle: object, kind: int, value: object) -> int:  # noqa: N802
            asked_by.append(threading.current_thread().name)
            return super().nvmlDeviceGetClockInfo(handle, kind, value)

    rig = Rig()
    rig.timer._batches._monitor = ClockMonitor(Nvml(), ctypes.c_void_p())
    (run,) = rig.timer.sample([rig.subject])
    assert [r.sm_mhz for r in run.readings] == [1500.0], "each run has a reading of its own"
    assert asked_by and threading.main_thread().name not in asked_by
    rig.tools.clock_mhz = lambda now_us: math.nan
    (run,) = rig.timer.sample([rig.subject])
    assert np.array(run.clocks_mhz) == pytest.approx(1500.0), "where the clock cannot be read, the driver's word stands in"
