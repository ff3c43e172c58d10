"""Training steps and inference of perceptrons on a GPU, beside PyTorch and JAX: ``python profiles/mlp/measure.py``.

Every contender starts from the same weights and gets a fresh batch of fp32 inputs on the device each step. Each library runs in a process
of its own, one after another. What is found is printed as a table last, and written as a page and as JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from cases import CASES, INFERENCE, TINY, Case, draw_cases  # noqa: E402

LIBRARIES = {"own": "AICF", "peer_torch": "PyTorch", "peer_jax": "JAX"}
# Building kernels and what torch.compile does included.
LIMITS_S = {"own": 300.0, "peer_torch": 150.0, "peer_jax": 90.0}
OWN, OWN_SCAN = "aicf compile_step", "aicf scan over 64"
Found = dict[str, dict[str, Any]]


def choose_cases(args: argparse.Namespace) -> dict[str, Case]:
    """Return what is measured: the listed cases, drawn ones, or the tiny one."""
    if args.drawn:
        return draw_cases(args.drawn, args.seed)
    if args.inference:
        return INFERENCE
    return TINY if args.tiny else CASES


def run_here(library: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return a library's figures by case, with its versions."""
    module = importlib.import_module(library)
    cases = choose_cases(args)
    if args.inference:
        return {"facts": module.describe(), "cases": {name: module.measure_inference(case, args.seconds) for name, case in cases.items()}}
    own = {"tune_seconds": args.tune} if library == "own" else {}
    found = {name: module.measure(case, args.seconds, args.drawn > 0, **own) for name, case in cases.items()}
    return {"facts": module.describe(), "cases": found}


