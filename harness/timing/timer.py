"""How long a launch takes on a real GPU: cold and hot, from CUDA events, with every sample kept.

Samples are queued on a held stream, which starts when all of a sample is there: what the host takes to queue a launch is in no sample, and
is reported beside them. What is to be compared is measured together, in rounds of A B ... B A whose order rotates.

Cold
    Before every launch a fill of several times the L2 cache, by the device's own attribute, evicts the operands. The stream is held anew
    for each: where more is queued, the GPU fetches it while the launch runs, which takes 0.5 to 1 us more (measured on an H200).
Hot
    One launch that is not timed warms the cache; then launches follow each other with nothing between. One sample covers as many as
    make it long against the cost of an event. Launches that take less than ``graph_below_us``, or than a few times what the host needs
    to queue one, are replayed from one CUDA graph of unrolled calls.

Warm-up is by time, the same work included, until two windows agree: then the clock has settled. Samples of a slowed-down GPU are kept and
marked, but set aside where there are others. An emulated device is refused: its times are the host's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from device.interface import Device, Graph, Stream, UnavailableError
from harness.timing.batches import Batch, Batches, BatchLimits, InPlaceLaunch, Launch, Mode, Subject, TimingError
from harness.timing.gpu_lock import GpuLock
from harness.timing.instruments import CudaInstruments, Instruments
from harness.timing.pipelined import PipelinedSampler
from harness.timing.results import Run, Timing, TimingPolicy
from harness.timing.stats import find_throttled, windows_agree
from harness.timing.verdicts import plan_round

__all__ = ("Batch", "Launch", "Mode", "Subject", "Timer", "Timing", "TimingError", "TimingPolicy")

# Hot launches that the host queues in less than this many times their duration come from a graph.
_HOST_MARGIN = 3.0
_NUM_EMPTY_AT_ONCE = 7
_NUM_EMPTY = 100
_NUM_FIRST = 4
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5


class Timer:
    """Measures launches on one device. Holds a flush buffer, a pool of events and the instruments; ``clock`` returns host seconds.

    While it measures it has the GPU's turn (:class:`GpuLock`), so that other processes of this kind do not disturb it.
    """

    def __init__(
        self,
        device: Device,
        policy: TimingPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        instruments: Instruments | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if device.is_emulated:
            raise UnavailableError("the emulated device has no GPU times; run on a machine with a GPU (AICF_DEVICE=cuda)")
        self.device = device
        self.policy = policy or TimingPolicy()
        self._clock = clock
        self._sleep = sleep
        self._tools: Instruments = instruments or CudaInstruments()
        self._turn = GpuLock(device.properties.uuid)
        self._tools.reset_persisting_cache()
        limits = BatchLimits(self.policy.max_batch, self.policy.max_cold_batch, self.policy.queues_ahead, self.policy.batch_us)
        self._batches = Batches(device, self._tools, limits, clock)
        self._stream = self._batches.stream
        self._flush = device.allocate(math.ceil(self.policy.flush_factor * max(device.properties.l2_bytes, 1 << 20)))
        self._default_mhz = device.properties.clock_khz / 1000
        self._num_fills = 0
        with self._turn.hold():
            self.empty_pair_us = self._measure_empty(lambda stream: None)
            self.empty_launch_us = self._measure_empty(self._tools.launch_nothing)
            self.flush_us = self._measure_empty(self._evict, _NUM_EMPTY_AT_ONCE)

    def close(self) -> None:
        """Free the flush buffer and the instruments."""
        self._flush.free()
        self._tools.close()

    def measure_cold(self, launch: Launch, range_name: str = "") -> Timing:
        """Time single launches, each after the L2 was overwritten."""
        return self.measure([self.prepare(launch, Mode.COLD, range_name)])[0]

    def measure_hot(self, launch: Launch) -> Timing:
        """Time launches that follow each other, operands in the cache as far as they fit."""
        return self.measure([self.prepare(launch, Mode.HOT)])[0]

    def prepare(self, launch: Launch, mode: Mode, range_name: str = "") -> Subject:
        """Find out how a launch is to be timed. Raises RuntimeError where a launch refuses to be captured and must be."""
        with self._turn.hold():
            subject = self._prepare(launch, mode)
        if isinstance(launch, InPlaceLaunch):
            subject = replace(subject, before=_follow(launch.restore, subject.before))
        return replace(subject, range_name=range_name)

    def time_once(self, launch: Launch) -> float:
        """Return the microseconds of one cold launch, behind one that is not timed: enough to see who takes very long.

        The first loads the launch's code, which waits until the device is idle: on a held stream, until the hold reaches its limit.
        """
        with self._turn.hold():
            launch(self._stream)
            self._stream.synchronize()
            return float(self.run_batch([Subject(Mode.COLD, self._evict, launch, 1, "events", 0.0, 0.0)]).times_us[0])

    def _prepare(self, launch: Launch, mode: Mode) -> Subject:
        if mode is Mode.COLD and not self.policy.num_host_launches:
            return self._prepare_quickly(launch)
        host_us = self._measure_host(launch)
        single = Subject(mode, self._evict if mode is Mode.COLD else launch, launch, 1, "events", host_us, 0.0)
        single_us = self._estimate(single)
        if mode is Mode.COLD:
            return Subject(mode, self._evict, launch, 1, "events", host_us, single_us + self.flush_us)
        if single_us < max(self.policy.graph_below_us, _HOST_MARGIN * host_us):
            graph, count = self._unroll(launch, single_us)
            return Subject(mode, launch, graph.launch, count, "graph", host_us, (count + 1) * single_us)
        count = math.ceil(self.policy.sample_us / single_us)

        def run_group(stream: Stream) -> None:
            for _ in range(count):
                launch(stream)

        return Subject(mode, launch, run_group, count, "events", host_us, (count + 1) * single_us)

    def _prepare_quickly(self, launch: Launch) -> Subject:
        """Watch the host and the device on the same few launches, which do not wait for each other."""
        host_us: list[float] = []

        def watch(stream: Stream) -> None:
            started = self._clock()
            launch(stream)
            host_us.append(1e6 * (self._clock() - started))

        first = self.run_batch([Subject(Mode.COLD, self._evict, watch, 1, "events", 0.0, 0.0)] * _NUM_FIRST)
        least_us = 0.0 if find_throttled(first.clocks_mhz, self._default_mhz).any() else float(first.times_us.min())
        cost_us = float(np.median(first.times_us)) + self.flush_us
        return Subject(Mode.COLD, self._evict, launch, 1, "events", float(np.median(host_us)), cost_us, least_us=least_us)

    @property
    def usage(self) -> tuple[float, int]:
        """Seconds in which the GPU worked on samples so far, evictions and warm-up among them, and their number."""
        return self._batches.usage

    def measure(self, subjects: Sequence[Subject], *, give_up_above_us: float = math.inf, give_up_beyond: float = math.inf) -> list[Timing]:
        """Take samples, see :meth:`sample`, and say what came of them."""
        return [self.conclude(r) for r in self.sample(subjects, give_up_above_us, give_up_beyond)]

    def sample(self, subjects: Sequence[Subject], give_up_above_us: float = math.inf, give_up_beyond: float = math.inf) -> list[Run]:
        """Warm up, then time subjects together in rounds until each one's stop rule ends it, or it proves to be slower than a limit.

        The limit is ``give_up_above_us``, or ``give_up_beyond`` times the fastest median of them if that is lower: who is above has the few
        samples that showed it. Statistics take the host milliseconds: :meth:`conclude` needs no GPU, and can wait until another has it.
        """
        with self._turn.hold():
            return self._sample(subjects, give_up_above_us, give_up_beyond)

    def _sample(self, subjects: Sequence[Subject], give_up_above_us: float, give_up_beyond: float) -> list[Run]:
        if self.policy.queues_ahead and len(subjects) == 1:
            sampler = PipelinedSampler(self._batches, self.policy, self._default_mhz, self._clock, self._sleep)
            return [sampler.sample(subjects[0], give_up_above_us)]
        warmup_s, settled = self.warm_up(subjects)
        self._batches.begin_readings()
        is_race = math.isfinite(give_up_beyond)
        runs = [Run(s, self.policy.stop.floor_samples if is_race else self.policy.stop.min_samples) for s in subjects]
        active, num_rounds, pause_s = list(runs), 0, _FIRST_PAUSE_S
        while active:
            sequence, num_rounds = self._fill_batch(active, num_rounds)
            started = self._clock()
            batch = self.run_batch([r.subject for r in sequence])
            elapsed_s = self._clock() - started
            if find_throttled(batch.clocks_mhz, self._default_mhz).any():
                self._sleep(pause_s)
                pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
            else:
                pause_s = _FIRST_PAUSE_S
            self._collect(sequence, batch, elapsed_s)
            fastest_us = min(float(np.median(r.times_us)) for r in runs) if is_race else math.inf
            for run in active:
                run.decide(self.policy.stop, self._default_mhz, min(give_up_above_us, give_up_beyond * fastest_us))
            active = [r for r in active if r.reason is None]
        readings = self._batches.finish_readings()
        for run in runs:
            run.warmup_s, run.settled, run.readings = warmup_s, settled, readings
        return runs

    def run_batch(self, subjects: Sequence[Subject]) -> Batch:
        """Time one sample of each, in this order, as few held batches as the limits allow."""
        with self._turn.hold():
            return self._batches.run_batch(subjects)

    def run_rounds(self, subjects: Sequence[Subject], num_rounds: int, first_round: int = 0) -> Batch:
        """Time subjects in rounds; returns [rounds, subjects, 2] times and clocks."""
        order = [i for r in range(num_rounds) for i in plan_round(len(subjects), first_round + r)]
        done = self.run_batch([subjects[i] for i in order])
        shape = (num_rounds, len(subjects), 2)
        # A stable sort by round and subject keeps each subject's two times of a round in their order.
        places = np.argsort(np.repeat(np.arange(num_rounds), 2 * len(subjects)) * len(subjects) + order, kind="stable")
        return Batch(done.times_us[places].reshape(shape), done.clocks_mhz[places].reshape(shape))

    def warm_up(self, subjects: Sequence[Subject]) -> tuple[float, bool]:
        """Run until two windows in a row have the same median; return the seconds spent, and whether that was reached.

        Times are relative to each subject's own first: a window may end in the middle of the subjects.
        """
        policy = self.policy
        started = self._clock()
        runs = [Run(s, 0) for s in subjects]
        first: dict[int, float] = {}
        before: list[float] = []
        num_rounds = 0
        while True:
            window_start = self._clock()
            window: list[float] = []
            while not window or self._clock() - window_start < policy.warmup_window_s:
                sequence, num_rounds = self._fill_batch(runs, num_rounds)
                batch = self.run_batch([r.subject for r in sequence])
                window += [t / first.setdefault(id(r), t) for r, t in zip(sequence, batch.times_us.tolist(), strict=True)]
            spent = self._clock() - started
            if before and spent >= policy.warmup_min_s and windows_agree(before, window, policy.warmup_agreement):
                return spent, True
            if spent >= policy.warmup_cap_s:
                return spent, False
            before = window

    def _fill_batch(self, runs: Sequence[Run], num_rounds: int) -> tuple[list[Run], int]:
        """Return whole rounds of samples to be queued together, at least one, and the number of rounds planned so far."""
        sequence: list[Run] = []
        round_us = 2 * sum(r.subject.cost_us for r in runs)
        for _ in range(max(1, min(self._batches.max_batch // (2 * len(runs)), int(self.policy.batch_us / max(round_us, 1e-3))))):
            sequence += [runs[i] for i in plan_round(len(runs), num_rounds)]
            num_rounds += 1
        return sequence, num_rounds

    def _collect(self, sequence: Sequence[Run], batch: Batch, elapsed_s: float) -> None:
        total_us = sum(r.subject.cost_us for r in sequence)
        for run, time_us, clock_mhz in zip(sequence, batch.times_us.tolist(), batch.clocks_mhz.tolist(), strict=True):
            run.times_us.append(time_us)
            run.clocks_mhz.append(clock_mhz)
            run.spent_s += elapsed_s * run.subject.cost_us / total_us

    def conclude(self, run: Run) -> Timing:
        """Return the timing that samples give."""
        return run.to_timing(self._default_mhz, self.empty_pair_us, self.empty_launch_us)

    def _evict(self, stream: Stream) -> None:
        self._num_fills += 1
        self._flush.fill(self._num_fills % 256, stream=stream)

    def _unroll(self, launch: Launch, single_us: float) -> tuple[Graph, int]:
        """Capture as many calls as make a sample; return the graph and their number."""
        count = min(max(1, math.ceil(self.policy.sample_us / single_us)), self.policy.max_unrolled)
        with self.device.capture(self._stream) as graphs:
            for _ in range(count):
                launch(self._stream)
        return graphs[0], count

    def _estimate(self, subject: Subject, num_samples: int = _NUM_FIRST) -> float:
        """Return the median microseconds of a few samples, at least a nanosecond."""
        return max(float(np.median(self.run_batch([subject] * num_samples).times_us)), 1e-3)

    def _measure_host(self, launch: Launch) -> float:
        """Return the median microseconds that the host needs to queue one launch."""
        times = []
        for _ in range(self.policy.num_host_launches):
            started = self._clock()
            launch(self._stream)
            times.append(1e6 * (self._clock() - started))
            self._stream.synchronize()
        return float(np.median(times))

    def _measure_empty(self, launch: Launch, count: int = _NUM_EMPTY) -> float:
        """Return the median microseconds between two events around a launch that needs no care, at least 0."""
        launch(self._stream)
        intervals: list[float] = []
        while len(intervals) < count:
            self._tools.hold(self._stream)
            try:
                for i in range(_NUM_EMPTY_AT_ONCE):
                    self._stream.record(self._batches.find_event(2 * i))
                    launch(self._stream)
                    self._stream.record(self._batches.find_event(2 * i + 1))
            finally:
                self._tools.release()
            self._stream.synchronize()
            intervals += [
                self._batches.find_event(2 * i + 1).elapsed_us(self._batches.find_event(2 * i)) for i in range(_NUM_EMPTY_AT_ONCE)
            ]
        return float(np.median(intervals))


def _follow(first: Launch, then: Launch) -> Launch:
    def run(stream: Stream) -> None:
        first(stream)
        then(stream)

    return run
