"""Puts the timing to the test on a GPU: false and missed verdicts, the same bench in fresh processes, and what other timers say.

python scripts/check_timing.py contests --out FOLDER     kernels against themselves, and against one that is 1 % slower
python scripts/check_timing.py repeat --out FOLDER       the same bench in five fresh processes
python scripts/check_timing.py agree --out FOLDER        Triton's do_bench and NVBench on the same launches
python scripts/check_timing.py report FOLDER             profiles/timing/h200.md, from the three files in FOLDER
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from device import Device, open_device
from device.interface import Stream
from harness.batches import Launch, Mode
from harness.build import build_binding, build_op, open_variant
from harness.contest import run_contest
from harness.discover import find_op
from harness.inputs import make_inputs
from harness.runner import Case
from harness.targets import find_target
from harness.timing import Timer, TimingPolicy
from harness.toolchain import find_toolchain
from harness.verdicts import Criteria

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
BENCHED = (
    ("transpose", "vectorised/bm64_bn64_threads256", "rows512_columns512"),
    ("transpose", "vectorised/bm64_bn64_threads256", "rows4096_columns4096"),
    ("transpose", "naive/bm8_bn32", "rows4096_columns4096"),
    ("transpose", "tiled/bm32_bn32_threads256_pad1", "rows5003_columns4099"),
)
NUM_PROCESSES = 5


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
            with self.cupy.cuda.ExternalStream(stream.handle):
                kernel(grid, block, arguments)

        return launch


def tune(timer: Timer, make: Callable[[int], Launch], mode: Mode, time_us: float, count: int) -> int:
    """Return the count at which a launch takes about ``time_us``: its time is a line in the count."""
    for _ in range(3):
        short, long = (timer.measure([timer.prepare(make(c), mode)])[0].summary.median for c in (count, 2 * count))
        count = max(16, int(count + (time_us - short) * count / (long - short)))
    return count


def _dump(value: Any) -> str:
    """Return JSON with six digits, a row a line."""

    def cut(each: Any) -> Any:
        if isinstance(each, float):
            return float(f"{each:.6g}")
        if isinstance(each, dict):
            return {k: cut(v) for k, v in each.items()}
        return [cut(v) for v in each] if isinstance(each, list) else each

    return json.dumps(cut(value)).replace('}, {"kernel"', '},\n{"kernel"') + "\n"


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
    (out / "contests.json").write_text(_dump({"facts": facts, "rows": rows}))


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
    (out / "repeat.json").write_text(_dump(runs))
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
        (out / "agree.json").write_text(_dump(rows))
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


def make_report(folder: Path) -> str:
    """Return the page of what was found."""
    contests = json.loads((folder / "contests.json").read_text())
    facts, rows = contests["facts"], contests["rows"]
    lines = [f"# The timing put to the test on an {facts['device']}", ""]
    lines += [f"An empty pair of events takes {facts['empty_pair_us']:.2f} us, an empty launch {facts['empty_launch_us']:.2f} us.", ""]
    lines += ["## Verdicts", "", "| kernel | planted | contests | FASTER | SLOWER | SAME | AMBIGUOUS | void | median rounds | s each |"]
    lines += ["|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for key in dict.fromkeys((r["kernel"], r["mode"], abs(r["planted"]) and r["planted"]) for r in rows):
        group = [r for r in rows if (r["kernel"], r["mode"], r["planted"]) == key]
        count = Counter(r["verdict"] for r in group)
        words = " | ".join(str(count[w]) for w in ("FASTER", "SLOWER", "SAME", "AMBIGUOUS"))
        about = f"{key[0]}, {np.median([r['incumbent_median_us'] for r in group]):.1f} us {key[1]} | {key[2]:+d} % | {len(group)}"
        voids = sum(r["is_void"] for r in group)
        rounds, seconds = (np.median([r[k] for r in group]) for k in ("num_rounds", "seconds"))
        lines.append(f"| {about} | {words} | {voids} | {rounds:.0f} | {seconds:.2f} |")
    runs = json.loads((folder / "repeat.json").read_text())
    lines += [
        "",
        f"## The same bench in {len(runs)} fresh processes",
        "",
        "| launch | median us | spread of the medians |",
        "|---|--:|--:|",
    ]
    for name in runs[0]:
        medians = [r[name]["median_us"] for r in runs if name in r]
        lines.append(f"| {name} | {np.median(medians):.3f} | {100 * np.ptp(medians) / np.median(medians):.2f} % |")
    agree = json.loads((folder / "agree.json").read_text())
    others = _read_nvbench(folder / "nvbench.json")
    lines += ["", "## What other timers say of the same launches", "", "| launch | cold us | do_bench us | NVBench us | hot us |"]
    lines += ["|---|--:|--:|--:|--:|"]
    for i, (name, row) in enumerate(agree.items()):
        other = f"{others[i]:.3f}" if i in others else ""
        lines.append(f"| {name} | {row['cold']['median_us']:.3f} | {row['do_bench_us'][1]:.3f} | {other} | {row['hot']['median_us']:.3f} |")
    return "\n".join([*lines, ""])


def _read_nvbench(path: Path) -> dict[int, float]:
    """Return NVBench's cold medians (means, where it has none) in microseconds by the number of the launch."""
    if not path.is_file():
        return {}
    found: dict[int, float] = {}
    for each in json.loads(path.read_text())["benchmarks"]:
        summaries = {s["tag"]: s for s in each["states"][0]["summaries"]}
        tag = next((t for t in ("nv/cold/time/gpu/median", "nv/cold/time/gpu/mean") if t in summaries), None)
        if tag is not None:
            value = next(d["value"] for d in summaries[tag]["data"] if d["name"] == "value")
            found[int(each["name"].removeprefix("launch"))] = 1e6 * float(value)
    return found


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("contests", "repeat", "agree", "report"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/timing"))
    parser.add_argument("--same", type=int, default=70, help="contests of each kernel with itself")
    parser.add_argument("--planted", type=int, default=60, help="contests of each kernel of 50 us with one that is 1 %% off")
    arguments = parser.parse_args()
    if arguments.what == "report":
        page = Path(__file__).resolve().parents[1] / "profiles" / "timing" / "h200.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        for name in ("contests", "repeat", "agree", "nvbench"):
            if (arguments.folder / f"{name}.json").is_file():
                shutil.copyfile(arguments.folder / f"{name}.json", page.parent / f"h200-{name}.json")
        page.write_text(make_report(arguments.folder))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "contests":
        run_contests(arguments.out, arguments.same, arguments.planted)
    else:
        {"repeat": run_repeat, "agree": run_agree}[arguments.what](arguments.out)


if __name__ == "__main__":
    main()
