"""The timing protocol on a fake device whose clock only moves when something runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from device.interface import DeviceError, Stream, UnavailableError
from harness.timing.batches import Mode, TimingError
from harness.timing.copies import find_copy_us, measure_copies
from harness.timing.nvml import ClockMonitor, LazyMonitor, open_monitor
from harness.timing.results import check_floor
from harness.timing.stats import StopReason, StopRule
from harness.timing.timer import Launch, Timer, TimingPolicy
from tests.harness.fake_device import FakeDevice, FakeInstruments

POLICY = TimingPolicy(stop=StopRule(min_samples=30, max_samples=200, budget_s=0.5))


class Gpu:
    """A fake device, and launches that take a given time on it."""

    def __init__(self, time_us: Callable[[int], float]) -> None:
        self.device = FakeDevice()
        self.tools = FakeInstruments(self.device)
        self.pauses: list[float] = []
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

        return Timer(self.device, policy, clock, self.tools, self.pauses.append)


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
    assert (timing.method, timing.launches_per_sample) == ("graph", 125)
    assert timing.summary.median == pytest.approx(4.0)
    assert gpu.device.num_graph_launches > 30
    assert gpu.num_host_launches < 600


def test_long_launches_are_queued_one_by_one() -> None:
    gpu = Gpu(lambda _: 150.0)
    timing = gpu.make_timer().measure_hot(gpu.launch)
    assert (timing.method, timing.launches_per_sample) == ("events", 4)
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


def test_launches_are_queued_on_a_held_stream() -> None:
    gpu = Gpu(lambda _: 120.0)
    gpu.host_cost_us = 90.0
    order = gpu.tools.calls
    real = gpu.device.enqueue
    gpu.device.enqueue = lambda stream, work, name="kernel": (order.append(name), real(stream, work, name))  # type: ignore[method-assign, assignment, return-value]
    timer = gpu.make_timer()
    assert timer.flush_us == pytest.approx(100.0)
    timing = timer.measure_cold(gpu.launch)
    assert timing.host_us == pytest.approx(90.0, abs=1)
    assert timing.summary.median == pytest.approx(120.0)
    last_hold = len(order) - 1 - order[::-1].index("hold")
    assert order[last_hold:] == ["hold", "memset", "kernel", "release"], "one at a time: what is queued behind would be fetched meanwhile"
    assert timer.measure_hot(gpu.launch).method == "graph", "a host that needs 90 us cannot queue launches of 120 us fast enough"


def test_a_batch_too_long_for_the_queue_is_halved_and_one_that_never_ends_is_an_error() -> None:
    gpu = Gpu(lambda _: 20.0)
    gpu.tools.max_held = 10
    assert gpu.make_timer().measure_hot(gpu.launch).summary.median == pytest.approx(20.0)
    assert max(gpu.tools.num_stamps[-20:]) <= 11
    gpu.tools.max_held = 0
    with pytest.raises(TimingError, match="held too long"):
        gpu.make_timer().measure_cold(gpu.launch)


def test_a_launch_that_fails_lets_the_stream_go() -> None:
    gpu = Gpu(lambda _: 50.0)
    timer = gpu.make_timer()
    subject = timer.prepare(gpu.launch, Mode.COLD)
    gpu.device.sticky = DeviceError("an illegal memory access", 700)
    with pytest.raises(TimingError, match="illegal") as caught:
        timer.measure([subject])
    assert caught.value.subject is subject
    assert gpu.tools.calls[-1] == "release"


def test_samples_of_a_slowed_down_gpu_are_kept_and_set_aside() -> None:
    gpu = Gpu(lambda _: 100.0 if gpu.tools.clock_mhz(gpu.device.clock_us) > 1500 else 180.0)
    gpu.tools.clock_mhz = lambda now_us: 1100.0 if now_us % 4000 > 3000 else 1980.0
    timing = gpu.make_timer().measure_cold(gpu.launch)
    assert timing.summary.q1 == timing.summary.q3 == pytest.approx(100.0)
    assert 0 < timing.num_throttled < len(timing.samples_us) == timing.summary.num_samples + timing.num_throttled
    assert sorted(set(timing.clocks_mhz.tolist())) == [1100.0, 1980.0]
    assert 0.05 in gpu.pauses and max(gpu.pauses) <= 0.5


def test_a_gpu_that_is_always_slow_still_gives_a_result() -> None:
    gpu = Gpu(lambda _: 180.0)
    gpu.tools.clock_mhz = lambda now_us: 900.0
    timing = gpu.make_timer().measure_cold(gpu.launch)
    assert timing.summary.median == pytest.approx(180.0)
    assert timing.num_throttled == len(timing.samples_us) >= 20
    assert timing.stop_reason is StopReason.BUDGET
    assert gpu.pauses[:3] == pytest.approx([0.05, 0.075, 0.1125])


def test_what_is_compared_is_timed_in_mirrored_rounds() -> None:
    gpu, slow = Gpu(lambda _: 50.0), Gpu(lambda _: 70.0)
    slow.device = gpu.device
    order: list[str] = []
    timer = gpu.make_timer()
    subjects = [
        timer.prepare(lambda s: (order.append("A"), gpu.launch(s))[0], Mode.COLD),
        timer.prepare(lambda s: (order.append("B"), slow.launch(s))[0], Mode.COLD),
    ]
    del order[:]
    rounds = timer.run_rounds(subjects, 3)
    assert "".join(order) == "ABBA" + "BAAB" + "ABBA"
    assert rounds.times_us.shape == rounds.clocks_mhz.shape == (3, 2, 2)
    assert np.allclose(rounds.times_us[:, 0], 50.0) and np.allclose(rounds.times_us[:, 1], 70.0)
    timings = timer.measure(subjects)
    assert [t.summary.median for t in timings] == pytest.approx([50.0, 70.0])


def test_a_round_keeps_the_order_of_the_two_times() -> None:
    gpu = Gpu(float)
    timer = gpu.make_timer()
    subjects = [timer.prepare(gpu.launch, Mode.COLD) for _ in range(3)]
    gpu.num_runs = 1
    assert timer.run_rounds(subjects, 2).times_us.tolist() == [[[1, 6], [2, 5], [3, 4]], [[9, 10], [7, 12], [8, 11]]]


def test_empty_costs_are_measured_and_persisting_cache_lines_given_back() -> None:
    gpu = Gpu(lambda _: 50.0)
    timer = gpu.make_timer()
    assert gpu.tools.calls[0] == "reset"
    figures = timer.measure_cold(gpu.launch).to_figures()
    assert (figures["empty_pair_us"], figures["empty_launch_us"], figures["clock_label"]) == (0.0, 0.0, "fixed-power")


def test_cold_launches_follow_a_flush_of_twice_the_cache() -> None:
    gpu = Gpu(lambda _: 50.0)
    order: list[str] = []
    real = gpu.device.enqueue
    gpu.device.enqueue = lambda stream, work, name="kernel": (order.append(name), real(stream, work, name))  # type: ignore[method-assign, assignment, return-value]
    timer = gpu.make_timer()
    timer.measure_cold(gpu.launch)
    assert order[-4:] == ["memset", "kernel"] * 2
    assert timer._flush.size_bytes >= 2 * gpu.device.properties.l2_bytes
    timer.close()
    assert gpu.device.num_live == 0 and not gpu.tools.is_open


def test_launches_that_take_no_time_are_refused() -> None:
    gpu = Gpu(lambda _: 0.0)
    with pytest.raises(TimingError, match="did not enclose the launch"):
        gpu.make_timer(TimingPolicy(warmup_cap_s=0.01, warmup_min_s=0.0, warmup_window_s=0.0)).measure_cold(gpu.launch)


def test_a_time_below_the_roofline_is_an_error() -> None:
    check_floor(50.0, 49.0, Mode.COLD)
    with pytest.raises(TimingError, match=r"cold median of 50\.000 us is below the roofline floor of 51\.000 us"):
        check_floor(50.0, 51.0, Mode.COLD)
    with pytest.raises(TimingError, match="nan us"):
        check_floor(float("nan"), 51.0, Mode.HOT)


def test_an_emulated_device_is_refused() -> None:
    with pytest.raises(UnavailableError, match="no GPU times"):
        Timer(FakeDevice(is_emulated=True))


class FakeNvml:
    """NVML of a GPU at 1500 MHz under a power cap; ``status`` is what each query returns."""

    def __init__(self, status: int = 0, reasons: int = 0x5) -> None:
        self.status = status
        self.reasons = reasons

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int, value: object) -> int:  # noqa: N802
        value._obj.value = 1500  # type: ignore[attr-defined]
        return self.status

    def nvmlDeviceGetTemperature(self, handle: object, kind: int, value: object) -> int:  # noqa: N802
        value._obj.value = 60  # type: ignore[attr-defined]
        return self.status

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object, value: object) -> int:  # noqa: N802
        value._obj.value = self.reasons  # type: ignore[attr-defined]
        return self.status


def test_the_drivers_word_stands_in_where_the_clock_cannot_be_read() -> None:
    gpu = Gpu(lambda _: 50.0)
    gpu.tools.clock_mhz = lambda now_us: float("nan")
    timer = gpu.make_timer()
    assert timer.measure_cold(gpu.launch).to_figures()["clock_mhz"] is None
    timer._batches._monitor = ClockMonitor(FakeNvml(), ctypes.c_void_p())
    figures = timer.measure_cold(gpu.launch).to_figures()
    assert (figures["clock_mhz"], figures["temperature_c"], figures["throttle_reasons"]) == (1500.0, 60.0, ["power cap"])
    assert figures["clock_label"] == "fixed-power"
    timer._batches._monitor = ClockMonitor(FakeNvml(status=3), ctypes.c_void_p())
    assert timer.measure_cold(gpu.launch).clock_mhz is None
    timer._batches._monitor = ClockMonitor(FakeNvml(reasons=0x2), ctypes.c_void_p())
    assert timer.measure_cold(gpu.launch).clock_label == "fixed-frequency"


def test_no_nvml_is_no_error() -> None:
    assert open_monitor("GPU-0", "libno-such-library.so.1") is None


def test_a_lazy_monitor_is_opened_once_and_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_here(uuid: str) -> ClockMonitor | None:
        opened.append(uuid)
        return ClockMonitor(FakeNvml(), ctypes.c_void_p()) if uuid == "GPU-1" else None

    monkeypatch.setattr("harness.timing.nvml.open_monitor", open_here)
    found, missing = LazyMonitor("GPU-1"), LazyMonitor("GPU-2")
    assert opened == []
    readings = [monitor.read() for monitor in (found, missing, found, missing)]
    assert [r and r.sm_mhz for r in readings] == [1500.0, None, 1500.0, None] and opened == ["GPU-1", "GPU-2"]


@pytest.mark.parametrize("ahead", [False, True])
def test_batches_that_are_queued_ahead_keep_their_own_times(ahead: bool) -> None:
    device = FakeDevice()
    tools = FakeInstruments(device)
    policy = TimingPolicy(max_cold_batch=5, queues_ahead=ahead, warmup_cap_s=0.0)
    timer = Timer(device, policy, instruments=tools)
    counter = iter(range(10_000))

    def launch(stream: Stream) -> None:
        device.enqueue(stream.handle, lambda: setattr(device, "clock_us", device.clock_us + 10.0 + next(counter) % 7))

    subject = timer.prepare(launch, Mode.COLD)
    first = next(counter)
    busy_before, samples_before = timer.usage
    tools.calls.clear()
    batch = timer.run_batch([subject] * 23)
    assert batch.times_us.tolist() == [10.0 + (first + 1 + i) % 7 for i in range(23)]
    assert tools.calls.count("hold") == 5
    busy, samples = timer.usage
    assert samples - samples_before == 23
    assert busy - busy_before == pytest.approx(1e-6 * (batch.times_us.sum() + 23 * device.fill_us))
    tools.max_held = 2
    again = timer.run_batch([subject] * 7)
    assert len(again.times_us) == 7 and (again.times_us >= 10.0).all(), "what overran is queued again, fewer at a time"


def test_what_is_far_too_slow_is_given_up_early() -> None:
    device = FakeDevice()
    timer = Timer(device, TimingPolicy(warmup_cap_s=0.0, max_batch=10), instruments=FakeInstruments(device))

    def launch(stream: Stream) -> None:
        device.enqueue(stream.handle, lambda: setattr(device, "clock_us", device.clock_us + 10.0))

    subject = timer.prepare(launch, Mode.COLD)
    given_up = timer.measure([subject], give_up_above_us=9.0)[0]
    assert given_up.stop_reason is StopReason.TOO_SLOW and len(given_up.samples_us) == 10
    assert timer.measure([subject], give_up_above_us=11.0)[0].stop_reason is StopReason.SETTLED


def test_who_is_far_behind_the_fastest_is_given_up_and_the_others_are_not() -> None:
    device = FakeDevice()
    timer = Timer(device, TimingPolicy(warmup_cap_s=0.0, max_batch=10), instruments=FakeInstruments(device))

    def takes(us: float) -> Launch:
        return lambda stream: device.enqueue(stream.handle, lambda: setattr(device, "clock_us", device.clock_us + us))

    subjects = [timer.prepare(takes(us), Mode.COLD) for us in (14.0, 10.0, 12.0)]
    slow, fastest, close = timer.measure(subjects, give_up_beyond=1.3)
    assert slow.stop_reason is StopReason.TOO_SLOW and 10 <= len(slow.samples_us) < 20 and slow.summary.median == 14.0
    for timing in (fastest, close):
        assert timing.stop_reason is StopReason.SETTLED and len(timing.samples_us) >= 30


def test_copies_are_timed_by_the_bytes_that_move() -> None:
    gpu = Gpu(lambda _: 50.0)
    gpu.device.copied_us_per_byte = 1e-3
    live = gpu.device.num_live
    timer = gpu.make_timer()
    copies = measure_copies(gpu.device, timer, (1 << 16, 1 << 18))
    assert [size for size, _ in copies] == [1 << 16, 1 << 18]
    assert [us for _, us in copies] == [pytest.approx(32.768), pytest.approx(131.072)]
    timer.close()
    assert gpu.device.num_live == live


def test_between_sizes_that_were_timed_the_rate_is_interpolated() -> None:
    copies = ((1000, 1.0), (4000, 2.0))  # 1000 and 2000 bytes a microsecond
    assert find_copy_us((), 1e9) is None and find_copy_us(copies, 999) is None
    assert [find_copy_us(copies, n) for n in (1000, 2000, 4000, 8000)] == [1.0, pytest.approx(2000 / 1500), 2.0, 4.0]
