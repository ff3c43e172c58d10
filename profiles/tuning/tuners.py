"""The same space tuned by Kernel Tuner and by ``sweep``, each in processes of its own, and their winners measured beside each other.

Kernel Tuner (B. van Werkhoven, "Kernel Tuner: A search-optimizing GPU code auto-tuner", FGCS 90, 2019) runs with its defaults: every
configuration, 7 iterations of each, nothing verified; through its CuPy backend, which compiles by NVRTC. Ours compiles by nvcc, proves each
variant, and ends with finals. Wall times are those of whole processes, with empty caches of compiled code unless said otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent / "ops" / "matmul"
ROOT = Path(__file__).resolve().parents[2]
SIZE = 2048
NUM_REPEATS = 5
# Ours, as it is asked for; the first finds no compiled code.
OURS: dict[str, dict[str, Any]] = {
    "grid": {"strategy": "grid", "prune": 2.0},
    "tpe": {"strategy": "tpe", "per_kernel": 50, "prune": 2.0},
}


def tune_with_kernel_tuner(out: Path) -> None:
    """Tune with Kernel Tuner's defaults and write its winner."""
    from kernel_tuner import tune_kernel

    from harness.discover import load_op

    op = load_op(FOLDER)
    parameters = {t.name: list(t.values) for t in op.kernels[0].tunables}
    restrictions = [c.message for c in op.kernels[0].constraints]
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (SIZE, SIZE)).astype(np.float32) for _ in range(2))
    size = np.int32(SIZE)
    results, _ = tune_kernel(
        "matmul",
        str(FOLDER / "kernels.cu"),
        (SIZE, SIZE),
        [a, b, np.zeros_like(a), size, size, size],
        parameters,
        block_size_names=["bx", "by"],
        grid_div_x=["bx * tx"],
        grid_div_y=["by * ty"],
        restrictions=restrictions,
        lang="CUPY",
        quiet=True,
    )
    timed = [r for r in results if isinstance(r["time"], float)]
    best = min(timed, key=lambda r: r["time"])
    values = {name: int(best[name]) for name in parameters}
    out.write_text(json.dumps({"configurations": len(results), "timed": len(timed), "winner": values, "time_us": 1e3 * best["time"]}))


def tune_with_sweep(name: str, out: Path, *, resume: bool) -> None:
    """Sweep, hold the finals, and write the winner; ``reached_s`` are the seconds from here at which each step was done."""
    started, reached_s = time.time(), {}

    from harness.discover import LoadedOp, load_op
    from harness.sweep.space import select_sweep_problems
    from harness.sweep.startup import Preparation

    loaded = LoadedOp(load_op(FOLDER), FOLDER)
    (problem,) = select_sweep_problems(loaded.op)
    with Preparation(loaded, (problem,), starts_processes=not resume) as preparation:
        # Only now: the processes that measure import the same meanwhile.
        from harness.benchmark.session import Session
        from harness.sweep.finals import hold_finals
        from harness.sweep.progress import GpuUse
        from harness.sweep.run import SweepPlan, SweepRun
        from harness.sweep.strategies import StrategyName
        from harness.timing.ahead import ExpectedAhead
        from harness.timing.rounds import expect_timed

        options = OURS[name] | {"strategy": StrategyName(OURS[name]["strategy"]), "resume": resume}
        with (
            Session.start(loaded, f"compare_tuners {name}") as session,
            ExpectedAhead(loaded.op, (problem,), expect_timed, num_threads=1) as ahead,
        ):
            sweep = SweepRun(session, SweepPlan(**options), (problem,), preparation)
            use = GpuUse()
            reached_s["session"] = time.time() - started
            found = []
            for each in sweep.run():
                use.add([m.point for m in each.points], each.usage)
                found.append(each)
            if turns := [f.usage for f in found if f.usage is not None]:
                reached_s |= {"first_turn": min(u.began_s for u in turns) - started, "last_turn": max(u.ended_s for u in turns) - started}
            reached_s["screen"] = time.time() - started
            points = [m.point for f in found for m in f.points]
            winner = hold_finals(session, [f.build for f in found], sweep.binding, points, problem, 5, ahead)
            reached_s["finals"] = time.time() - started
    assert winner is not None
    passed = [p for p in points if p.status == "passed"]
    values = dict(loaded.op.select_variants([winner.winner])[0].values)
    done = {"configurations": len(points), "timed": len(passed), "winner": values, "use": use.to_figures(), "reached_s": reached_s}
    out.write_text(json.dumps(done | {"failed": [p.reason for p in points if p.status == "failed"]}))


def compare_winners(winners: Sequence[dict[str, int]], out: Path) -> None:
    """Measure the first winner against the others, in turns, and write the verdicts."""
    from harness.benchmark.session import Session
    from harness.build.binding import build_binding
    from harness.build.builder import build_op
    from harness.compare.variants import Side, compare_sides
    from harness.discover import LoadedOp, load_op
    from harness.timing.timer import Mode, Timer
    from harness.timing.verdicts import Criteria

    loaded = LoadedOp(load_op(FOLDER), FOLDER)
    variants = [loaded.op.kernels[0].bind(w) for w in winners]
    with Session.start(loaded, "compare_tuners winners") as session:
        builds = build_op(loaded, variants, toolchain=session.toolchain, target=session.target, jobs=session.settings.jobs)
        binding = build_binding(loaded, session.toolchain)
        sides = [Side(b.variant.name, loaded.op, b, binding) for b in builds]
        timer = Timer(session.device)
        rows = list(compare_sides(session, timer, sides[0], sides[1:], [loaded.op.select_problems("bench")[0]], Mode.COLD, Criteria()))
        timer.close()
        facts = {"device": session.device.properties.name, "toolchain": session.toolchain.identity, "commit": session.commit.sha}
    out.write_text(json.dumps({"facts": facts, "rows": [r.to_json() for r in rows]}))


