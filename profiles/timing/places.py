"""Where the time of a short launch comes from: places of its data, copies of its code, streams, and the process.

In each of five processes a launch is timed over all combinations, in the same rounds, and the medians of the combinations are kept.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from contests import dump
from numpy.typing import NDArray

from device import Device, open_device
from device.interface import Buffer
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import build_op
from harness.discover import find_op
from harness.spec import Launchable
from harness.targets import find_target
from harness.timing.batches import Mode, Subject
from harness.timing.timer import Timer, TimingPolicy
from harness.verify.case import Case
from harness.verify.inputs import make_inputs

VARIANTS = ("vectorised/bm64_bn64_threads256", "naive/bm8_bn32", "tiled/bm32_bn32_threads256_pad1")
PROBLEM = "rows512_columns512"
NUM_PROCESSES = 5
NUM_DATA, NUM_CODES, NUM_STREAMS = 16, 3, 2
NUM_ROUNDS = 12
# Up to this many bytes lie between two places: neighbours on a page, and places far apart.
_SPACES = (1 << 16, 1 << 23, 1 << 31)


def run_place(out: Path) -> None:
    """Measure in this process; write the medians by launch as [streams, codes, data] in microseconds."""
    device = open_device("cuda")
    loaded, toolchain = find_op("transpose"), find_toolchain()
    (problem,) = loaded.op.select_problems("bench", [PROBLEM])
    binding = build_binding(loaded, toolchain)
    rng = random.Random()
    spaces: list[Buffer] = []

    def leave_space() -> None:
        spaces.append(device.allocate(rng.randrange(1, rng.choice(_SPACES))))

    timers, cases = [], []
    for i in range(NUM_DATA):
        leave_space()
        case = Case(device, loaded.op, problem)
        case.upload(make_inputs(loaded.op, problem, "uniform"))
        cases.append(case)
        if i % (NUM_DATA // NUM_STREAMS) == 0:
            timers.append(Timer(device, TimingPolicy(warmup_cap_s=0.5)))
    found: dict[str, Any] = {"empty_launch_us": [t.empty_launch_us for t in timers]}
    with tempfile.TemporaryDirectory() as folder:
        for variant in loaded.op.select_variants(list(VARIANTS)):
            (built,) = build_op(loaded, [variant], toolchain=toolchain, target=find_target("h200"))
            assert built.library is not None, built.error
            codes = []
            for i in range(NUM_CODES):
                copy = Path(folder) / f"{variant.kernel}{i}.so"
                shutil.copyfile(built.library, copy)
                codes.append(open_variant(loaded.op, binding, copy, variant))
                leave_space()
            for mode in Mode:
                found[f"{variant.name} {mode}"] = _measure(device, timers, codes, cases, mode).tolist()
    out.joinpath("place.json").write_text(json.dumps(found))


def _measure(device: Device, timers: list[Timer], codes: list[Launchable], cases: list[Case], mode: Mode) -> NDArray[np.float64]:
    """Return medians [streams, codes, data]."""

    def prepare(timer: Timer, code: Launchable, case: Case) -> Subject:
        return timer.prepare(lambda stream: case.launch(code, stream), mode)

    medians = []
    for timer in timers:
        subjects = [prepare(timer, code, case) for code in codes for case in cases]
        timer.warm_up(subjects)
        times = timer.run_rounds(subjects, NUM_ROUNDS if mode is Mode.COLD else NUM_ROUNDS // 4).times_us
        medians.append(np.median(times.transpose(1, 0, 2).reshape(len(codes), len(cases), -1), axis=2))
    return np.array(medians)


def run_places(out: Path) -> None:
    """Measure in fresh processes."""
    runs = []
    for _ in range(NUM_PROCESSES):
        subprocess.run([sys.executable, "scripts/check_timing.py", "place", "--out", str(out)], check=True)
        runs.append(json.loads((out / "place.json").read_text()))
    about = f"{NUM_DATA} places of the data, {NUM_CODES} copies of the code, {NUM_STREAMS} streams"
    (out / "places.json").write_text(dump([{"about": about, "runs": runs}]))
    print("\n".join(describe_places(runs)))


def describe_places(runs: list[dict[str, Any]]) -> list[str]:
    """Return a Markdown table: how far medians lie apart by data, code and stream within processes, and between processes."""
    lines = [
        "| launch | median us | by data | by code | by stream | between processes, one place | between processes, all places |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in (n for n in runs[0] if n != "empty_launch_us"):
        medians = [np.array(r[name]) for r in runs]
        within = [np.median([_spread(np.median(m, axis=others)) for m in medians]) for others in ((0, 1), (0, 2), (1, 2))]
        between = (_spread([m[0, 0, 0] for m in medians]), _spread([np.median(m) for m in medians]))
        varied = [medians[0].shape[axis] > 1 for axis in (2, 1, 0)]
        shares = " | ".join(
            f"{100 * s:.1f} %" if is_known else "" for s, is_known in zip((*within, *between), (*varied, True, True), strict=True)
        )
        lines.append(f"| {name} | {np.median(np.array(medians)):.3f} | {shares} |")
    return lines


def _spread(values: Any) -> float:
    return float(np.ptp(values) / np.median(values))
