"""How much slower the chosen kernel is than the fastest frozen one, on problems that nothing was measured on."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from held_out import draw_problems
from numpy.typing import NDArray

from aicf.ops.arrays import find_dtype
from aicf.registry import HwCaps, KernelHandle, Problem, open_registry
from aicf.registry.deciding import Decision, How
from contract.building import build_kernel
from device import Device
from device.interface import Buffer, Stream
from harness.timing.timer import Mode, Timer, TimingPolicy

# A short launch depends on where its data lies, by up to a tenth: it is timed at several places in turn.
_NUM_PLACES = 8
_SHORT_BYTES = 32 << 20
_MAX_SPACE_BYTES = 4 << 20
_POOL_ELEMS = 1 << 24
# Kernels that are this much slower than the best in the first rounds are not the best: they are not timed further.
_HOPELESS = 1.5


class RandomPool:
    """Normal numbers on the host, made once: filling a problem's tensors with them costs no more than copying."""

    def __init__(self) -> None:
        self._values = np.random.default_rng(1).standard_normal(_POOL_ELEMS, dtype=np.float32)
        self._by_dtype: dict[str, NDArray[Any]] = {}

    def fill(self, buffer: Buffer, dtype: str) -> None:
        """Fill a buffer with numbers of a dtype, the same ones again and again."""
        if dtype not in self._by_dtype:
            self._by_dtype[dtype] = self._values.astype(find_dtype(dtype)).view(np.uint8)
        pool = self._by_dtype[dtype]
        for offset in range(0, buffer.size_bytes, len(pool)):
            buffer.write(pool[: buffer.size_bytes - offset], offset)


class Operands:
    """A problem's tensors on the device, inputs random, at several places where the problem is small."""

    def __init__(self, device: Device, handle: KernelHandle, pool: RandomPool, seed: int) -> None:
        layouts = handle.interface.find_layouts(handle.query.values)
        sizes = {t.name: math.prod(handle.query.by_size[s] for s in t.shape) * find_dtype(t.dtype).itemsize for t in layouts}
        generator = random.Random(seed)
        self.places: list[dict[str, int]] = []
        self._held: list[Buffer] = []
        for _ in range(_NUM_PLACES if sum(sizes.values()) <= _SHORT_BYTES else 1):
            addresses = {}
            for layout in layouts:
                buffer = device.allocate(sizes[layout.name])
                if layout.role == "input":
                    pool.fill(buffer, layout.dtype)
                addresses[layout.name] = buffer.address
                self._held += [buffer, device.allocate(generator.randrange(1, _MAX_SPACE_BYTES))]
            self.places.append(addresses)

    def free(self) -> None:
        """Give the memory back."""
        for buffer in self._held:
            buffer.free()


class Launches:
    """Launches of one kernel at the places of its operands in turn."""

    def __init__(self, device: Device, handle: KernelHandle, operands: Operands) -> None:
        library = handle.load()
        params = [handle.make_params(place) for place in operands.places]
        workspace = device.allocate(max(handle.workspace_bytes, 1))
        turns = itertools.cycle(params)

        def launch(stream: Stream) -> None:
            library.launch(next(turns), workspace.address, stream.handle)

        self.launch = launch


def measure_regret(device: Device, op: str, count: int, seed: int, budget_s: float, timer: Timer | None = None) -> dict[str, Any]:
    """Return every problem with the chosen kernel, all kernels' times, and the regret; no problem is begun after the budget is spent."""
    registry = open_registry()
    tables = registry.find_tables(op, HwCaps.of(device))
    with ThreadPoolExecutor() as pool:
        list(pool.map(build_kernel, tables.kernels))
    timer = timer or Timer(device, TimingPolicy(warmup_min_s=0.02, warmup_window_s=0.01, warmup_cap_s=0.3))
    pool = RandomPool()
    problems = draw_problems(op, tables, count, seed)
    rows: list[dict[str, Any]] = []
    started = time.monotonic()
    for number, problem in enumerate(problems):
        if time.monotonic() - started > budget_s:
            break
        rows.append(_measure(device, timer, op, problem, (number, pool)))
    return {"op": op, "seed": seed, "asked": len(problems), "kernels": [k.name for k in tables.kernels], "rows": rows}


def _measure(device: Device, timer: Timer, op: str, problem: Problem, source: tuple[int, RandomPool]) -> dict[str, Any]:
    registry = open_registry()
    tables = registry.find_tables(op, HwCaps.of(device))
    chosen = registry.select(op, problem, HwCaps.of(device))
    query = chosen.query
    legal = tables.find_legal(query)
    handles = [
        registry.make_handle(tables, query, Decision(i, How.FALLBACK, None, "")) for i in range(len(tables.kernels)) if legal >> i & 1
    ]
    operands = Operands(device, chosen, source[1], source[0])
    subjects = [timer.prepare(Launches(device, h, operands).launch, Mode.COLD) for h in handles]
    first = np.median(timer.run_rounds(subjects, 2).times_us, axis=(0, 2))
    hopeful = [i for i in range(len(handles)) if first[i] <= _HOPELESS * first.min() or handles[i].kernel == chosen.kernel]
    times = {h.kernel: float(t) for h, t in zip(handles, first, strict=True)}
    if len(hopeful) > 1:
        timer.warm_up([subjects[i] for i in hopeful])
        done = np.median(timer.run_rounds([subjects[i] for i in hopeful], 2 * _NUM_PLACES).times_us, axis=(0, 2))
        times |= {handles[i].kernel: float(t) for i, t in zip(hopeful, done, strict=True)}
    operands.free()
    best = min(times, key=lambda k: times[k])
    return {
        "sizes": dict(query.by_size),
        "attributes": dict(query.attributes),
        "how": str(chosen.how),
        "chosen": chosen.kernel,
        "best": best,
        "regret": times[chosen.kernel] / times[best] - 1.0,
        "times_us": {k: round(t, 4) for k, t in times.items()},
    }


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return mean, 95th percentile and greatest of the regrets, and how many choices were the best kernel."""
    regrets = np.array([row["regret"] for row in rows])
    return {
        "problems": len(rows),
        "mean": float(regrets.mean()),
        "p95": float(np.percentile(regrets, 95)),
        "max": float(regrets.max()),
        "best_chosen": sum(row["chosen"] == row["best"] for row in rows),
    }
