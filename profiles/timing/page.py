"""The page of what the checks of the timing found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
from places import describe_places

FILES = ("contests", "repeat", "places", "agree", "nvbench")


def make_report(folder: Path) -> str:
    """Return the page of what was found, from ``h200-*.json`` in a folder."""
    contests = json.loads((folder / "h200-contests.json").read_text())
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
    runs = json.loads((folder / "h200-repeat.json").read_text())
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
    groups = json.loads((folder / "h200-places.json").read_text())
    lines += [
        "",
        "## Where a short launch's data, code and stream lie",
        "",
        "transpose rows512_columns512 in fresh processes: how far the medians of places lie apart within a process (the median of the",
        "processes), and how far the medians of one place, and those of all places, lie apart between processes.",
    ]
    for group in groups:
        lines += ["", f"{group['about']}; {len(group['runs'])} processes", "", *describe_places(group["runs"])]
    agree = json.loads((folder / "h200-agree.json").read_text())
    others = _read_nvbench(folder / "h200-nvbench.json")
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
