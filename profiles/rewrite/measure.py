"""What rewriting a network in training costs, and what it leaves as it was: ``python profiles/rewrite/measure.py``.

The way from a widening of every MLP to the end of the first step, by phases; snapshots and rollbacks beside a plain copy of as many bytes;
observers; what is left of memory and graphs behind many cycles of widen, prune and rollback; differences of function and trajectory; runs
of one seed beside each other; and proposals of structures. Some minutes on a GPU, without the compiler's. On the emulated device the script
runs with ``--tiny``; its times then are those of kernels on the CPU and say nothing of a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import operator
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT)]

from rewrite_exactness import measure_exactness, measure_proposals, measure_repeats  # noqa: E402
from rewrite_runs import (  # noqa: E402
    FULL,
    TINY,
    Figures,
    Sizes,
    make_anchor,
    make_batch,
    make_run,
    make_square,
    make_stack,
    make_widening,
)

from aicf import nn  # noqa: E402
from aicf.plan.data import STATE  # noqa: E402
from aicf.rewrite import Prune, Widen  # noqa: E402
from aicf.rewrite import run as rewrite_run  # noqa: E402
from aicf.rewrite.draft import Draft  # noqa: E402
from aicf.rewrite.structure import Structure  # noqa: E402
from device import open_device  # noqa: E402
from device.memory import RuntimeBuffer  # noqa: E402
from device.runtime import RuntimeGraph  # noqa: E402

PHASES = ((Structure, "start"), (Draft, "carry"), (rewrite_run, "check"), (Structure, "prepare"), (Structure, "exchange"))


class Heard(logging.Handler):
    """Collects warnings, to be told once each."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count a warning."""
        self._counts[record.getMessage()] += 1

    def tell(self) -> None:
        """Print each warning once, with the number of times, and begin anew."""
        for text, count in self._counts.items():
            print(f"  {text}" + (f" ({count} times)" if count > 1 else ""), flush=True)
        self._counts.clear()


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
    """Return the seconds per step without and with observers, which take turns of one second or two, and the cost as a share.

    Of the anchor, whose steps are short, so that a turn is ten windows, and of a plain MLP of square layers. What the step that closes a
    window takes longer than the others is told by itself, of a few runs of each that are waited for.
    """
    found: Figures = {}
    for network, layers, rows, amp, windows in (
        ("anchor", make_anchor, sizes.anchor_rows, "bfloat16", 10),
        ("square", make_square, sizes.rows, None, 1),
    ):
        batch = make_batch(rows, sizes.anchor if network == "anchor" else sizes.square)
        runs = {name: make_run(layers(sizes), batch, every, amp=amp) for name, every in (("plain", None), ("observed", sizes.every))}

        steps = windows * sizes.every

        def train(name: str, runs: dict[str, Any] = runs, batch: Any = batch, steps: int = steps) -> None:
            if name == "observed":
                runs[name].fit([batch], steps)
                return
            for _ in range(steps):
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
                times.append((time.perf_counter() - started) / steps)
        plain, observed = (statistics.median(samples[name]) for name in ("plain", "observed"))
        found |= {f"{network}: plain step, s": plain, f"{network}: observed step, s": observed}
        found[f"{network}: cost of observers, share"] = observed / plain - 1.0
        structure = runs["observed"]._structure
        for name, step in (("plain", runs["plain"].step), ("noting", structure.step), ("closing", structure.close_step)):
            found[f"{network}: a {name} step alone, s"] = find_median(lambda step=step, batch=batch: step.run(batch), 4 * sizes.rounds)  # type: ignore[misc]
    return found


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
    run.prebuild(Widen("0", 64))
    run.widen("0", 64)
    run.prebuild(Prune("0", tuple(range(16))))
    run.rollback(snapshot)

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


