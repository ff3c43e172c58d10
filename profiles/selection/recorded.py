"""Regret on problems that were measured before: what times already published say of the choices, with no GPU.

The tables ``*-h200.csv`` of an op hold cold times of variants that were timed beside each other. Of those variants that are frozen, the
fastest on a problem is compared with the one that the registry chooses: from the index as it is; from the index without the medians of
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

from aicf.registry import HwCaps, Problem, Registry
from aicf.registry.tables import Tables
from contract.calls import Interface
from contract.frozen_set import FrozenOp, Row
from contract.layout import AXES
from harness.discover import find_op
from harness.spec import Problem as PlannedProblem

HOPPER = HwCaps(9, 0)
ROOT = Path(__file__).resolve().parents[2]


def read_times(op: str, registry: Registry) -> dict[str, dict[str, float]]:
    """Return microseconds by problem and frozen kernel, from the first table that has a pair and from the index."""
    frozen = registry.read(op).frozen
    kernels = {str(k.manifest["variant"]): name for name, k in frozen.kernels.items()}
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for path in sorted((ROOT / "profiles" / op).glob("*-h200.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["contender"] in kernels and row.get("status", "passed") == "passed":
                    times[row["problem"]].setdefault(kernels[row["contender"]], float(row["cold_us"]))
    return times


def measure_recorded(op: str) -> list[dict[str, Any]]:
    """Return each recorded problem on which at least two frozen kernels were timed, with the choices and their regrets.

    A regret is None where the chosen kernel was not among those timed.
    """
    registry, spec = Registry(), find_op(op).op
    problems = {p.name: p for p in spec.problems}
    known = registry.read(op).frozen
    cost = {name: table for name, table in known.description["cost"].items() if name not in ("reads", "l2_bytes_per_s")}
    blind = Registry.holding(replace(known, description=known.description | {"cost": cost}))
    rows = []
    for name, times in sorted(read_times(op, registry).items()):
        if name not in problems or len(times) < 2:
            continue
        problem = Problem(problems[name].sizes, spec.attribute_values(problems[name]))
        others = forget(known, problems[name])
        asked = {"known": known, "held_out": others, "bucket_too": drop_lonely_winner(registry, others, problem)}
        row: dict[str, Any] = {"problem": name, "times_us": times, "best": min(times, key=lambda k: times[k])}
        for key, frozen in asked.items():
            row[key] = judge(Registry.holding(frozen), op, problem, times)
        row["estimates"] = estimate(registry.find_tables(op, HOPPER), problem, times, row["best"])
        row["least_work"] = estimate(blind.find_tables(op, HOPPER), problem, times, row["best"])
        rows.append(row)
    return rows


def judge(registry: Registry, op: str, problem: Problem, times: Mapping[str, float]) -> dict[str, Any]:
    """Return the registry's choice for a problem and its regret by times of kernels, None where it is not among those timed."""
    handle = registry.select(op, problem, HOPPER)
    time_us = times.get(handle.kernel)
    regret = None if time_us is None else time_us / min(times.values()) - 1.0
    return {"chosen": handle.kernel, "how": str(handle.how), "regret": regret}


def forget(frozen: FrozenOp, problem: PlannedProblem) -> FrozenOp:
    """Return the set without the medians of a problem, and without its survey's points at the problem's sizes, whatever the attributes."""
    sizes = [problem.sizes[name] for name in Interface(frozen.name, frozen.interface).size_names]

    def drop(group: Row) -> Row:
        return {**group, "points": [p for p in group["points"] if p[: len(sizes)] != sizes]}

    surveys = {arch: {**row, "groups": [drop(g) for g in row["groups"]]} for arch, row in frozen.surveys.items()}
    return replace(frozen, medians=tuple(m for m in frozen.medians if m["problem"] != problem.name), surveys=surveys)


def estimate(tables: Tables, problem: Problem, times: dict[str, float], best: str) -> dict[str, Any]:
    """Return which of the timed kernels the prior takes for the fastest, and the times that it estimates for that one and the fastest."""
    query = tables.interface.make_query(problem)
    estimates = {k.name: tables.estimate_us(query, i) for i, k in enumerate(tables.kernels) if k.name in times}
    chosen = min(estimates, key=lambda name: (estimates[name], name))
    figures = {"chosen_us": estimates[chosen], "best_us": estimates[best]}
    return {"chosen": chosen, "regret": times[chosen] / times[best] - 1.0} | {n: float(f"{us:.6g}") for n, us in figures.items()}


def drop_lonely_winner(registry: Registry, others: FrozenOp, problem: Problem) -> FrozenOp:
    """Return the set without the winner of a problem's bucket, unless another problem of the bucket was measured."""
    tables = registry.find_tables(others.name, HOPPER)

    def find_bucket(at: Problem) -> tuple[str | None, ...]:
        return tables.find_classes(tables.interface.make_query(at))

    bucket = find_bucket(problem)
    if any(find_bucket(Problem(m["sizes"], m["attributes"])) == bucket for m in others.medians):
        return others
    kept = [e for e in others.entries if e["role"] != "winner" or tuple(e["bucket"][axis] for axis in AXES) != bucket]
    return replace(others, entries=tuple(kept))
