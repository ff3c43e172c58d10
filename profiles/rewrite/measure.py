"""What rewriting a network in training costs: ``python profiles/rewrite/measure.py``.

The way from a widening of every MLP to the end of the first step, by phases; snapshots and rollbacks beside a plain copy of as many bytes;
observers; and what is left of memory and graphs behind many cycles of widen, prune and rollback. On the emulated device the script runs
with ``--tiny``; its times then are those of kernels on the CPU and say nothing of a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import aicf  # noqa: E402
from aicf import Tensor, nn, optim  # noqa: E402
from aicf import functional as F  # noqa: E402
from aicf.plan.data import STATE  # noqa: E402
from aicf.rewrite import Run, Together, Widen  # noqa: E402
from aicf.rewrite import run as rewrite_run  # noqa: E402
from aicf.rewrite.draft import Draft  # noqa: E402
from aicf.rewrite.structure import Structure  # noqa: E402
from device import open_device  # noqa: E402
from device.memory import RuntimeBuffer  # noqa: E402
from device.runtime import RuntimeGraph  # noqa: E402


@dataclass(frozen=True)
class Sizes:
    """What is measured: an MLP stack of ``blocks`` times (width, 4 width), and a plain MLP of ``layers`` square layers."""

    width: int
    blocks: int
    rows: int
    square: int
    layers: int
    every: int
    rounds: int
    cycles: int


FULL = Sizes(width=768, blocks=4, rows=1024, square=4096, layers=8, every=100, rounds=5, cycles=100)
TINY = Sizes(width=8, blocks=2, rows=8, square=16, layers=2, every=4, rounds=2, cycles=2)
PHASES = ((Structure, "start"), (Draft, "carry"), (rewrite_run, "check"), (Structure, "prepare"), (Structure, "exchange"))
Batch = tuple[Tensor, Tensor]
Figures = dict[str, float]


def compute_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross entropy of a model's outputs."""
    return F.cross_entropy(model(x), y)


def make_run(layers: list[nn.Module], batch: Batch, every: int | None = None) -> Run:
    """Return a run of a network on the device, trained by Adam."""
    aicf.manual_seed(0)
    model = nn.Sequential(*layers)
    step = aicf.compile_step(model, compute_loss, optim.Adam(model.parameters(), lr=1e-4), batch, backend="cuda")
    return Run(step, every=every)


def make_stack(sizes: Sizes) -> list[nn.Module]:
    """Return the layers of an MLP stack; those at 0, 4, 8, ... make the hidden units."""
    layers: list[nn.Module] = []
    for _ in range(sizes.blocks):
        layers += [nn.Linear(sizes.width, 4 * sizes.width), nn.GELU(), nn.Linear(4 * sizes.width, sizes.width), nn.Tanh()]
    return layers


def make_widening(sizes: Sizes) -> Together:
    """Return the rule that doubles the hidden units of every MLP of a stack."""
    return Together(tuple(Widen(str(4 * i), 8 * sizes.width) for i in range(sizes.blocks)))


def make_square(sizes: Sizes) -> list[nn.Module]:
    """Return the layers of a plain MLP."""
    layers: list[nn.Module] = []
    for _ in range(sizes.layers):
        layers += [nn.Linear(sizes.square, sizes.square), nn.ReLU()]
    return layers[:-1]


