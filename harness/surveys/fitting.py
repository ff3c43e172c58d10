"""Models of frozen kernels' times, fitted to measured times: the survey in an op's index.

A model is a sum of five terms with weights of at least 0 (``docs/frozen.md``), by least squares of the relative error. A kernel's times
count by how near they are to the fastest on the problem: where a kernel is far behind, how far does not matter. What a model is off on the
problems themselves is kept beside it, and on those of the index's medians, which it is not fitted to: so a call at the sizes of a benched
problem, with another activation, is judged by what was measured there. Fallbacks have no model: they serve what nothing else does, and are
slow by factors where they were never timed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.calls import Problem
from contract.decision import Asked, DecisionCore, open_core
from contract.frozen_set import FrozenOp
from harness.errors import FrozenUseError

# A model has at most half as many weights as problems, and at least two.
MIN_PROBLEMS = 4
_NUM_WEIGHT_DIGITS, _NUM_ERROR_DECIMALS = 6, 4
# A problem with times: `sizes`, `attributes`, and `times_us` by kernel.
TimesRow = Mapping[str, Any]


def fit_survey(frozen: FrozenOp, arch: str, rows: Sequence[TimesRow], facts: Mapping[str, str], *, at_home: bool = False) -> dict[str, Any]:
    """Return the line of the index that holds the models fitted to rows of times, and what they are off on these and on the medians.

    ``at_home``: the winner of a bucket in which nothing was timed has no model. Where few problems were timed, such a kernel looks slower
    than it is where it is at home; calls there are then decided without the survey.
    ``facts`` are the line's ``device`` and ``record``. Raises :class:`FrozenUseError` for an op whose index says nothing about its cost.
    """
    if frozen.description["cost"] is None:
        raise FrozenUseError(f"{frozen.name} declares no cost (op.py: cost), so its kernels' times cannot be modelled")
    core = open_core(frozen, arch)
    measured = [*rows, *_list_medians(frozen, arch, facts["device"])]
    asked = [ask(core, row) for row in measured]
    kernels = core.table.kernels
    terms = np.array([[core.find_terms(each, kernel) for kernel in range(len(kernels))] for each in asked])
    times = np.array([[row["times_us"].get(name, np.nan) for name in kernels] for row in measured])
    drawn = np.arange(len(measured)) < len(rows)
    rivals = {entry["kernel"] for entry in frozen.entries if entry["role"] != "fallback"}
    winners = {winner.kernel for winner in core.table.lists["winners"]} if at_home else set()
    home = [core.find_bucket_winners(each) for each in asked] if at_home else []
    weights: dict[str, list[float]] = {}
    errors: dict[str, NDArray[np.float64]] = {}
    for i, name in enumerate(kernels):
        timed = drawn & ~np.isnan(times[:, i])
        is_known = i not in winners or any(home[row] >> i & 1 for row in np.flatnonzero(timed))
        if timed.sum() < MIN_PROBLEMS or name not in rivals or not is_known:
            continue
        say = np.nanmin(times[timed], axis=1) / times[timed, i]
        found = solve_nonnegative(terms[timed, i] / times[timed, i, None] * say[:, None], say, int(timed.sum()) // 2)
        weights[name] = [float(f"{x:.{_NUM_WEIGHT_DIGITS}g}") for x in found]
        errors[name] = times[:, i] / (terms[:, i] @ np.array(weights[name])) - 1.0
    groups: dict[str, list[int]] = {}
    for i, each in enumerate(asked):
        groups.setdefault(core.table.names.axes.name_survey_group(core.find_classes(each)), []).append(i)
    listed = [
        _describe_group(core, name, [asked[i] for i in at], {k: e[at] for k, e in errors.items()}) for name, at in sorted(groups.items())
    ]
    return {"kind": "survey", "arch": arch, "weights": weights, "groups": [group for group in listed if group["kernels"]], **facts}


def ask(core: DecisionCore, row: TimesRow) -> Asked:
    """Return a row's problem as decisions look at it."""
    return core.ask(core.interface.make_query(Problem(row["sizes"], row["attributes"])))


def _describe_group(core: DecisionCore, name: str, asked: Sequence[Asked], errors: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Return the problems of one group: sizes, then by kernel by how much its model is off there (null: not timed)."""
    kernels = [kernel for kernel, off in errors.items() if not np.isnan(off).all()]
    points = []
    for i, each in enumerate(asked):
        sizes = each.struct.call.sizes[: len(core.table.names.sizes)]
        off = (float(errors[kernel][i]) for kernel in kernels)
        points.append([*sizes, *(None if np.isnan(x) else round(x, _NUM_ERROR_DECIMALS) for x in off)])
    return {"group": name, "kernels": kernels, "points": points}


def _list_medians(frozen: FrozenOp, arch: str, device: str) -> list[TimesRow]:
    """Return the problems of the index's medians as rows of times: those of the GPU alone whose times the models are fitted to.

    Of another's, a kernel that has medians would look faster, or slower, than one that has none.
    """
    found: dict[str, dict[str, Any]] = {}
    for m in frozen.medians:
        if m["arch"] == arch and m["device"] == device:
            row = found.setdefault(m["problem"], {"sizes": m["sizes"], "attributes": m["attributes"], "times_us": {}})
            row["times_us"][m["kernel"]] = m["median_us"]
    return list(found.values())


def solve_nonnegative(matrix: NDArray[np.float64], target: NDArray[np.float64], most: int | None = None) -> NDArray[np.float64]:
    """Return the x >= 0 with the least |matrix x - target|^2, of which at most ``most`` are not 0.

    That is the best of the plain solutions on all subsets of so few columns.
    """
    best, least = np.zeros(matrix.shape[1]), float(target @ target)
    for count in range(1, min(matrix.shape[1], matrix.shape[1] if most is None else most) + 1):
        for columns in itertools.combinations(range(matrix.shape[1]), count):
            part = np.linalg.lstsq(matrix[:, columns], target, rcond=None)[0]
            error = float(np.sum((matrix[:, columns] @ part - target) ** 2))
            if (part >= 0).all() and error < least:
                best, least = np.zeros(matrix.shape[1]), error
                best[list(columns)] = part
    return best
