"""The timing protocol on a fake device whose clock only moves when something runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from device.interface import Stream, UnavailableError
from harness.nvml import ClockMonitor, open_monitor
from harness.stats import StopReason, StopRule
from harness.timing import Timer, TimingError, TimingPolicy, check_floor
from tests.harness.fake_device import FakeDevice

POLICY = TimingPolicy(stop=StopRule(min_samples=30, max_samples=200, budget_s=0.5))


class Gpu:
    """A fake device, and launches that take a given time on it."""

    def __init__(self, time_us: Callable[[int], float]) -> None:
        self.device = FakeDevice()
        self.time_us = time_us
        self.num_runs = 0
        self.num_host_launches = 0
        self.host_cost_us = 5.0

    def launch(self, stream: Stream) -> None:
        self.num_host_launches += 1
        self.device.host_us += self.host_cost_us
        self.device.enqueue(stream.handle, self._run)

    def _run(self) -> None:
        self.device.clock_us += self.time_us(self.num_runs)
        self.num_runs += 1

    def make_timer(self, policy: TimingPolicy = POLICY) -> Timer:
        def clock() -> float:
            # Host time goes on a little with every look, so that loops over windows end.
            self.device.host_us += 1e-3
            return self.device.host_us * 1e-6

        return Timer(self.device, policy, clock)


def test_steady_launch_settles_and_keeps_every_sample() -> None:
    gpu = Gpu(lambda _: 50.0)
    timing = gpu.make_timer().measure_cold(gpu.launch)
    assert timing.summary.median == pytest.approx(50.0)
    assert timing.stop_reason is StopReason.SETTLED
    assert timing.settled
    assert timing.warmup_s >= POLICY.warmup_min_s
    assert timing.samples_us.dtype == np.float32
    assert len(timing.samples_us) == timing.summary.num_samples >= 30
    assert (timing.mode, timing.method, timing.launches_per_sample) == ("cold", "events", 1)


def test_short_launches_are_replayed_from_one_graph() -> None:
    gpu = Gpu(lambda _: 4.0)
    timing = gpu.make_timer().measure_hot(gpu.launch)
    assert (timing.method, timing.launches_per_sample) == ("graph", 50)
    assert timing.summary.median == pytest.approx(4.0)
    assert gpu.device.num_graph_launches > 30
    assert gpu.num_host_launches < 300


def test_long_launches_are_queued_one_by_one() -> None:
    gpu = Gpu(lambda _: 150.0)
    timing = gpu.make_timer().measure_hot(gpu.launch)
    assert (timing.method, timing.launches_per_sample) == ("events", 2)
    assert timing.summary.median == pytest.approx(150.0)
    assert gpu.device.num_graph_launches == 0


def test_warm_up_goes_on_until_the_clock_settles() -> None:
    gpu = Gpu(lambda run: 100.0 if run > 4000 else 140.0 - run * 0.01)
    timing = gpu.make_timer().measure_cold(gpu.launch)
    assert timing.summary.median == pytest.approx(100.0)
    assert timing.settled


def test_a_clock_that_never_settles_ends_at_the_cap_and_says_so() -> None:
    gpu = Gpu(lambda run: 100.0 * 1.001 ** (run % 3000))
    timing = gpu.make_timer().measure_cold(gpu.launch)
    assert not timing.settled
    assert timing.warmup_s >= POLICY.warmup_cap_s


def test_noise_stops_at_the_budget() -> None:
    rng = np.random.default_rng(1)
    gpu = Gpu(lambda _: float(rng.uniform(1000.0, 9000.0)))
    timing = gpu.make_timer().measure_cold(gpu.launch)
    assert timing.stop_reason is StopReason.BUDGET
    assert timing.summary.relative_interval > POLICY.stop.relative_interval


def test_a_slow_host_gets_more_time_and_is_kept_out_of_the_samples() -> None:
    gpu = Gpu(lambda _: 120.0)
    gpu.host_cost_us = 90.0
    order: list[str] = []
    real = gpu.device.enqueue
    gpu.device.enqueue = lambda stream, work, name="kernel": (order.append(name), real(stream, work, name))  # type: ignore[method-assign, assignment, return-value]
    timer = gpu.make_timer()
    assert timer.flush_us == pytest.approx(100.0)
    timing = timer.measure_cold(gpu.launch)
    assert timing.host_us == pytest.approx(90.0, abs=1)
    assert timing.summary.median == pytest.approx(120.0)
    assert order[-4:] == ["memset", "memset", "memset", "kernel"], "three times 90 us of queueing take three fills of 100 us"
    assert timer.measure_hot(gpu.launch).method == "graph"


def test_cold_launches_follow_a_flush_of_twice_the_cache() -> None:
    gpu = Gpu(lambda _: 50.0)
    order: list[str] = []
    real = gpu.device.enqueue
    gpu.device.enqueue = lambda stream, work, name="kernel": (order.append(name), real(stream, work, name))  # type: ignore[method-assign, assignment, return-value]
    timer = gpu.make_timer()
    timer.measure_cold(gpu.launch)
    assert order[-4:] == ["memset", "kernel", "memset", "kernel"]
    assert timer._flush.size_bytes >= 2 * gpu.device.properties.l2_bytes
    timer.close()
    assert gpu.device.num_live == 0


def test_launches_that_take_no_time_are_refused() -> None:
    gpu = Gpu(lambda _: 0.0)
    with pytest.raises(TimingError, match="did not enclose the launch"):
        Timer(gpu.device, TimingPolicy(warmup_cap_s=0.01, warmup_min_s=0.0, warmup_window_s=0.0)).measure_cold(gpu.launch)


def test_a_time_below_the_roofline_is_an_error() -> None:
    gpu = Gpu(lambda _: 50.0)
    timing = gpu.make_timer().measure_cold(gpu.launch)
    check_floor(timing, 49.0)
    with pytest.raises(TimingError, match=r"50\.000 us is below the roofline floor of 51\.000 us"):
        check_floor(timing, 51.0)


def test_an_emulated_device_is_refused() -> None:
    with pytest.raises(UnavailableError, match="no GPU times"):
        Timer(FakeDevice(is_emulated=True))


class FakeNvml:
    """NVML of a GPU at 1500 MHz under a power cap; ``status`` is what each query returns."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int, value: object) -> int:  # noqa: N802
        value._obj.value = 1500  # type: ignore[attr-defined]
        return self.status

    def nvmlDeviceGetTemperature(self, handle: object, kind: int, value: object) -> int:  # noqa: N802
        value._obj.value = 60  # type: ignore[attr-defined]
        return self.status

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object, value: object) -> int:  # noqa: N802
        value._obj.value = 0x5  # type: ignore[attr-defined]
        return self.status


def test_clock_and_throttling_are_recorded_where_the_driver_tells() -> None:
    gpu = Gpu(lambda _: 50.0)
    timer = gpu.make_timer()
    assert timer.measure_cold(gpu.launch).to_figures()["clock_mhz"] is None
    timer._monitor = ClockMonitor(FakeNvml(), ctypes.c_void_p())
    figures = timer.measure_cold(gpu.launch).to_figures()
    assert (figures["clock_mhz"], figures["temperature_c"], figures["throttle_reasons"]) == (1500.0, 60.0, ["power cap"])
    timer._monitor = ClockMonitor(FakeNvml(status=3), ctypes.c_void_p())
    assert timer.measure_cold(gpu.launch).clock_mhz is None


def test_no_nvml_is_no_error() -> None:
    assert open_monitor("GPU-0", "libno-such-library.so.1") is None
