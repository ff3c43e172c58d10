"""The same bench in fresh processes, other timers on the same launches, and what the place of data and code in memory does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from contests import dump

from device import open_device
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import build_op
from harness.discover import find_op
from harness.targets import find_target
from harness.timing.batches import Launch
from harness.timing.timer import Timer, TimingPolicy
from harness.verify.case import Case
from harness.verify.inputs import make_inputs

BENCHED = (
    ("transpose", "vectorised/bm64_bn64_threads256", "rows512_columns512"),
    ("transpose", "vectorised/bm64_bn64_threads256", "rows4096_columns4096"),
    ("transpose", "naive/bm8_bn32", "rows4096_columns4096"),
    ("transpose", "tiled/bm32_bn32_threads256_pad1", "rows5003_columns4099"),
)
NUM_PROCESSES = 5


def run_repeat(out: Path) -> None:
    """Run the same bench in fresh processes."""
    runs = []
    for _ in range(NUM_PROCESSES):
        run: dict[str, Any] = {}
        for op in dict.fromkeys(op for op, _, _ in BENCHED):
            chosen = [(v, p) for o, v, p in BENCHED if o == op]
            words = [w for v in dict.fromkeys(v for v, _ in chosen) for w in ("--variant", v)]
            words += [w for p in dict.fromkeys(p for _, p in chosen) for w in ("--problem", p)]
            done = subprocess.run(
                [sys.executable, "-m", "harness", "bench", op, *words, "--json"], capture_output=True, text=True, check=True
            )
            for row in json.loads(done.stdout)["rows"]:
                for mode in ("cold", "hot"):
                    if row[mode]:
                        run[f"{op} {row['variant']} {row['problem']} {mode}"] = row[mode]
        runs.append(run)
    (out / "repeat.json").write_text(dump(runs))
    for name in runs[0]:
        medians = [r[name]["median_us"] for r in runs if name in r]
        print(f"{name}: {np.median(medians):.3f} us, spread {100 * np.ptp(medians) / np.median(medians):.2f} %")


@contextmanager
def open_launches() -> Iterator[tuple[Timer, list[tuple[str, Launch]]]]:
    """Open the benched variants on the GPU, each with its problem in memory."""
    device = open_device("cuda")
    toolchain = find_toolchain()
    cases, launches = [], []
    for op_name, name, problem_name in BENCHED:
        loaded = find_op(op_name)
        variant, problem = loaded.op.select_variants([name])[0], loaded.op.select_problems("bench", [problem_name])[0]
        (built,) = build_op(loaded, [variant], toolchain=toolchain, target=find_target("h200"))
        assert built.library is not None, built.error
        launchable = open_variant(loaded.op, build_binding(loaded, toolchain), built.library, variant)
        case = Case(device, loaded.op, problem)
        case.upload(make_inputs(loaded.op, problem, "uniform"))
        case.prepare(launchable)
        cases.append(case)
        launches.append((f"{op_name} {name} {problem_name}", lambda s, case=case, launchable=launchable: case.launch(launchable, s)))
    timer = Timer(device, replace(TimingPolicy(), warmup_cap_s=1.0))
    try:
        yield timer, launches
    finally:
        timer.close()
        for case in cases:
            case.free()


class _Handle:
    """A stream of another library."""

    def __init__(self, handle: int) -> None:
        self.handle = handle


def run_agree(out: Path) -> None:
    """Time the same launches with our timer, Triton's and NVBench."""
    import torch
    from triton.testing import do_bench

    rows: dict[str, dict[str, Any]] = {}
    with open_launches() as (timer, launches):
        for name, launch in launches:
            cold, hot = timer.measure_cold(launch), timer.measure_hot(launch)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                times = do_bench(lambda launch=launch, s=stream: launch(_Handle(s.cuda_stream)), warmup=100, rep=200, return_mode="all")
            rows[name] = {
                "cold": cold.to_figures(),
                "hot": hot.to_figures(),
                "do_bench_us": [1e3 * float(q) for q in np.quantile(times, [0.25, 0.5, 0.75])],
            }
            print(f"{name}: cold {cold.summary.median:.3f} hot {hot.summary.median:.3f} do_bench {1e3 * float(np.median(times)):.3f} us")
        (out / "agree.json").write_text(dump(rows))
        try:
            _run_nvbench(out, launches)
        except (ImportError, RuntimeError) as error:
            print(f"NVBench does not run here: {error}")


def _run_nvbench(out: Path, launches: list[tuple[str, Launch]]) -> None:
    import cuda.bench as bench

    for i, (name, launch) in enumerate(launches):

        def measure(state: Any, launch: Launch = launch) -> None:
            state.exec(lambda call: launch(_Handle(call.get_stream().addressof())))

        measure.__name__ = f"launch{i}"
        bench.register(measure)
        print(f"NVBench: launch{i} is {name}")
    bench.run_all_benchmarks([sys.argv[0], "--json", str(out / "nvbench.json"), "--timeout", "5"])