def make_batch(rows: int, width: int) -> Batch:
    """Return a batch in device memory: (rows, width) float32, and (rows,) classes below ``width``."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, width)).astype(np.float32), rng.integers(0, width, size=rows)
    return Tensor(x, backend="cuda"), Tensor(y, backend="cuda")


def find_median(call: Callable[[], Any], rounds: int) -> float:
    """Return the median time of a call in seconds, behind one that is not timed; what it queues on the device is waited for."""
    times = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        call()
        open_device().synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


@contextmanager
def time_phases() -> Iterator[Figures]:
    """Collect the seconds that each phase of a rewrite takes."""
    seconds: Figures = {name.lstrip("_"): 0.0 for _, name in PHASES}
    old = [(owner, name, getattr(owner, name)) for owner, name in PHASES]

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                seconds[name.lstrip("_")] += time.perf_counter() - started

        return timed

    try:
        for owner, name, call in old:
            setattr(owner, name, wrap(name, call))
        yield seconds
    finally:
        for owner, name, call in old:
            setattr(owner, name, call)


def measure_widen(sizes: Sizes) -> Figures:
    """Return the seconds from the beginning of a widening of every MLP to twice its units to the end of the step behind it.

    Its kernels are built ahead, which is timed apart. ``again`` goes the same way from the same snapshot, and finds the plans' choices in
    caches; ``one by one`` makes a rewrite of each MLP.
    """
    batch = make_batch(sizes.rows, sizes.width)
    run = make_run(make_stack(sizes), batch)
    run.step(*batch).item()
    snapshot, started = run.snapshot(), time.perf_counter()
    built = run.prebuild(*(Widen(str(4 * i), 8 * sizes.width) for i in range(sizes.blocks)), make_widening(sizes))
    found = {"kernels built ahead": len(built), "building ahead, s": time.perf_counter() - started}
    compiled = 0
    for way in ("first", "again", "one by one"):
        run.rollback(snapshot)
        run.step(*batch).item()
        with time_phases() as phases:
            started = time.perf_counter()
            if way == "one by one":
                for i in range(sizes.blocks):
                    run.widen(str(4 * i), 8 * sizes.width)
            else:
                run.apply(make_widening(sizes))
            widened = time.perf_counter()
            compiled += sum(len(record.compiled) for record in run.records)
            run.step(*batch).item()
            ended = time.perf_counter()
        found |= {f"{way}: all, s": ended - started, f"{way}: the first step, s": ended - widened}
        found |= {f"{way}: {name}, s": value for name, value in phases.items()}
    found["kernels compiled in rewrites"] = compiled
    started = time.perf_counter()
    run.rollback(snapshot)
    rolled = time.perf_counter()
    run.fork()
    return found | {"rollback behind rewrites, s": rolled - started, "fork, s": time.perf_counter() - rolled}


def measure_moments(sizes: Sizes) -> Figures:
    """Return the seconds of snapshots and rollbacks, and each one's share of the speed of a plain copy of as many bytes."""
    batch = make_batch(sizes.rows, sizes.square)
    run = make_run(make_square(sizes), batch)
    run.step(*batch).item()
    device, size = open_device(), run.step.plan.sizes[STATE]
    source, target = device.allocate(size), device.allocate(size)
    source.fill(0)
    target.fill(0)
    stream = device.create_stream()

    def copy() -> None:
        target.copy_from(source, stream)
        stream.synchronize()

    copied = find_median(copy, sizes.rounds)
    target.free()
    source.free()
    found = {"state, GB": size / 1e9, "plain copy, s": copied, "plain copy, read and written, TB/s": 2 * size / copied / 1e12}
    snapshot, latest = run.snapshot(), [run.snapshot()]

    def follow() -> None:
        latest[0] = run.snapshot(replaces=latest[0])

    calls = {
        "snapshot": follow,
        "snapshot in new memory": run.snapshot,
        "rollback": lambda: run.rollback(snapshot),
    }
    for name, call in calls.items():
        seconds = find_median(call, sizes.rounds)
        found |= {f"{name}, s": seconds, f"{name}, of a plain copy": copied / seconds}
    held = run.snapshot(on_host=True)
    found["snapshot to the host, s"] = find_median(lambda: run.snapshot(on_host=True), 2)
    found["rollback from the host, s"] = find_median(lambda: run.rollback(held), 2)
    return found


def measure_observers(sizes: Sizes) -> Figures:
    """Return the seconds per step without and with observers, in windows that take turns, and the cost as a share."""
    batch = make_batch(sizes.rows, sizes.square)
    runs = {name: make_run(make_square(sizes), batch, every) for name, every in (("plain", None), ("observed", sizes.every))}

    def train(name: str) -> None:
        if name == "observed":
            runs[name].fit([batch], sizes.every)
            return
        for _ in range(sizes.every):
            runs[name].step.run(batch)

    samples: dict[str, list[float]] = {name: [] for name in runs}
    for name in runs:
        train(name)  # the closing step is compiled here
    open_device().synchronize()
    for _ in range(sizes.rounds):
        for name, times in samples.items():
            started = time.perf_counter()
            train(name)
            open_device().synchronize()
            times.append((time.perf_counter() - started) / sizes.every)
    plain, observed = (statistics.median(samples[name]) for name in ("plain", "observed"))
    return {"plain step, s": plain, "observed step, s": observed, "cost of observers, share": observed / plain - 1.0}