def _run(folder: Path, *words: str, cache: Path, records: Path) -> dict[str, Any]:
    """Run one step in a process of its own; return what it wrote, with the seconds that the process took."""
    out = folder / "step.json"
    env = os.environ | {
        "AICF_CACHE_DIR": str(cache),
        "AICF_RECORDS_URL": f"sqlite:///{records}",
        "CUPY_CACHE_DIR": str(cache / "cupy"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    started = time.monotonic()
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "compare_tuners.py"), *words, "--out", str(out)], env=env, check=False)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)} failed with exit status {done.returncode}")
    found: dict[str, Any] = json.loads(out.read_text())
    steps = "".join(f", {name} at {at:.1f} s" for name, at in found.get("reached_s", {}).items())
    busy = f", GPU busy {found['use']['busy_share']:.0%}" if found.get("use") else ""
    print(f"{' '.join(words)}: {seconds:.1f} s{steps}{busy}, {found.get('timed', '')} timed, winner {found.get('winner', '')}", flush=True)
    return found | {"seconds": seconds}


def run_all(out: Path, strategies: Sequence[str] = tuple(OURS)) -> None:
    """Tune with both, repeat ours, and compare the winners; write one JSON document, anew after each strategy."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, Any] = {"kernel_tuner": _run(folder, "kernel_tuner", cache=folder / "kt", records=folder / "none.db"), "ours": {}}
        for strategy in strategies:
            cache = folder / strategy
            runs = [_run(folder, strategy, cache=cache, records=folder / f"{strategy}{i}.db") for i in range(NUM_REPEATS)]
            again = _run(folder, strategy, "--resume", cache=cache, records=folder / f"{strategy}0.db")
            found["ours"][strategy] = {"runs": runs, "from_records": again}
            winners = [found["kernel_tuner"]["winner"], *(r["winner"] for ours in found["ours"].values() for r in ours["runs"])]
            distinct = [dict(w) for w in dict.fromkeys(tuple(w.items()) for w in winners)]
            words = ["winners", *(w for winner in distinct for w in ("--winner", json.dumps(winner)))]
            found["winners"] = _run(folder, *words, cache=cache, records=folder / "winners.db")
            out.write_text(json.dumps(found, indent=1) + "\n")


def make_page(found: dict[str, Any]) -> str:
    """Return the comparison as Markdown."""
    theirs, facts = found["kernel_tuner"], found["winners"]["facts"]
    rows = {r["candidate"]: r for r in found["winners"]["rows"]}
    about = (
        f"A tiled matrix product in fp32, {SIZE} x {SIZE} x {SIZE}, {theirs['configurations']} configurations",
        "([kernels.cu](ops/matmul/kernels.cu)). Seconds are those of whole processes. Kernel Tuner 1.5.0 with its defaults through CuPy",
        f"(NVRTC); ours by nvcc, commit {facts['commit'][:12]}. *Beside Kernel Tuner's winner*: both compiled by nvcc and timed in turns",
        "by `compare`; below 0 % is faster.",
    )
    head = [
        f"# Kernel Tuner and `sweep` on the same space, on an {facts['device']}",
        "",
        " ".join(about),
        "",
        "| tuner | compiled code | seconds | of Kernel Tuner's | timed | winner | beside Kernel Tuner's winner |",
        "|---|---|--:|--:|--:|---|---|",
        _row("Kernel Tuner, every configuration", "none", theirs, theirs["seconds"], "", rows),
    ]
    same = "SAME: the same variant"
    for name, ours in found["ours"].items():
        head += [
            _row(f"sweep, {name}, run {i + 1}", "cached" if i else "none", run, theirs["seconds"], same, rows)
            for i, run in enumerate(ours["runs"])
        ]
        head.append(_row(f"sweep, {name}, from the records of run 1", "cached", ours["from_records"], theirs["seconds"], same, rows))
    busy = [f"{name} {run['use']['busy_share']:.0%}" for name, ours in found["ours"].items() for run in ours["runs"] if run["use"]]
    note = [found["note"], ""] if "note" in found else []
    return "\n".join([*head, "", *note, f"GPU busy between the first variant and the last, run by run: {', '.join(busy)}.", ""])


def _row(tuner: str, code: str, run: dict[str, Any], base_s: float, same: str, rows: dict[str, dict[str, Any]]) -> str:
    name = "tiled/" + "_".join(f"{k}{v}" for k, v in run["winner"].items())
    row = rows.get(name)
    beside = f"{row['verdict']} {100 * row['outcome']['effect']['change']:+.2f} %" if row and row["outcome"] else same
    return f"| {tuner} | {code} | {run['seconds']:.1f} | {run['seconds'] / base_s:.2f} | {run['timed']} | `{name}` | {beside} |"