# Part, figure, how it is compared with the aim and the least to resolve.
BELOW, ABOVE = operator.le, operator.ge
ROWS: tuple[tuple[str, str, Callable[[float, float], bool], float, float | None], ...] = (
    ("widen", "first: all, s", BELOW, 0.1, 0.5),
    ("widen", "again: all, s", BELOW, 0.1, 0.5),
    ("widen", "kernels compiled in rewrites", BELOW, 0, 0),
    ("exactness", "function, largest", BELOW, 1e-6, 1e-6),
    ("exactness", "trajectory, largest", BELOW, 1e-4, 1e-4),
    ("moments", "snapshot, of a plain copy", ABOVE, 0.85, 0.70),
    ("moments", "rollback, of a plain copy", ABOVE, 0.85, 0.70),
    ("observers", "anchor: cost of observers, share", BELOW, 0.01, 0.01),
    ("observers", "square: cost of observers, share", BELOW, 0.01, 0.01),
    ("cycles", "bytes more", BELOW, 0, 0),
    ("cycles", "graphs more", BELOW, 0, 0),
    ("repeats", "decisions that differ", BELOW, 0, 0),
    ("repeats", "decisions that the log does not give", BELOW, 0, 0),
    ("repeats", "states that differ", BELOW, 0, 0),
    ("proposals", "p below random", BELOW, 0.01, 0.01),
    ("proposals", "p below nearest problem's best", BELOW, 0.01, None),
    ("proposals", "p below best on average", BELOW, 0.01, None),
    ("proposals", "p below largest", BELOW, 0.01, None),
)
PARTS: dict[str, Callable[[Sizes], Figures]] = {
    "widen": measure_widen,
    "exactness": measure_exactness,
    "moments": measure_moments,
    "observers": measure_observers,
    "cycles": measure_cycles,
    "repeats": measure_repeats,
    "proposals": measure_proposals,
}


def judge_figure(value: float, compare: Callable[[float, float], bool], aim: float, least: float | None) -> str:
    """Return what a figure has reached; one that is no number has reached nothing."""
    if compare(value, aim):
        return "aim"
    return "least" if least is not None and compare(value, least) else "**missed**"


def write_page(found: dict[str, Figures], facts: dict[str, Any]) -> str:
    """Return the page: the table of figures that have an aim, then all of them."""
    lines = [
        f"# What rewriting costs on {facts['device']}, and what it leaves as it was",
        "",
        "; ".join(f"{name} {value}" for name, value in facts.items()),
        "",
    ]
    lines += ["Made by `python profiles/rewrite/measure.py`. Medians, but for the widenings, which are timed once each.", ""]
    lines += ["| figure | found | aim | least | reached |", "|---|---|---|---|---|"]
    for part, name, compare, aim, least in ROWS:
        if part in found:
            value, lowest = found[part][name], "-" if least is None else f"{least:g}"
            lines.append(f"| {name} ({part}) | {value:.3g} | {aim:g} | {lowest} | {judge_figure(value, compare, aim, least)} |")
    for part, figures in found.items():
        lines += ["", f"{part}: " + "; ".join(f"{name} {value:.4g}" for name, value in figures.items())]
    return "\n".join(lines)


def main(args: list[str] | None = None) -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="sizes for the emulated device")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--page", type=Path, help="where the page is written; beside it, JSON with everything")
    given = parser.parse_args(args)
    sizes = TINY if given.tiny else FULL
    properties = open_device().properties
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    facts = {"on": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": done.stdout.strip() or "unknown", "device": properties.name}
    facts |= {"driver": str(properties.driver_version), "sizes": str(sizes)}
    found: dict[str, Figures] = {}
    heard = Heard()
    logging.getLogger("aicf").addHandler(heard)
    for part in given.parts:
        started = time.perf_counter()
        found[part] = PARTS[part](sizes)
        print(f"{part}: measured in {time.perf_counter() - started:.1f} s", flush=True)
        heard.tell()
        if given.page is not None:  # what is measured is kept, however this ends
            given.page.write_text(write_page(found, facts) + "\n")
            given.page.with_suffix(".json").write_text(json.dumps({"facts": facts, "found": found}, indent=1) + "\n")
        gc.collect()
    print(write_page(found, facts))


if __name__ == "__main__":
    main()