def count_held() -> tuple[int, int]:
    """Return the bytes of device memory that this process holds, and the graphs that are alive."""
    gc.collect()
    # By type: isinstance asks objects of other packages what they are, and some answer with a warning.
    held = gc.get_objects()
    buffers = [x for x in held if issubclass(type(x), RuntimeBuffer) and x.is_alive]
    return sum(b.size_bytes for b in buffers), sum(issubclass(type(x), RuntimeGraph) for x in held)


def measure_cycles(sizes: Sizes) -> Figures:
    """Return what bytes and graphs there are more behind cycles of widen, prune and rollback than behind the first one."""
    width = min(sizes.width, 64)
    batch = make_batch(sizes.rows, width)
    run = make_run([nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, width)], batch)
    snapshot = run.snapshot()

    def turn() -> None:
        run.widen("0", 64)
        run.step(*batch).item()
        run.prune("0", range(16))
        run.step(*batch).item()
        run.rollback(snapshot)
        run.step(*batch).item()

    turn()
    before, started = count_held(), time.perf_counter()
    for _ in range(sizes.cycles):
        turn()
    seconds, after = time.perf_counter() - started, count_held()
    return {
        "cycles": sizes.cycles,
        "bytes more": after[0] - before[0],
        "graphs more": after[1] - before[1],
        "a cycle, s": seconds / sizes.cycles,
    }


# Part, figure, aim, the least to resolve.
ROWS = (
    ("widen", "first: all, s", "0.1", "0.5"),
    ("widen", "again: all, s", "0.1", "0.5"),
    ("widen", "kernels compiled in rewrites", "0", "0"),
    ("moments", "snapshot, of a plain copy", "0.85", "0.70"),
    ("moments", "rollback, of a plain copy", "0.85", "0.70"),
    ("observers", "cost of observers, share", "0.01", ""),
    ("cycles", "bytes more", "0", "0"),
    ("cycles", "graphs more", "0", "0"),
)
PARTS: dict[str, Callable[[Sizes], Figures]] = {
    "widen": measure_widen,
    "moments": measure_moments,
    "observers": measure_observers,
    "cycles": measure_cycles,
}


def write_page(found: dict[str, Figures], facts: dict[str, Any]) -> str:
    """Return the page: all figures, and last the table of those that have an aim."""
    lines = ["# What rewriting costs", "", "; ".join(f"{name} {value}" for name, value in facts.items()), ""]
    lines += ["Made by `python profiles/rewrite/measure.py`. Medians, but for the widenings, which are timed once each.", ""]
    for part, figures in found.items():
        lines += [f"{part}: " + "; ".join(f"{name} {value:.4g}" for name, value in figures.items()), ""]
    lines += ["| figure | found | aim | least |", "|---|---|---|---|"]
    lines += [f"| {name} ({part}) | {found[part][name]:.3g} | {aim} | {least} |" for part, name, aim, least in ROWS if part in found]
    return "\n".join(lines)


def main(args: list[str] | None = None) -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="sizes for the emulated device")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--page", type=Path, help="where the page is written; beside it, JSON with everything")
    given = parser.parse_args(args)
    sizes = TINY if given.tiny else FULL
    found = {}
    for part in given.parts:
        found[part] = PARTS[part](sizes)
        print(f"{part}: {found[part]}", flush=True)
        gc.collect()
    properties = open_device().properties
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    facts = {"on": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": done.stdout.strip() or "unknown", "device": properties.name}
    facts |= {"driver": str(properties.driver_version), "sizes": str(sizes)}
    page = write_page(found, facts)
    if given.page is not None:
        given.page.write_text(page + "\n")
        given.page.with_suffix(".json").write_text(json.dumps({"facts": facts, "found": found}, indent=1) + "\n")
    print(page)


if __name__ == "__main__":
    main()
