"""How much slower the chosen kernel is than the fastest frozen one, on problems that nothing was measured on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from held_out import draw_problems

from aicf.building.sealed import build_kernel
from aicf.ops.arrays import find_dtype
from aicf.registry import HwCaps, KernelHandle, Problem, open_registry
from aicf.registry.deciding import Decision, How
from device import Device
from device.interface import Stream
from harness.timing import Mode, Timer, TimingPolicy

# A short launch depends on where its data lies, by up to a tenth: it is timed at several places in turn.
_NUM_PLACES = 8
_SHORT_BYTES = 32 << 20
# Kernels that are this much slower than the best in the first rounds are not the best: they are not timed further.
_HOPELESS = 1.5


class Operands:
    """A problem's tensors on the device, inputs random, at several places where the problem is small."""

    def __init__(self, device: Device, handle: KernelHandle, seed: int) -> None:
        import cupy

        random = cupy.random.default_rng(seed)
        layouts = handle.interface.find_layouts(handle.query.values)
        sizes = {t.name: (tuple(handle.query.by_size[s] for s in t.shape), find_dtype(t.dtype).itemsize) for t in layouts}
        total = sum(int(np.prod(shape)) * item for shape, item in sizes.values())
        self.held: list[Any] = []
        self.places: list[dict[str, int]] = []
        for _ in range(_NUM_PLACES if total <= _SHORT_BYTES else 1):
            addresses = {}
            for name, (shape, item) in sizes.items():
                values = random.standard_normal(shape, dtype=cupy.float32)
                if item == 2:  # the upper halves of float32 are bfloat16; as float16 they are numbers too, but for some that are large
                    bits = (values.view(cupy.uint32) >> 16).astype(cupy.uint16)
                    values = bits if find_dtype(next(t.dtype for t in layouts if t.name == name)).name == "bfloat16" else values.astype("e")
                addresses[name] = int(values.data.ptr)
                self.held += [values, cupy.empty(1 + seed % 7 << 16, cupy.uint8)]
            self.places.append(addresses)
        cupy.cuda.Device().synchronize()


class Launches:
    """Launches of one kernel at the places of its operands in turn."""

    def __init__(self, handle: KernelHandle, operands: Operands) -> None:
        import cupy

        library = handle.load()
        params = [handle.make_params(place) for place in operands.places]
        workspace = cupy.empty(max(handle.workspace_bytes, 1), cupy.uint8)
        self._held = (operands, workspace)
        self._count = 0

        def launch(stream: Stream) -> None:
            self._count += 1
            library.launch(params[self._count % len(params)], int(workspace.data.ptr), stream.handle)

        self.launch = launch


def measure_regret(device: Device, op: str, count: int, seed: int, budget_s: float) -> dict[str, Any]:
    """Return every problem with the chosen kernel, all kernels' times, and the regret; stops when the budget is spent and says so."""
    registry = open_registry()
    tables = registry.find_tables(op, HwCaps.of(device))
    with ThreadPoolExecutor() as pool:
        list(pool.map(build_kernel, tables.kernels))
    timer = Timer(device, TimingPolicy(max_cold_batch=8, warmup_min_s=0.02, warmup_window_s=0.01, warmup_cap_s=0.3))
    problems = draw_problems(op, tables, count, seed)
    rows: list[dict[str, Any]] = []
    started = time.monotonic()
    for number, problem in enumerate(problems):
        if time.monotonic() - started > budget_s:
            break
        rows.append(_measure(device, timer, op, problem, number))
    return {"op": op, "seed": seed, "asked": len(problems), "kernels": [k.name for k in tables.kernels], "rows": rows}


def _measure(device: Device, timer: Timer, op: str, problem: Problem, number: int) -> dict[str, Any]:
    registry = open_registry()
    tables = registry.find_tables(op, HwCaps.of(device))
    chosen = registry.select(op, problem, HwCaps.of(device))
    query = chosen.query
    legal = tables.find_legal(query)
    handles = [
        registry.make_handle(tables, query, Decision(i, How.FALLBACK, None, "")) for i in range(len(tables.kernels)) if legal >> i & 1
    ]
    operands = Operands(device, chosen, number)
    subjects = [timer.prepare(Launches(h, operands).launch, Mode.COLD) for h in handles]
    first = np.median(timer.run_rounds(subjects, 2).times_us, axis=(0, 2))
    hopeful = [i for i in range(len(handles)) if first[i] <= _HOPELESS * first.min() or handles[i].kernel == chosen.kernel]
    times = {h.kernel: float(t) for h, t in zip(handles, first, strict=True)}
    if len(hopeful) > 1:
        timer.warm_up([subjects[i] for i in hopeful])
        done = np.median(timer.run_rounds([subjects[i] for i in hopeful], 2 * _NUM_PLACES).times_us, axis=(0, 2))
        times |= {handles[i].kernel: float(t) for i, t in zip(hopeful, done, strict=True)}
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
