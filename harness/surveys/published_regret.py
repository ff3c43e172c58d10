"""Regret on problems that were measured before: what published times say about the choices, without a GPU.

The tables ``*-h200.csv`` of an op hold cold times of variants that were timed beside each other. Of those variants that are frozen, the
fastest on a problem is compared with the one that is chosen: from the index as it is (``known``); from the index without the medians of
that very problem, and without what the survey says of its sizes (``held_out``); and from that without the winner of its bucket, where no
other problem of the bucket was measured and so the winner was decided on this one alone (``bucket_too``). Both judge a sparser index than
the real one, the last by far.

``estimates`` holds out everything that was measured: of the kernels timed on the problem the one with the least estimate, and what was
estimated for it and for the fastest. This judges the prior, which decides where nothing near was measured; ``least_work`` is the same
without the traffic of tiles that read inputs again.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract.decision import DecisionCore, open_core
from contract.frozen_set import FrozenOp
from harness.spec import Op, Problem
from harness.surveys.fitting import TimesRow, ask
from harness.surveys.regret import choose, find_regret

HELD_OUT = ("known", "held_out", "bucket_too")
ESTIMATED = ("estimates", "least_work")


def read_published_times(profiles_dir: Path, frozen: FrozenOp) -> dict[str, dict[str, float]]:
    """Return microseconds by problem and frozen kernel, of each pair from the first table that has it."""
    kernels = {str(k.manifest["variant"]): name for name, k in frozen.kernels.items()}
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for path in sorted((profiles_dir / frozen.name).glob("*-h200.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["contender"] in kernels and row.get("status", "passed") == "passed":
                    times[row["problem"]].setdefault(kernels[row["contender"]], float(row["cold_us"]))
    return times


def judge_published(op: Op, frozen: FrozenOp, arch: str, times: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return each problem on which at least two frozen kernels were timed, with the choices and their regrets.

    A regret is None where the chosen kernel was not among those timed.
    """
    problems = {p.name: p for p in op.problems}
    known = open_core(frozen, arch)
    cost = {name: table for name, table in (frozen.description["cost"] or {}).items() if name not in ("reads", "l2_bytes_per_s")}
    blind = open_core(replace(frozen, description={**frozen.description, "cost": cost or None}), arch)
    rows = []
    for name, by_kernel in sorted(times.items()):
        if name not in problems or len(by_kernel) < 2:
            continue
        attributes = op.cut_attributes(problems[name], frozen.description["interface"])
        asked = {"sizes": problems[name].sizes, "attributes": attributes, "times_us": by_kernel}
        others = forget_problem(known, frozen, problems[name])
        cores = (known, open_core(others, arch), open_core(drop_lonely_winner(known, others, asked), arch))
        row: dict[str, Any] = {"problem": name, "times_us": dict(by_kernel), "best": min(by_kernel, key=lambda k: by_kernel[k])}
        for key, core in zip(HELD_OUT, cores, strict=True):
            chosen, how = choose(core, asked)
            row[key] = {"chosen": chosen, "how": str(how), "regret": find_regret(by_kernel, chosen)}
        for key, core in zip(ESTIMATED, (known, blind), strict=True):
            row[key] = _estimate(core, asked, row["best"])
        rows.append(row)
    return rows


def forget_problem(core: DecisionCore, frozen: FrozenOp, problem: Problem) -> FrozenOp:
    """Return the set without the medians of a problem, and without its survey's points at the problem's sizes, whatever the attributes."""
    sizes = core.table.names.list_sizes(problem.sizes)

    def drop(group: TimesRow) -> TimesRow:
        return {**group, "points": [p for p in group["points"] if p[: len(sizes)] != sizes]}

    surveys = {arch: {**row, "groups": [drop(g) for g in row["groups"]]} for arch, row in frozen.surveys.items()}
    return replace(frozen, medians=tuple(m for m in frozen.medians if m["problem"] != problem.name), surveys=surveys)


def drop_lonely_winner(core: DecisionCore, others: FrozenOp, row: TimesRow) -> FrozenOp:
    """Return the set without the winner of a problem's bucket, unless another problem of the bucket was measured."""

    def find_bucket(at: TimesRow) -> dict[str, str | None]:
        return core.find_classes(ask(core, at))

    bucket = find_bucket(row)
    if any(find_bucket(m) == bucket for m in others.medians):
        return others
    kept = [e for e in others.entries if e["role"] != "winner" or {axis: e["bucket"][axis] for axis in bucket} != bucket]
    return replace(others, entries=tuple(kept))


def _estimate(core: DecisionCore, row: TimesRow, best: str) -> dict[str, Any]:
    """Return which of the timed kernels the prior takes for the fastest, and the times that it estimates for that one and the fastest."""
    asked, times = ask(core, row), row["times_us"]
    estimates = {name: core.estimate_us(asked, i) for i, name in enumerate(core.table.kernels) if name in times}
    chosen = min(estimates, key=lambda name: (estimates[name], name))
    figures = {"chosen_us": estimates[chosen], "best_us": estimates[best]}
    return {"chosen": chosen, "regret": find_regret(times, chosen)} | {n: float(f"{us:.6g}") for n, us in figures.items()}
