"""Sampling one subject without the GPU ever waiting: the next batch is queued before the last one is read.

Warm-up runs into the samples: the batch that is on its way when two windows agree is the first that counts. Nothing is queued ahead only
where what is on its way may be all that is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from harness.timing.batches import Batches, Subject
from harness.timing.results import Run, TimingPolicy
from harness.timing.stats import StopReason, find_throttled, windows_agree

_PAUSE_S = 0.05
# Of a subject whose every first sample was above the limit, so many more say that it is too slow.
_FEW = 5


class PipelinedSampler:
    """Samples one subject at a time on a timer's batches."""

    def __init__(
        self, batches: Batches, policy: TimingPolicy, default_mhz: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._batches = batches
        self._policy = policy
        self._default_mhz = default_mhz
        self._clock = clock
        self._sleep = sleep

    def sample(self, subject: Subject, give_up_above_us: float = math.inf) -> Run:
        """Warm up and take samples until a rule says to stop. One that was too slow from the first is not warmed up for."""
        self._batches.begin_readings()
        try:
            run = self._try_hopeless(subject, give_up_above_us)
            if run.reason is None:
                run = self._sample_warm(subject, give_up_above_us)
        finally:
            self._batches.drop_queued()
        run.readings = self._batches.finish_readings()
        return run

    def _try_hopeless(self, subject: Subject, give_up_above_us: float) -> Run:
        """Return a run that is too slow, or one without a reason where it is not known to be."""
        run = Run(subject, _FEW, settled=False)
        if subject.least_us <= give_up_above_us:
            return run
        started = self._clock()
        while len(run.times_us) < _FEW:
            self._fill(subject, _FEW - len(run.times_us))
            self._read(run)
        run.spent_s = self._clock() - started
        if not find_throttled(run.clocks_mhz, self._default_mhz).any():
            run.decide(self._policy.stop, self._default_mhz, give_up_above_us, _FEW)
        return run if run.reason is StopReason.TOO_SLOW else Run(subject, _FEW)

    def _sample_warm(self, subject: Subject, give_up_above_us: float) -> Run:
        rule = self._policy.stop
        run = Run(subject, rule.floor_samples if rule.steady_spread > 0 or math.isfinite(give_up_above_us) else rule.min_samples)
        run.warmup_s, run.settled = self._warm_up(subject)
        started = self._clock()
        while run.reason is None:
            self._fill(subject, run.next_check - len(run.times_us))
            if self._read(run):
                self._sleep(_PAUSE_S)
            run.spent_s = self._clock() - started
            if not self._batches.num_ahead or run.spent_s >= rule.budget_s:
                run.decide(rule, self._default_mhz, give_up_above_us)
        while self._batches.num_ahead:
            self._read(run)
        return run

    def _warm_up(self, subject: Subject) -> tuple[float, bool]:
        """Run until two windows agree, and leave what is queued; return the seconds spent, and whether that was reached."""
        policy = self._policy
        started = self._clock()
        before: list[float] = []
        while True:
            window = Run(subject, 0)
            window_started = self._clock()
            while not window.times_us or (
                self._clock() - window_started < policy.warmup_window_s
                and len(window.times_us) * subject.cost_us < 1e6 * policy.warmup_window_s
            ):
                self._fill(subject, None)
                self._read(window)
            spent = self._clock() - started
            if before and spent >= policy.warmup_min_s and windows_agree(before, window.times_us, policy.warmup_agreement):
                return spent, True
            if spent >= policy.warmup_cap_s:
                return spent, False
            before = window.times_us

    def _fill(self, subject: Subject, wanted: int | None) -> None:
        """Queue batches until two are on their way, or what is on its way is ``wanted``."""
        size = self._batches.count_fitting(subject)
        while self._batches.num_ahead < 2:
            left = size if wanted is None else wanted - self._batches.num_samples_ahead
            if left <= 0:
                return
            self._batches.queue([subject] * min(size, left))

    def _read(self, run: Run) -> bool:
        """Read the first batch into a run; return whether the GPU was slowed down."""
        batch = self._batches.read()
        if batch is None:
            return False
        run.times_us += batch.times_us.tolist()
        run.clocks_mhz += batch.clocks_mhz.tolist()
        return bool(find_throttled(batch.clocks_mhz, self._default_mhz).any())