def run_apart(library: str, args: argparse.Namespace, limit_s: float) -> dict[str, Any]:
    """Return a library's figures, measured in another process; what keeps it from running is said in ``error``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        words = [sys.executable, str(HERE / "measure.py"), "--library", library, "--json", str(path), "--seconds", str(args.seconds)]
        words += ["--tune", str(args.tune)]
        words += ["--drawn", str(args.drawn), "--seed", str(args.seed), *(["--tiny"] if args.tiny else [])]
        words += ["--inference"] if args.inference else []
        try:
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return {"facts": {}, "cases": {}, "error": f"took more than {limit_s:.0f} s"}
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(done.stderr[-3000:], file=sys.stderr)
            return {"facts": {}, "cases": {}, "error": last[:300]}
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def make_table(found: Found, case: str) -> list[str]:
    """Return the contenders of a case as rows of Markdown, with the ratio of their time to AICF's."""
    rows = {name: row for library in found.values() for name, row in library["cases"].get(case, {}).items() if name != "plan"}
    own = next((row["step_us"] for name, row in rows.items() if name.startswith("aicf") and "step_us" in row), None)
    told = "norm of the outputs" if any("norm" in row for row in rows.values()) else "loss after 20 steps"
    lines = [
        f"| contender | step us | quartiles | ratio | host us | first step s | {told} | launches |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if "error" in row:
            lines.append(f"| {name} | {row['error']} | | | | | | |")
            continue
        ratio = f"{row['step_us'] / own:.2f}" if own else ""
        lines.append(
            f"| {name} | {row['step_us']:.1f} | {row['low_us']:.1f} to {row['high_us']:.1f} | {ratio} | {row['host_us']:.1f} | "
            f"{row['first_s']:.2f} | {row['losses'][-1] if 'losses' in row else row['norm']:.6f} | {row.get('launches', '')} |"
        )
    return lines


def list_ratios(found: Found, peers: tuple[str, ...], own: str) -> dict[str, float]:
    """Return, by case, the time of the fastest of ``peers`` over that of AICF's contender, of the cases that all of these ran."""
    ratios = {}
    for case, rows in found["own"]["cases"].items():
        times = [row for library in found.values() for name, row in library["cases"].get(case, {}).items() if name in peers]
        if len(times) == len(peers) and not any("error" in row for row in times):
            ratios[case] = min(row["step_us"] for row in times) / rows[own]["step_us"]
    return ratios


def write_drawn(found: Found) -> list[str]:
    """Return the lines of drawn cases: geometric mean and worst ratio first, then a row a case."""
    lines, columns = [], {"JAX jit, donated": "JAX jit", "torch whole-step graph": "torch graph", "JAX scan over 64": "JAX scan"}
    for title, peers, own in (
        ("faster of JAX jit and torch graph", tuple(columns)[:2], OWN),
        ("JAX scan over 64 steps", tuple(columns)[2:], OWN_SCAN),
    ):
        ratios = list_ratios(found, peers, own)
        if ratios:
            mean, worst = math.exp(sum(map(math.log, ratios.values())) / len(ratios)), min(ratios, key=lambda case: ratios[case])
            lines.append(f"{title} / AICF: geometric mean {mean:.2f} of {len(ratios)}, worst {ratios[worst]:.2f} ({worst})")
    lines += ["", f"| network | AICF us | scan us | launches | {' us | '.join(columns.values())} us |", "|---|---|---|---|---|---|---|"]
    for case, rows in found["own"]["cases"].items():
        others = {name: row for library in found.values() for name, row in library["cases"].get(case, {}).items()}
        times = [f"{others[name]['step_us']:.1f}" if "step_us" in others.get(name, {}) else "-" for name in columns]
        mine = " | ".join(f"{rows[name]['step_us']:.1f}" for name in (OWN, OWN_SCAN))
        lines.append(f"| {case} | {mine} | {rows[OWN]['launches']} | {' | '.join(times)} |")
    return lines


def write_page(found: Found, facts: dict[str, Any], drawn: int) -> str:
    """Return the page."""
    lines = ["# Perceptrons: training steps, or inference", "", "; ".join(f"{name} {value}" for name, value in facts.items()), ""]
    lines += ["Made by `python profiles/mlp/measure.py`. The ratio is a contender's time over AICF's; medians of samples of 10 ms.", ""]
    lines += [f"{LIBRARIES[name]}: {library['error']}" for name, library in found.items() if "error" in library]
    if drawn:
        return "\n".join([*lines, *write_drawn(found)])
    for case in dict.fromkeys(case for library in found.values() for case in library["cases"]):
        lines += [f"## {case}", "", *make_table(found, case), ""]
        plan = found["own"]["cases"].get(case, {}).get("plan")
        if plan:
            proved = f" (replay is stepwise, bit for bit: {plan['replay_is_stepwise']})" if "replay_is_stepwise" in plan else ""
            lines += [f"Step by step{proved}:", "", "```"]
            lines += [*plan["profile"], "```", ""]
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each contender of each case is timed")
    parser.add_argument("--page", type=Path, help="where the page is written; beside it, JSON with everything")
    parser.add_argument("--skip", nargs="*", default=[], choices=[*LIBRARIES], help="libraries that are left out")
    parser.add_argument("--tiny", action="store_true", help="a tiny network instead, to see that everything runs")
    parser.add_argument("--inference", action="store_true", help="outputs of the listed networks for batches of 1 and 128, no training")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="N networks drawn from a population instead of the listed ones")
    parser.add_argument(
        "--tune", type=float, default=0.0, metavar="SECONDS", help="AICF times its kernels in each step's plan, as tune_seconds does"
    )
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--library", choices=[*LIBRARIES], help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.library:
        args.json.write_text(json.dumps(run_here(args.library, args)))
        return
    patience = 3.0 if args.drawn else 1.0
    found: Found = {name: run_apart(name, args, patience * LIMITS_S[name]) for name in LIBRARIES if name not in args.skip}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    facts = {"on": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": commit or "unknown"}
    for library in found.values():
        facts |= library["facts"]
    if args.tune:
        facts |= {"kernels tuned for": f"{args.tune:g} s"}
    if args.drawn:
        facts |= {"drawn": args.drawn, "seed": args.seed}
        for row in found.get("own", {"cases": {}})["cases"].values():
            row.get("plan", {}).pop("plan", None)  # twenty of these are more than all else
    page = write_page(found, facts, args.drawn)
    if args.page is not None:
        args.page.write_text(page + "\n")
        args.page.with_suffix(".json").write_text(json.dumps({"facts": facts, "found": found}, indent=1) + "\n")
    print(page)
    if args.drawn:
        return
    print(
        "\n".join(
            line for case in dict.fromkeys(c for f in found.values() for c in f["cases"]) for line in (case, *make_table(found, case)[2:])
        )
    )


if __name__ == "__main__":
    main()
