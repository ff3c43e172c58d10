"""A survey of an op's frozen kernels: their times on drawn problems become models of the kernels' times, in the frozen set's index.

A model is a sum of five terms with weights of at least 0 (``aicf/registry/surveys.py``), by least squares of the relative error. A kernel's
times count by how near they are to the fastest on the problem: where a kernel is far behind, how far does not matter. What a model is off
on the problems themselves is kept beside it, and on those of the index's medians, which it is not fitted to: so a call at the sizes of a
benched problem, with another activation, is judged by what was measured there.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.registry import HwCaps, Problem, Registry
from aicf.registry.surveys import NUM_GROUP_AXES, NUM_TERMS
from aicf.registry.tables import Tables
from contract.frozen_set import FrozenOp
from harness.freezing.store.changes import change_index

# A model of five weights wants some more problems than that.
MIN_PROBLEMS = 8
NUM_FOLDS = 10
Row = Mapping[str, Any]


def adopt(frozen_dir: Path, op: str, files: Sequence[Path], arch: str) -> str:
    """Fit models to the problems of files of times, put them into the index, and return what held-out problems say of them."""
    documents = [json.loads(path.read_text()) for path in files]
    devices = {d["facts"]["device"] for d in documents}
    if len(devices) != 1 or any(d["op"] != op for d in documents):
        raise SystemExit(f"{', '.join(map(str, files))}: must be times of {op} on one GPU; they are on {', '.join(sorted(devices))}")
    rows = [row for d in documents for row in d["rows"]]
    frozen = Registry(frozen_dir).read(op).frozen
    digest = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    facts = {"device": devices.pop(), "record": f"{', '.join(path.name for path in files)} ({digest[:16]})"}
    found = cross_validate(frozen, arch, rows)
    survey = fit(frozen, arch, rows, facts)
    change_index(frozen_dir, op, "survey", f"{len(rows)} problems, {len(survey['weights'])} kernels: {facts['record']}", put=[survey])
    return (
        f"{op}: {len(rows)} problems, {len(survey['weights'])} kernels; regret where a tenth is held out in turn: "
        f"mean {100 * found.mean():.2f} %, 95th percentile {100 * np.percentile(found, 95):.1f} %, greatest {100 * found.max():.0f} %"
    )


def fit(frozen: FrozenOp, arch: str, rows: Sequence[Row], facts: Mapping[str, str]) -> dict[str, Any]:
    """Return the line of the index that holds the models fitted to rows of times, and what they are off on these and on the medians."""
    # A survey that knows all kernels and predicts nothing has the terms.
    blank = {"weights": dict.fromkeys(frozen.kernels, [0.0] * NUM_TERMS), "groups": []}
    tables = Tables(replace(frozen, surveys={arch: blank}), arch)
    if tables.survey is None:
        raise SystemExit(f"{frozen.name} says nothing of its cost (op.py: cost): its kernels' times cannot be modelled")
    survey = tables.survey
    names = [tables.kernels[i].name for i in survey.places]
    measured = [*rows, *list_medians(frozen, arch)]
    queries = [tables.interface.make_query(Problem(row["sizes"], row["attributes"])) for row in measured]
    terms = np.array([survey.find_terms(q) for q in queries])
    times = np.array([[row["times_us"].get(name, np.nan) for name in names] for row in measured])
    drawn = np.arange(len(measured)) < len(rows)
    weights: dict[str, list[float]] = {}
    off: dict[str, NDArray[np.float64]] = {}
    for i, name in enumerate(names):
        timed = drawn & ~np.isnan(times[:, i])
        if timed.sum() < MIN_PROBLEMS:
            continue
        say = np.nanmin(times[timed], axis=1) / times[timed, i]
        found = solve(terms[timed, i] / times[timed, i, None] * say[:, None], say)
        weights[name] = [float(f"{x:.6g}") for x in found]
        off[name] = times[:, i] / (terms[:, i] @ np.array(weights[name])) - 1.0
    groups: dict[str, list[int]] = {}
    for i, query in enumerate(queries):
        groups.setdefault("/".join(map(str, tables.find_classes(query)[:NUM_GROUP_AXES])), []).append(i)
    listed = []
    for group, members in sorted(groups.items()):
        kernels = [name for name in weights if not np.isnan(off[name][members]).all()]
        points = [[*queries[i].sizes, *(None if np.isnan(off[k][i]) else round(float(off[k][i]), 4) for k in kernels)] for i in members]
        if kernels:
            listed.append({"group": group, "kernels": kernels, "points": points})
    return {"kind": "survey", "arch": arch, "weights": weights, "groups": listed, **facts}


def list_medians(frozen: FrozenOp, arch: str) -> list[Row]:
    """Return the problems of the index's medians, each with its times by kernel, as rows of times have them."""
    found: dict[str, dict[str, Any]] = {}
    for m in frozen.medians:
        if m["arch"] == arch:
            row = found.setdefault(m["problem"], {"sizes": m["sizes"], "attributes": m["attributes"], "times_us": {}})
            row["times_us"][m["kernel"]] = m["median_us"]
    return list(found.values())


def solve(matrix: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the x >= 0 with the least |matrix x - target|^2: the best of the plain solutions on all subsets of so few columns."""
    best, least = np.zeros(matrix.shape[1]), float(target @ target)
    for count in range(1, matrix.shape[1] + 1):
        for columns in itertools.combinations(range(matrix.shape[1]), count):
            part = np.linalg.lstsq(matrix[:, columns], target, rcond=None)[0]
            error = float(np.sum((matrix[:, columns] @ part - target) ** 2))
            if (part >= 0).all() and error < least:
                best, least = np.zeros(matrix.shape[1]), error
                best[list(columns)] = part
    return best


def cross_validate(frozen: FrozenOp, arch: str, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return by row the regret of the choice by a survey that was fitted without the row's tenth."""
    caps = HwCaps.parse(arch)
    fold = np.random.default_rng(0).permutation(len(rows)) % NUM_FOLDS
    regrets = np.zeros(len(rows))
    for number in range(NUM_FOLDS):
        known = [row for row, f in zip(rows, fold, strict=True) if f != number]
        survey = fit(frozen, arch, known, {"device": "", "record": ""})
        registry = Registry.holding(replace(frozen, surveys={arch: survey}))
        for i in np.flatnonzero(fold == number):
            times = rows[i]["times_us"]
            chosen = registry.select(frozen.name, Problem(rows[i]["sizes"], rows[i]["attributes"]), caps).kernel
            regrets[i] = times[chosen] / min(times.values()) - 1.0
    return regrets
