"""What a sweep reports: how far it is and the best so far, and at the end how well it used the GPUs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from harness.records.sweeps import SweepPoint
from harness.sweep.points import Usage


class Progress:
    """How far a screen is: variants done, the best time of each problem, the rate, and when it will be done."""

    def __init__(self, total: int, clock: float | None = None) -> None:
        self.total = total
        self.done = 0
        self.best: dict[str, SweepPoint] = {}
        self._started = time.monotonic() if clock is None else clock

    def add(self, points: Sequence[SweepPoint], now: float | None = None) -> str:
        """Take a variant's points in; return a line for the user."""
        self.done += 1
        for point in points:
            known = self.best.get(point.problem)
            if point.status == "passed" and (known is None or point.median_us < known.median_us):
                self.best[point.problem] = point
        spent = max((time.monotonic() if now is None else now) - self._started, 1e-9)
        rate = self.done / spent
        best = ", ".join(f"{p.median_us:.4g} us" for p in self.best.values()) or "none yet"
        first = points[0]
        result = "" if first.status == "passed" else f" {first.status}: {first.reason}"
        return f"{first.variant}{result} | best {best} | {rate:.2f}/s, {(self.total - self.done) / rate:.0f} s left"


class GpuUse:
    """How much of a screen the GPUs were busy: from the first variant's turn to the end of the last, summed over the GPUs.

    Busy is a GPU while it works on samples, the evictions of its cache and the warm-up among them, by its own clock. Launches that prove a
    variant, copies, and the spinning kernel that holds a stream are not counted.
    """

    def __init__(self) -> None:
        self._turns: dict[str, list[Usage]] = {}

    def add(self, points: Sequence[SweepPoint], usage: Usage | None) -> None:
        """Take in what a variant took of its GPU."""
        if usage is not None:
            self._turns.setdefault(points[0].gpu, []).append(usage)

    def to_figures(self) -> dict[str, Any]:
        """Return seconds, shares and counts as plain values; empty where nothing was measured."""
        if not self._turns:
            return {}
        all_turns = [u for turns in self._turns.values() for u in turns]
        wall_s = sum(max(u.ended_s for u in turns) - min(u.began_s for u in turns) for turns in self._turns.values())
        busy_s, turn_s = sum(u.busy_s for u in all_turns), sum(u.ended_s - u.began_s for u in all_turns)
        num_samples = sum(u.num_samples for u in all_turns)
        span_s = max(u.ended_s for u in all_turns) - min(u.began_s for u in all_turns)
        return {
            "gpus": sorted(self._turns),
            "variants": len(all_turns),
            "samples": num_samples,
            "gpu_s": wall_s,
            "variants_per_s": len(all_turns) / span_s if span_s > 0 else 0.0,
            "busy_share": busy_s / wall_s if wall_s > 0 else 0.0,
            "turn_share": turn_s / wall_s if wall_s > 0 else 0.0,
            "host_us_per_sample": 1e6 * (turn_s - busy_s) / max(num_samples, 1),
        }

    def describe(self) -> str:
        """Say it in a line, "" where nothing was measured."""
        f = self.to_figures()
        if not f:
            return ""
        gpus = "" if len(f["gpus"]) == 1 else f" on {len(f['gpus'])} GPUs"
        return (
            f"GPU busy: {f['busy_share']:.0%} of {f['gpu_s']:.1f} s{gpus}, first variant to last, {f['variants_per_s']:.1f} variants/s; "
            f"host overhead per sample: {f['host_us_per_sample']:.1f} us ({f['samples']} samples, warm-up among them)"
        )
