"""How long a launch takes on a real GPU: cold and hot, from CUDA events, with every sample kept.

Cold
    Before every launch a fill of several times the L2 cache is queued on the same stream, which evicts the operands. It also keeps the
    GPU busy while the host queues the events and the launch behind it, so that launch overhead stays outside the interval.
Hot
    Launches follow each other with nothing between; one sample covers as many launches as make it long against the cost of an event.
    Launches that take less than ``graph_below_us``, or than a few times what the host needs to queue one, are replayed from one CUDA
    graph of unrolled calls.

Warm-up is by time: until the medians of two windows agree, which is when the clock has settled. An emulated device is refused: its
times are the host's.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device.interface import Device, Event, Graph, Stream, UnavailableError
from harness.nvml import Reading, open_monitor
from harness.stats import StopReason, StopRule, Summary, summarize

Launch = Callable[[Stream], None]

# The GPU must be kept busy for this many times what the host needs to queue a launch, its events included.
_HOST_MARGIN = 3.0
_NUM_HOST_LAUNCHES = 7


class TimingError(RuntimeError):
    """A measured time cannot be true, or no time could be measured."""


@dataclass(frozen=True)
class TimingPolicy:
    """How to measure. Times in the units of the names.

    ``flush_factor`` times the L2 size is written between cold launches, and again where the host is slow to queue one. Below
    ``graph_below_us`` hot launches come from a graph. ``sample_us`` is the least work that a hot sample covers. ``max_batch`` samples
    are queued before the host waits, fewer where they would take longer than ``batch_us``.
    """

    stop: StopRule = field(default_factory=StopRule)
    flush_factor: float = 2.0
    sample_us: float = 200.0
    graph_below_us: float = 100.0
    max_unrolled: int = 100
    max_batch: int = 16
    batch_us: float = 50_000.0
    warmup_min_s: float = 0.15
    warmup_window_s: float = 0.05
    warmup_cap_s: float = 3.0
    warmup_agreement: float = 0.005


@dataclass(frozen=True)
class Timing:
    """What was measured: ``samples_us`` are microseconds per launch.

    ``method`` says how (``events`` or ``graph``), ``empty_pair_us`` is the median interval between two events with nothing between
    them, which is reported and not subtracted; ``host_us`` is what the host needs to queue a launch, which is in no sample. ``settled``
    is False when warm-up ran into its cap. ``clock_mhz`` is the median SM clock and ``temperature_c`` the highest temperature over the
    batches, ``throttle_reasons`` what held the clock down in any of them; None and empty where NVML does not tell.
    """

    mode: str
    samples_us: NDArray[np.float32]
    summary: Summary
    stop_reason: StopReason
    method: str
    launches_per_sample: int
    warmup_s: float
    settled: bool
    empty_pair_us: float
    host_us: float
    clock_mhz: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()

    def to_figures(self) -> dict[str, Any]:
        """Return everything but the samples as plain values."""
        s = self.summary
        return {
            "mode": self.mode,
            "median_us": s.median,
            "q1_us": s.q1,
            "q3_us": s.q3,
            "min_us": s.minimum,
            "max_us": s.maximum,
            "median_low_us": s.low,
            "median_high_us": s.high,
            "num_samples": s.num_samples,
            "stop_reason": self.stop_reason.value,
            "method": self.method,
            "launches_per_sample": self.launches_per_sample,
            "warmup_s": self.warmup_s,
            "settled": self.settled,
            "empty_pair_us": self.empty_pair_us,
            "host_us": self.host_us,
            "clock_mhz": self.clock_mhz,
            "temperature_c": self.temperature_c,
            "throttle_reasons": list(self.throttle_reasons),
        }


class Timer:
    """Measures launches on one device. Holds a flush buffer and a pool of events; ``clock`` returns host seconds."""

    def __init__(self, device: Device, policy: TimingPolicy | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        if device.is_emulated:
            raise UnavailableError("the emulated device has no GPU times; run on a machine with a GPU (AICF_DEVICE=cuda)")
        self.device = device
        self.policy = policy or TimingPolicy()
        self._clock = clock
        self._stream = device.create_stream(non_blocking=True)
        self._flush = device.allocate(math.ceil(self.policy.flush_factor * max(device.properties.l2_bytes, 1 << 20)))
        self._events: list[Event] = []
        self._monitor = open_monitor(device.properties.uuid)
        self.empty_pair_us = self._measure_empty_pair()
        self.flush_us = self._measure_flush()

    def close(self) -> None:
        """Free the flush buffer."""
        self._flush.free()

    def measure_cold(self, launch: Launch) -> Timing:
        """Time single launches, each after the L2 was overwritten for long enough that all of it is queued before it starts."""
        host_us = self._measure_host(launch)
        num_fills = max(1, math.ceil(_HOST_MARGIN * host_us / self.flush_us))

        def run_batch(count: int) -> list[float]:
            pairs = []
            for i in range(count):
                start, stop = self._event(2 * i), self._event(2 * i + 1)
                for _ in range(num_fills):
                    self._flush.fill(i % 256, stream=self._stream)
                self._stream.record(start)
                launch(self._stream)
                self._stream.record(stop)
                pairs.append((start, stop))
            self._stream.synchronize()
            return [stop.elapsed_us(start) for start, stop in pairs]

        return self._sample("cold", run_batch, method="events", launches_per_sample=1, host_us=host_us)

    def measure_hot(self, launch: Launch) -> Timing:
        """Time launches that follow each other, operands in the cache as far as they fit."""
        host_us = self._measure_host(launch)
        single_us = max(float(np.median(self._time_groups(launch, 1, 4))), 1e-3)
        if single_us < max(self.policy.graph_below_us, _HOST_MARGIN * host_us):
            return self._measure_hot_graph(launch, single_us, host_us)
        count = math.ceil(self.policy.sample_us / single_us)

        def run_group(stream: Stream) -> None:
            for _ in range(count):
                launch(stream)

        def run_batch(num_groups: int) -> list[float]:
            return self._time_groups(run_group, count, num_groups)

        return self._sample("hot", run_batch, method="events", launches_per_sample=count, host_us=host_us)

    def _measure_hot_graph(self, launch: Launch, single_us: float, host_us: float) -> Timing:
        graph, count = self._unroll(launch, single_us)
        # The first estimate held the host's overhead, the graph's own time does not: unroll more where there is room for it.
        graph, count = self._unroll(launch, max(float(np.median(self._time_groups(graph.launch, count, 4))), 1e-3))

        def run_batch(num_groups: int) -> list[float]:
            return self._time_groups(graph.launch, count, num_groups)

        return self._sample("hot", run_batch, method="graph", launches_per_sample=count, host_us=host_us)

    def _unroll(self, launch: Launch, single_us: float) -> tuple[Graph, int]:
        """Capture as many calls as make a sample; return the graph and their number."""
        count = min(max(1, math.ceil(self.policy.sample_us / single_us)), self.policy.max_unrolled)
        with self.device.capture(self._stream) as graphs:
            for _ in range(count):
                launch(self._stream)
        return graphs[0], count

    def _measure_host(self, launch: Launch) -> float:
        """Return the median microseconds that the host needs to queue one launch."""
        times = []
        for _ in range(_NUM_HOST_LAUNCHES):
            started = self._clock()
            launch(self._stream)
            times.append(1e6 * (self._clock() - started))
            self._stream.synchronize()
        return float(np.median(times))

    def _measure_flush(self) -> float:
        """Return the median microseconds of one fill of the flush buffer."""
        times = []
        for _ in range(_NUM_HOST_LAUNCHES):
            self._stream.record(self._event(0))
            self._flush.fill(0, stream=self._stream)
            self._stream.record(self._event(1))
            self._stream.synchronize()
            times.append(self._event(1).elapsed_us(self._event(0)))
        return max(float(np.median(times)), 1.0)

    def _time_groups(self, run_group: Launch, count: int, num_groups: int) -> list[float]:
        """Queue groups of ``count`` launches, one after the other; return microseconds per launch of each of ``num_groups`` groups.

        The first group covers the host's start and is not returned.
        """
        events = [self._event(i) for i in range(num_groups + 2)]
        self._stream.record(events[0])
        for event in events[1:]:
            run_group(self._stream)
            self._stream.record(event)
        self._stream.synchronize()
        return [b.elapsed_us(a) / count for a, b in itertools.pairwise(events[1:])]

    def _sample(self, mode: str, run: Callable[[int], list[float]], *, method: str, launches_per_sample: int, host_us: float) -> Timing:
        single_us = max(run(1)[0] * launches_per_sample, 1e-3)
        size = min(max(1, int(self.policy.batch_us / single_us)), self.policy.max_batch)

        def run_batch() -> list[float]:
            return run(size)

        warmup_s, settled = self._warm_up(run_batch)
        started = self._clock()
        samples: list[float] = []
        readings: list[Reading] = []
        reason: StopReason | None = None
        next_check = self.policy.stop.min_samples
        while reason is None:
            samples += run_batch()
            if self._monitor is not None and (reading := self._monitor.read()) is not None:
                readings.append(reading)
            if min(samples) <= 0:
                raise TimingError(f"a {mode} sample is {min(samples):.3g} us: the events did not enclose the launch")
            if len(samples) >= next_check:
                reason = self.policy.stop.decide(samples, self._clock() - started)
                # The interval of the median costs more than a batch of short launches: look again when there is news.
                next_check = math.ceil(1.1 * len(samples))
        return Timing(
            mode=mode,
            samples_us=np.asarray(samples, dtype=np.float32),
            summary=summarize(samples),
            stop_reason=reason,
            method=method,
            launches_per_sample=launches_per_sample,
            warmup_s=warmup_s,
            settled=settled,
            empty_pair_us=self.empty_pair_us,
            host_us=host_us,
            clock_mhz=float(np.median([r.sm_mhz for r in readings])) if readings else None,
            temperature_c=max((r.temperature_c for r in readings), default=None),
            throttle_reasons=tuple(dict.fromkeys(text for r in readings for text in r.throttle_reasons)),
        )

    def _warm_up(self, run_batch: Callable[[], list[float]]) -> tuple[float, bool]:
        """Run until two windows in a row have the same median; return the seconds spent, and whether that was reached."""
        policy = self.policy
        started = self._clock()
        before: float | None = None
        while True:
            window_start = self._clock()
            samples: list[float] = []
            while not samples or self._clock() - window_start < policy.warmup_window_s:
                samples += run_batch()
            median = float(np.median(samples))
            spent = self._clock() - started
            agrees = before is not None and abs(median - before) <= policy.warmup_agreement * before
            if agrees and spent >= policy.warmup_min_s:
                return spent, True
            if spent >= policy.warmup_cap_s:
                return spent, False
            before = median

    def _measure_empty_pair(self, num_pairs: int = 100) -> float:
        intervals = []
        for _ in range(num_pairs):
            self._stream.record(self._event(0))
            self._stream.record(self._event(1))
            self._stream.synchronize()
            intervals.append(self._event(1).elapsed_us(self._event(0)))
        return float(np.median(intervals))

    def _event(self, index: int) -> Event:
        while len(self._events) <= index:
            self._events.append(self.device.create_event(timing=True))
        return self._events[index]


def check_floor(timing: Timing, floor_us: float) -> None:
    """Raise :class:`TimingError` when the median is below what the hardware can do at best: then the launch did not do its work."""
    if not timing.summary.median >= floor_us:
        raise TimingError(
            f"the {timing.mode} median of {timing.summary.median:.3f} us is below the roofline floor of {floor_us:.3f} us: "
            "no GPU of this kind is that fast, so the launch skipped work or the events missed it"
        )
