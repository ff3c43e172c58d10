"""Puts the decision of promote to the test on a GPU: how often a kernel takes a bucket from its own copy, and a planted win is found.

python scripts/check_promotion.py run --out FOLDER      200 trials of a kernel against its copy, and of kernels that do 2 % less work
python scripts/check_promotion.py report FOLDER         profiles/promotion/h200.md, from trials.json in FOLDER (--note TEXT adds to it)

A trial is what promote does with a bucket: a contest on each of its problems (incumbent, control and challenger in the same rounds), the
error shared among them, and one decision.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "profiles" / "timing"))

from contests import QUICK, Kernels, tune

from device import Device, open_device
from device.settings import find_project_root
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import build_op
from harness.compare.contest import run_contest
from harness.discover import find_op
from harness.freezing.decide.promote import PROMOTION
from harness.freezing.decide.ruling import judge_challenger, share_error
from harness.records.provenance import find_commit
from harness.targets import find_target
from harness.timing.timer import Launch, Mode, Timer
from harness.verify.case import Case
from harness.verify.inputs import make_inputs

# A bucket is a name and, by problem, the launches of incumbent, control and challenger.
Bucket = dict[str, tuple[Launch, Launch, Launch]]
OP, VARIANT = "gemm_bias_act", "wgmma/bm128_bn128_stages6_clusterm2_clustern1_pingpong1_group8"
PROBLEMS = (
    "M1024_N1024_K1024-act=relu-dtype=bfloat16-b_layout=nk-with_bias",
    "M2048_N2048_K2048-act=relu-dtype=bfloat16-b_layout=nk-with_bias",
)


def hold_trial(device: Device, timer: Timer, bucket: Bucket) -> dict[str, Any]:
    """Hold a contest on each problem and decide; returns plain values."""
    started = time.monotonic()
    criteria = share_error(PROMOTION, len(bucket))
    outcomes: dict[str, Any] = {}
    rounds, void = {}, False
    for name, launches in bucket.items():
        subjects = [timer.prepare(launch, Mode.COLD) for launch in launches]
        contest = run_contest(
            timer, subjects, ("a", "control", "b"), criteria, default_mhz=device.properties.clock_khz / 1000, budget_s=5.0
        )
        outcomes[name] = "void" if contest.is_void else contest.outcomes[0]
        rounds[name] = len(contest.times_us)
        void = void or contest.is_void
    ruling = judge_challenger(outcomes, PROMOTION)
    effects = {n: [o.verdict.value, o.effect.change] for n, o in outcomes.items() if not isinstance(o, str)}
    facts = {"promoted": ruling.winner is not None, "void": void, "effects": effects, "rounds": rounds, "reason": ruling.reason}
    return facts | {"seconds": time.monotonic() - started}


def make_planted(timer: Timer, kernels: Kernels, share: float) -> Callable[[Sequence[str]], Bucket]:
    """Return a maker of buckets of three launches of known work; of those that it is given, the challenger does ``share`` less."""
    counts = {
        "chain 50 us": (kernels.make_chain, tune(timer, kernels.make_chain, Mode.COLD, 50.0, 20_000)),
        "copy 50 us": (kernels.make_copy, tune(timer, kernels.make_copy, Mode.COLD, 50.0, 3_000_000)),
        "chain 20 us": (kernels.make_chain, tune(timer, kernels.make_chain, Mode.COLD, 20.0, 8_000)),
    }

    def make(names: Sequence[str]) -> Bucket:
        bucket = {}
        for name, (launch, count) in counts.items():
            # What that share of the time is in work: a launch has a part that no work changes.
            base, more = (timer.measure([timer.prepare(launch(c), Mode.COLD)])[0].summary.median for c in (count, int(1.1 * count)))
            less = round(count * (1 - share * base / ((more - base) / 0.1))) if name in names else count
            bucket[name] = (launch(count), launch(count), launch(less))
        return bucket

    return make


@contextmanager
def open_copies(device: Device) -> Iterator[Bucket]:
    """Give a bucket of a real kernel against its own copy: one library, loaded three times."""
    loaded, toolchain = find_op(OP), find_toolchain()
    (variant,) = loaded.op.select_variants([VARIANT])
    (built,) = build_op(loaded, [variant], toolchain=toolchain, target=find_target("h200"))
    assert built.library is not None, built.error
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder) / f"{i}.so" for i in range(3)]
        for copy in copies:
            shutil.copyfile(built.library, copy)
        opened = [open_variant(loaded.op, build_binding(loaded, toolchain), copy, variant) for copy in copies]
        cases, bucket = [], {}
        for problem in loaded.op.select_problems("bench", PROBLEMS):
            case = Case(device, loaded.op, problem)
            case.upload(make_inputs(loaded.op, problem, "uniform"))
            case.prepare(*opened)
            cases.append(case)
            launches = [lambda stream, case=case, each=each: case.launch(each, stream) for each in opened]
            bucket[problem.name] = (launches[0], launches[1], launches[2])
        yield bucket
        for case in cases:
            case.free()


def run(out: Path, num_same: int, num_planted: int) -> None:
    """Hold the trials and write trials.json."""
    device = open_device("cuda")
    timer = Timer(device, QUICK)
    rows = []

    def hold(kind: str, bucket: Bucket, count: int) -> None:
        rows.extend({"kind": kind} | hold_trial(device, timer, bucket) for _ in range(count))
        group = [r for r in rows if r["kind"] == kind]
        print(f"{kind}: {sum(r['promoted'] for r in group)} of {len(group)} promoted, {sum(r['void'] for r in group)} void", flush=True)

    make = make_planted(timer, Kernels(device), 0.02)
    same = make(())
    hold("copy: known work", same, num_same // 2)
    with open_copies(device) as bucket:
        hold("copy: " + VARIANT, bucket, num_same - num_same // 2)
    hold("2 % less work on all three problems", make(list(same)), num_planted)
    hold("2 % less work on one of three problems", make(["copy 50 us"]), num_planted)
    timer.close()
    facts = {
        "device": device.properties.name,
        "driver": device.properties.driver_version,
        "toolchain": find_toolchain().identity,
        "commit": find_commit(find_project_root()).sha,
        "python": platform.python_version(),
        "margin": PROMOTION.margin,
        "error": PROMOTION.error,
        "command": f"python scripts/check_promotion.py run --same {num_same} --planted {num_planted}",
    }
    (out / "trials.json").write_text(json.dumps({"facts": facts, "rows": rows}).replace('}, {"kind"', '},\n{"kind"') + "\n")


def make_report(folder: Path, note: str) -> str:
    """Return the page of what was found."""
    document = json.loads((folder / "trials.json").read_text())
    facts, rows = document["facts"], document["rows"]
    lines = [
        f"# The decision of promote put to the test on an {facts['device']}",
        "",
        f"`{facts['command']}` at commit {facts['commit'][:12]}, driver {facts['driver']}, {facts['toolchain']}.",
        f"Margin {100 * facts['margin']:.0f} %, confidence {100 * (1 - facts['error']):.0f} % over all problems of a bucket.",
        "A bucket of known work has three problems, one of the real kernel two.",
        "",
        "| challenger | trials | promoted | void | mean change | rounds a contest | s a trial |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for kind in dict.fromkeys(r["kind"] for r in rows):
        group = [r for r in rows if r["kind"] == kind]
        changes = [100 * c for r in group for _, c in r["effects"].values()]
        rounds = [n for r in group for n in r["rounds"].values()]
        counts = f"{len(group)} | {sum(r['promoted'] for r in group)} | {sum(r['void'] for r in group)}"
        seconds = sum(r["seconds"] for r in group) / len(group)
        lines.append(f"| {kind} | {counts} | {sum(changes) / len(changes):+.2f} % | {sum(rounds) / len(rounds):.0f} | {seconds:.2f} |")
    return "\n".join([*lines, "", *([note, ""] if note else [])])


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/promotion"))
    parser.add_argument("--same", type=int, default=200, help="trials of kernels against their own copies")
    parser.add_argument("--planted", type=int, default=40, help="trials of each kind of planted win")
    parser.add_argument("--note", default="", help="what else is to be said of the run")
    arguments = parser.parse_args()
    if arguments.what == "report":
        page = Path(__file__).resolve().parents[1] / "profiles" / "promotion" / "h200.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(arguments.folder / "trials.json", page.with_name("h200-trials.json"))
        page.write_text(make_report(arguments.folder, arguments.note))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    run(arguments.out, arguments.same, arguments.planted)


if __name__ == "__main__":
    main()
