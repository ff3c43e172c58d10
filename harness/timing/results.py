"""A timing's request, its samples as they come, and its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.timing.batches import Mode, Subject, TimingError
from harness.timing.nvml import Reading
from harness.timing.stats import StopReason, StopRule, Summary, find_throttled, summarize


@dataclass(frozen=True)
class TimingPolicy:
    """How to measure. Times in the units of the names.

    ``flush_factor`` times the L2 size is written between cold launches. Below ``graph_below_us`` hot launches come from a graph.
    ``sample_us`` is the least work that a hot sample covers: starting a graph takes a few microseconds, which its launches share. At
    most ``max_batch`` hot samples are queued on a held stream, fewer where they would take longer than ``batch_us``. Of cold ones
    ``max_cold_batch`` are. ``queues_ahead`` queues a batch while the one before it runs. More than one cold sample, or queueing ahead,
    keep the GPU busy, at the price of up to 1 us more in each. ``num_host_launches`` launches are watched to know the host's time for one;
    with 0 the first samples of a cold launch tell.
    """

    stop: StopRule = field(default_factory=StopRule)
    flush_factor: float = 2.0
    sample_us: float = 500.0
    graph_below_us: float = 100.0
    max_unrolled: int = 250
    max_batch: int = 32
    max_cold_batch: int = 1
    queues_ahead: bool = False
    num_host_launches: int = 7
    batch_us: float = 50_000.0
    warmup_min_s: float = 0.15
    warmup_window_s: float = 0.05
    warmup_cap_s: float = 3.0
    warmup_agreement: float = 0.005


@dataclass(frozen=True)
class Timing:
    """What was measured: ``samples_us`` are microseconds per launch, in the order taken, with the SM clock of each (NaN: not known).

    ``summary`` leaves the ``num_throttled`` samples of a slowed-down GPU out, unless there are no others. ``method`` says how (``events``
    or ``graph``). ``empty_pair_us`` is the median interval between two events with nothing between them, ``empty_launch_us`` with an
    empty kernel; both are reported and not subtracted. ``host_us`` is what the host needs to queue a launch, which is in no sample.
    ``settled`` is False when warm-up ran into its cap. ``clock_label`` is ``fixed-power`` for a GPU as shipped, whose clock follows its
    power, and ``fixed-frequency`` for one whose clock somebody set: times of the two cannot be compared. ``temperature_c`` is the
    highest over the batches, ``throttle_reasons`` what held the clock down in any of them; None and empty where NVML does not tell.
    """

    mode: str
    samples_us: NDArray[np.float32]
    clocks_mhz: NDArray[np.float32]
    summary: Summary
    num_throttled: int
    stop_reason: StopReason
    method: str
    launches_per_sample: int
    warmup_s: float
    settled: bool
    empty_pair_us: float
    empty_launch_us: float
    host_us: float
    clock_label: str = "fixed-power"
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()

    @property
    def clock_mhz(self) -> float | None:
        """Median SM clock of the samples, None where it is not known."""
        known = self.clocks_mhz[np.isfinite(self.clocks_mhz)]
        return float(np.median(known)) if len(known) else None

    def to_figures(self) -> dict[str, Any]:
        """Return everything but the samples and their clocks as plain values."""
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
            "num_throttled": self.num_throttled,
            "stop_reason": self.stop_reason.value,
            "method": self.method,
            "launches_per_sample": self.launches_per_sample,
            "warmup_s": self.warmup_s,
            "settled": self.settled,
            "empty_pair_us": self.empty_pair_us,
            "empty_launch_us": self.empty_launch_us,
            "host_us": self.host_us,
            "clock_label": self.clock_label,
            "clock_mhz": self.clock_mhz,
            "temperature_c": self.temperature_c,
            "throttle_reasons": list(self.throttle_reasons),
        }


@dataclass
class Run:
    """One subject's samples as they come, and the circumstances in which they were taken."""

    subject: Subject
    next_check: int
    times_us: list[float] = field(default_factory=list)
    clocks_mhz: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    reason: StopReason | None = None
    warmup_s: float = 0.0
    settled: bool = True
    readings: Sequence[Reading] = ()

    def find_good(self, default_mhz: float) -> list[float]:
        """Return the samples of a GPU that was not slowed down."""
        throttled = find_throttled(self.clocks_mhz, default_mhz)
        return [t for t, slow in zip(self.times_us, throttled, strict=True) if not slow]

    def to_timing(self, default_mhz: float, empty_pair_us: float, empty_launch_us: float) -> Timing:
        """Return the timing that the samples give, with the times of empty intervals on the same device."""
        good = self.find_good(default_mhz)
        assert self.reason is not None
        return Timing(
            mode=self.subject.mode.value,
            samples_us=np.asarray(self.times_us, dtype=np.float32),
            clocks_mhz=np.asarray(self.clocks_mhz, dtype=np.float32),
            summary=summarize(good or self.times_us),
            num_throttled=len(self.times_us) - len(good),
            stop_reason=self.reason,
            method=self.subject.method,
            launches_per_sample=self.subject.count,
            warmup_s=self.warmup_s,
            settled=self.settled,
            empty_pair_us=empty_pair_us,
            empty_launch_us=empty_launch_us,
            host_us=self.subject.host_us,
            clock_label="fixed-frequency" if any(r.is_fixed for r in self.readings) else "fixed-power",
            temperature_c=max((r.temperature_c for r in self.readings), default=None),
            throttle_reasons=tuple(dict.fromkeys(text for r in self.readings for text in r.throttle_reasons)),
        )

    def decide(self, rule: StopRule, default_mhz: float, give_up_above_us: float = math.inf, floor_samples: int | None = None) -> None:
        """Set ``reason`` where the rule, or a median above a limit after ``floor_samples`` (the rule's where None), ends the sampling."""
        floor = rule.floor_samples if floor_samples is None else floor_samples
        if len(self.times_us) >= floor and np.median(self.times_us) > give_up_above_us:
            self.reason = StopReason.TOO_SLOW
            return
        if len(self.times_us) < self.next_check and self.spent_s < rule.budget_s:
            return
        self.reason = rule.decide(self.find_good(default_mhz), self.spent_s)
        if self.reason is None and self.spent_s >= 2 * rule.budget_s and len(self.times_us) >= 2 * rule.floor_samples:
            self.reason = StopReason.BUDGET  # hardly a good sample in all this time
        # The interval of the median costs more than a batch of short launches: look again when there is news.
        self.next_check = max(rule.min_samples, math.ceil(1.1 * len(self.times_us)))


def check_floor(median_us: float, floor_us: float, mode: Mode) -> None:
    """Raise :class:`TimingError` when a median is below what the hardware can do at best: then the launch did not do its work."""
    if not median_us >= floor_us:
        raise TimingError(
            f"the {mode} median of {median_us:.3f} us is below the roofline floor of {floor_us:.3f} us: "
            "no GPU of this kind is that fast, so the launch skipped work or the events missed it"
        )
