"""Contests of kernels of known work with themselves, and with one that does 1 % more or less: false and missed verdicts."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from device import Device, open_device
from device.cuda import share_stream
from device.interface import Stream
from harness.compare.contest import run_contest
from harness.timing.batches import Launch, Mode
from harness.timing.timer import Timer, TimingPolicy
from harness.timing.verdicts import Criteria

KERNELS = r"""
extern "C" __global__ void chain(float* out, int count) {
    float x = threadIdx.x;
    for (int i = 0; i < count; ++i) x = fmaf(x, 0.999f, 1.0f);
    if (x == 12345.0f) out[0] = x;
}
extern "C" __global__ void copy(const float4* from, float4* to, int count) {
    const int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) to[i] = from[i];
}
"""
QUICK = TimingPolicy(warmup_min_s=0.02, warmup_window_s=0.01, warmup_cap_s=0.2)


class Kernels:
    """Launches of known work: a chain of dependent operations on every multiprocessor, and a copy through memory."""

    def __init__(self, device: Device) -> None:
        import cupy

        self.cupy = cupy
        module = cupy.RawModule(code=KERNELS)
        self.chain, self.copy = module.get_function("chain"), module.get_function("copy")
        self.num_sms = device.properties.num_sms
        self.data = cupy.random.random(2 * (1 << 27), dtype=cupy.float32)  # 1 GiB

    def make_chain(self, count: int) -> Launch:
        """Return a launch of ``count`` dependent operations."""
        return self._bind(self.chain, (self.num_sms,), (128,), (self.data, np.int32(count)))

    def make_copy(self, count: int) -> Launch:
        """Return a launch that copies ``count`` float4."""
        half = self.data.size // 2
        return self._bind(self.copy, (8 * self.num_sms,), (256,), (self.data[:half], self.data[half:], np.int32(count)))

    def _bind(self, kernel: Any, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> Launch:
        def launch(stream: Stream) -> None:
            with share_stream(stream.handle):
                kernel(grid, block, arguments)

        return launch


def tune(timer: Timer, make: Callable[[int], Launch], mode: Mode, time_us: float, count: int) -> int:
    """Return the count at which a launch takes about ``time_us``: its time is a line in the count."""
    for _ in range(3):
        short, long = (timer.measure([timer.prepare(make(c), mode)])[0].summary.median for c in (count, 2 * count))
        count = max(16, int(count + (time_us - short) * count / (long - short)))
    return count


def run_contests(out: Path, num_same: int, num_planted: int) -> None:
    """Hold contests of a launch with itself, and with one that does 1 % more or less work."""
    device = open_device("cuda")
    timer = Timer(device, QUICK)
    kernels = Kernels(device)
    settings: list[tuple[str, Callable[[int], Launch], Mode, float, int]] = [
        ("chain", kernels.make_chain, Mode.COLD, 50.0, 20_000),
        ("copy", kernels.make_copy, Mode.COLD, 50.0, 3_000_000),
        ("chain", kernels.make_chain, Mode.HOT, 5.0, 1_000),
    ]
    rows = []
    for name, make, mode, time_us, first in settings:
        count = tune(timer, make, mode, time_us, first)
        # What one percent of the work is in time: a launch has a part that no work changes.
        base, more = (timer.measure([timer.prepare(make(c), mode)])[0].summary.median for c in (count, int(1.1 * count)))
        share = 0.01 * base / ((more - base) / 0.1)
        plan = [0] * num_same + ([1, -1] * (num_planted // 2) if time_us >= 50 else [])
        for sign in plan:
            started = time.monotonic()
            subjects = [timer.prepare(make(c), mode) for c in (count, count, round(count * (1 + sign * share)))]
            contest = run_contest(timer, subjects, ("a", "control", "b"), Criteria(), default_mhz=device.properties.clock_khz / 1000)
            figures = contest.to_figures(0)
            kept = {k: figures[k] for k in ("verdict", "effect", "is_void", "incumbent_median_us", "num_rounds", "stop_reason")}
            rows.append({"kernel": name, "mode": mode, "planted": sign, "seconds": time.monotonic() - started} | kept)
        print(name, mode, f"{base:.2f} us", Counter((r["planted"], r["verdict"]) for r in rows if (r["kernel"], r["mode"]) == (name, mode)))
    facts = {"empty_pair_us": timer.empty_pair_us, "empty_launch_us": timer.empty_launch_us, "device": device.properties.name}
    timer.close()
    (out / "contests.json").write_text(dump({"facts": facts, "rows": rows}))


def dump(value: Any) -> str:
    """Return JSON with six digits, a row a line."""

    def cut(each: Any) -> Any:
        if isinstance(each, float):
            return float(f"{each:.6g}")
        if isinstance(each, dict):
            return {k: cut(v) for k, v in each.items()}
        return [cut(v) for v in each] if isinstance(each, list) else each

    return json.dumps(cut(value)).replace('}, {"kernel"', '},\n{"kernel"') + "\n"
