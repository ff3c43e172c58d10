"""Samples on a held stream: queued while it waits, started together, and read when they are done.

The stream is held until all of a batch is queued: what the host takes to queue a launch is in no sample. A batch may be queued while the
one before it runs, behind a hold of its own.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from device.interface import Device, Event, Stream
from harness.nvtx_ranges import find_range
from harness.timing.instruments import Instruments
from harness.timing.nvml import ClockMonitor, LazyMonitor, Reading

Launch = Callable[[Stream], None]


@dataclass(frozen=True)
class InPlaceLaunch:
    """A launch that overwrites what it reads; ``restore`` queues what puts that back, and is in no sample."""

    run: Launch
    restore: Launch

    def __call__(self, stream: Stream) -> None:
        """Queue the launch."""
        self.run(stream)


_MONITOR_EVERY_S = 0.2
# Places for stamps of the second of two batches.
_HALF = 1024


class TimingError(RuntimeError):
    """A measured time cannot be true, or no time could be measured; ``subject`` is whose, where one of several is to blame."""

    def __init__(self, message: str, subject: Subject | None = None) -> None:
        super().__init__(message)
        self.subject = subject


class Mode(StrEnum):
    """What is in the caches when a launch starts: nothing of its operands, or what the launch before left."""

    COLD = "cold"
    HOT = "hot"


@dataclass(frozen=True)
class BatchLimits:
    """How much is queued at once; the fields of :class:`harness.timing.timer.TimingPolicy` with these names."""

    max_batch: int = 32
    max_cold_batch: int = 1
    queues_ahead: bool = False
    batch_us: float = 50_000.0


@dataclass(frozen=True)
class Subject:
    """A launch made ready to be timed: ``run`` queues one sample of ``count`` launches, ``before`` what precedes it and is not timed.

    ``cost_us`` is what both take on the device, ``range_name`` the NVTX range that its samples are queued in ("": none). ``least_us`` is
    the least of the first samples, which were taken before any warm-up; 0 where they say nothing.
    """

    mode: Mode
    before: Launch
    run: Launch
    count: int
    method: str
    host_us: float
    cost_us: float
    range_name: str = ""
    least_us: float = 0.0


@dataclass(frozen=True)
class Batch:
    """Microseconds per launch and SM clock in MHz (NaN: not known) of samples, in the order in which they were queued."""

    times_us: NDArray[np.float64]
    clocks_mhz: NDArray[np.float64]


@dataclass(frozen=True)
class _Held:
    """A queued batch: its samples, the number of the first, the place of its stamps and events, and the ticket of its hold."""

    subjects: Sequence[Subject]
    start: int
    place: int
    ticket: int


class Batches:
    """Runs samples on one stream of a device; ``readings`` are what the driver said of clock and temperature meanwhile."""

    def __init__(self, device: Device, tools: Instruments, limits: BatchLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = device.create_stream(non_blocking=True)
        self.tools = tools
        self.readings: list[Reading] = []
        self.max_batch = limits.max_batch
        self._device = device
        self._limits = limits
        self._clock = clock
        self._last_reading_s = -math.inf
        self._monitor: ClockMonitor | LazyMonitor = LazyMonitor(device.properties.uuid)
        if not limits.queues_ahead:
            self._monitor.open()
        self._busy_s, self._num_samples = 0.0, 0
        self._events: dict[int, Event] = {}
        self._queued: deque[_Held] = deque()
        self._num_queued = 0
        self._pending: Future[Reading | None] | None = None
        self._reader: ThreadPoolExecutor | None = None

    @property
    def usage(self) -> tuple[float, int]:
        """Seconds in which the GPU worked on samples so far, evictions and warm-up among them, and their number."""
        return self._busy_s, self._num_samples

    def begin_readings(self) -> None:
        """Begin anew with what the driver says."""
        self.readings, self._last_reading_s, self._pending = [], -math.inf, None
        if self._limits.queues_ahead:
            self._read_monitor()

    def finish_readings(self) -> tuple[Reading, ...]:
        """Return what the driver said since :meth:`begin_readings`."""
        self._take_reading()
        return tuple(self.readings)

    @property
    def num_ahead(self) -> int:
        """How many batches are queued and not read."""
        return len(self._queued)

    @property
    def num_samples_ahead(self) -> int:
        """How many samples these hold."""
        return sum(len(held.subjects) for held in self._queued)

    def count_fitting(self, subject: Subject) -> int:
        """Return how many samples of a subject the limits allow in a batch."""
        return self._find_end([subject] * self.max_batch, 0)

    def queue(self, subjects: Sequence[Subject]) -> None:
        """Queue a batch behind what was queued; at most two may wait to be read."""
        assert len(self._queued) < 2
        self._queued.append(self._queue_held(subjects, 0, self._num_queued))
        self._num_queued += 1

    def read(self) -> Batch | None:
        """Wait for the batch that was queued first; None where it overran its hold: then what was queued behind it is dropped, too."""
        held = self._queued.popleft()
        part = self._read_held(held)
        if part is None:
            self._shrink(held, self._queued)
        return part

    def drop_queued(self) -> None:
        """Wait for what is queued, and forget it."""
        if self._queued:
            self._queued.clear()
            self.stream.synchronize()

    def run_batch(self, subjects: Sequence[Subject]) -> Batch:
        """Time one sample of each, in this order, as few held batches as the limits allow."""
        parts: list[Batch] = []
        ahead: deque[_Held] = deque()
        start = 0
        while start < len(subjects) or ahead:
            if start < len(subjects):
                end = self._find_end(subjects, start)
                ahead.append(self._queue_held(subjects[start:end], start, len(parts) + len(ahead)))
                start = end
                if self._limits.queues_ahead and len(ahead) < 2 and start < len(subjects):
                    continue
            held = ahead.popleft()
            part = self._read_held(held)
            if part is not None:
                parts.append(part)
                continue
            self._shrink(held, ahead)
            start = held.start
        return Batch(np.concatenate([p.times_us for p in parts]), np.concatenate([p.clocks_mhz for p in parts]))

    def _shrink(self, held: _Held, ahead: deque[_Held]) -> None:
        """Queue fewer at a time after a batch overran its hold, with more launches than the stream's queue takes, perhaps."""
        self.stream.synchronize()
        ahead.clear()
        if len(held.subjects) == 1:
            raise TimingError("the stream was held too long: the launch waits for the device, which waits for it", held.subjects[0])
        self.max_batch = max(1, len(held.subjects) // 2)

    def _find_end(self, subjects: Sequence[Subject], start: int) -> int:
        end, cost = start + 1, subjects[start].cost_us
        limit = min(self.max_batch, self._limits.max_cold_batch) if any(s.mode is Mode.COLD for s in subjects) else self.max_batch
        while end < len(subjects) and end - start < limit and cost + subjects[end].cost_us <= self._limits.batch_us:
            cost += subjects[end].cost_us
            end += 1
        return end

    def _queue_held(self, subjects: Sequence[Subject], start: int, number: int) -> _Held:
        """Queue samples on a held stream and let it go. Batches that follow each other have places of their own for stamps and events."""
        stream, tools = self.stream, self.tools
        place = number % 2 * _HALF
        ticket = tools.hold(stream)
        try:
            for i, subject in enumerate(subjects):
                tools.stamp(stream, place + i)
                self._queue(subject, place + i)
            tools.stamp(stream, place + len(subjects))
            stream.record(self.find_event(-1 - place))
        finally:
            tools.release()
        return _Held(subjects, start, place, ticket)

    def _read_held(self, held: _Held) -> Batch | None:
        """Wait for a batch and read its times; None when the hold ended by itself."""
        subjects, place, tools = held.subjects, held.place, self.tools
        self.find_event(-1 - place).synchronize()
        if tools.has_expired(held.ticket):
            return None
        ends = [(self.find_event(2 * (place + i)), self.find_event(2 * (place + i) + 1)) for i in range(len(subjects))]
        times = np.array([end.elapsed_us(begin) / s.count for (begin, end), s in zip(ends, subjects, strict=True)])
        if times.min() <= 0:
            raise TimingError(
                f"a {subjects[int(times.argmin())].mode} sample is {times.min():.3g} us: the events did not enclose the launch"
            )
        clocks = tools.read_clocks_mhz(len(subjects), place)
        self._busy_s += 1e-6 * tools.read_span_us(len(subjects), place)
        self._num_samples += len(subjects)
        self._read_monitor()
        if not self.readings and not np.isfinite(clocks).all():
            self._take_reading()
        if self.readings:
            clocks = np.where(np.isfinite(clocks), clocks, self.readings[-1].sm_mhz)
        return Batch(times, clocks)

    def _queue(self, subject: Subject, place: int) -> None:
        try:
            with find_range(subject.range_name):
                subject.before(self.stream)
                self.stream.record(self.find_event(2 * place))
                subject.run(self.stream)
                self.stream.record(self.find_event(2 * place + 1))
        except (RuntimeError, TypeError, ValueError) as error:
            raise TimingError(str(error), subject) from error

    def _read_monitor(self) -> None:
        # The driver takes milliseconds to answer, and the GPU would idle meanwhile: where it must not, a thread asks.
        if self._clock() - self._last_reading_s < _MONITOR_EVERY_S:
            return
        self._last_reading_s = self._clock()
        self._take_reading()
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1)
        self._pending = self._reader.submit(self._monitor.read)
        if not self._limits.queues_ahead:
            self._take_reading()

    def _take_reading(self) -> None:
        """Wait for the answer that is asked for, if one is."""
        pending, self._pending = self._pending, None
        if pending is not None and (reading := pending.result()) is not None:
            self.readings.append(reading)

    def find_event(self, index: int) -> Event:
        """Return the event of a place: 2 i and 2 i + 1 begin and end sample i; below 0 are the ends of batches."""
        if index not in self._events:
            self._events[index] = self._device.create_event(timing=True)
        return self._events[index]
