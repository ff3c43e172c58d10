"""What is trained: networks, their first weights and batches, the same for every contender; and how a step is timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

NUM_BATCHES = 8
CHECKED_STEPS = 20
RATE = 1e-3
# Steps of one scan.
SCANNED = 64


@dataclass(frozen=True)
class Case:
    """A multi-layer perceptron with ReLU between its layers, cross-entropy and Adam."""

    widths: tuple[int, ...]
    batch: int
    dtype: str

    def make_weights(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (weight [out, in], bias [out]) of each layer."""
        rng = np.random.default_rng(1)
        pairs = zip(self.widths[1:], self.widths[:-1], strict=True)
        bounds = [(out, size, size**-0.5) for out, size in pairs]
        return [(rng.uniform(-b, b, (out, size)).astype(np.float32), rng.uniform(-b, b, out).astype(np.float32)) for out, size, b in bounds]

    def make_batches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return batches of inputs and labels; a step gets the next one each time."""
        rng = np.random.default_rng(2)
        inputs = [rng.normal(size=(self.batch, self.widths[0])).astype(np.float32) for _ in range(NUM_BATCHES)]
        return [(x, rng.integers(0, self.widths[-1], self.batch).astype(np.int64)) for x in inputs]


CASES = {
    "784-256-128-10, batch 128, fp32": Case((784, 256, 128, 10), 128, "float32"),
    "784-256-128-10, batch 128, bf16": Case((784, 256, 128, 10), 128, "bfloat16"),
    "1024-4096-4096-1024, batch 4096, bf16": Case((1024, 4096, 4096, 1024), 4096, "bfloat16"),
}
INFERENCE = {
    f"{widths}, batch {batch}, {name}": Case(tuple(map(int, widths.split("-"))), batch, dtype)
    for widths, name, dtype in (("784-256-128-10", "fp32", "float32"), ("1024-4096-4096-1024", "bf16", "bfloat16"))
    for batch in (1, 128)
}
# For a try without a GPU.
TINY = {"24-32-16-10, batch 16, fp32": Case((24, 32, 16, 10), 16, "float32")}


def draw_cases(count: int, seed: int) -> dict[str, Case]:
    """Return perceptrons of 2 to 8 layers, widths 16 to 1024 and batches 1 to 512, both log-uniform; fp32 and bf16 take turns."""
    rng = np.random.default_rng(seed)

    def draw(least: int, most: int) -> int:
        return round(math.exp(rng.uniform(math.log(least), math.log(most))))

    found = {}
    for i in range(count):
        widths = tuple(draw(16, 1024) for _ in range(int(rng.integers(2, 8, endpoint=True)) + 1))
        case = Case(widths, draw(1, 512), ("float32", "bfloat16")[i % 2])
        found[f"{'-'.join(map(str, widths))}, batch {case.batch}, {'fp32' if i % 2 == 0 else 'bf16'}"] = case
    return found


def time_step(step: Callable[[int], Any], wait: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """Return medians in microseconds: a step in a queue of steps, ``step_us``, and what a call of one costs the host, ``host_us``.

    ``step(i)`` queues a training step on batch i; ``wait()`` returns when the device is done. Each sample is as many steps as take 10 ms.
    """
    for i in range(10):
        step(i)
    wait()
    started = time.perf_counter()
    for i in range(20):
        step(i)
    wait()
    count = max(int(0.01 / ((time.perf_counter() - started) / 20)), 1)
    samples, calls, until = [], [], time.perf_counter() + seconds
    while time.perf_counter() < until or len(samples) < 3:
        started = time.perf_counter()
        for i in range(count):
            step(i)
        wait()
        samples.append((time.perf_counter() - started) / count)
        started = time.perf_counter()
        for i in range(5):  # few enough to fit the queue
            step(i)
        calls.append((time.perf_counter() - started) / 5)
        wait()
    quartiles = [1e6 * float(q) for q in np.quantile(samples, (0.25, 0.5, 0.75))]
    return {"step_us": quartiles[1], "low_us": quartiles[0], "high_us": quartiles[2], "host_us": 1e6 * float(np.median(calls))}
