"""Models of frozen kernels' times, fitted to measured times: the survey in an op's index.

A model is a sum of terms with weights of at least 0 (``docs/frozen.md``), by least squares of the relative error. A kernel's times count by
how near they are to the fastest on the problem: where a kernel is far behind, how far does not matter. What a model is off on the problems
themselves is kept beside it, and on those of the index's medians, which it is not fitted to: so a call at the sizes of a benched problem,
with another activation, is judged by what was measured there. Fallbacks have no model: they serve what nothing else does, and are slow by
factors where they were never timed.

A finer model, where enough problems were timed, has two terms more, and which tiles are worked on at once is looked for among a few shapes
(:mod:`harness.surveys.shapes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.calls import Problem, find_row
from contract.decision import Asked, DecisionCore, open_core
from contract.decision_tables import make_model
from contract.frozen_set import FrozenOp
from harness.errors import FrozenUseError
from harness.spec.dtypes import find_dtype
from harness.surveys.least_squares import choose_columns, solve_columns
from harness.surveys.shapes import Shape, list_shapes

# A model has at most half as many weights as problems.
MIN_PROBLEMS = 3
# So many problems give a finer model another shape, if that leaves at most such a share of the squared errors, and the terms that a plain
# one lacks.
_MIN_SHAPED, _MOST_LEFT = 16, 0.9
_MIN_FINE, _NUM_PLAIN_TERMS = 24, 5
_NUM_WEIGHT_DIGITS, _NUM_ERROR_DECIMALS = 6, 4
# A kernel that takes so many times as long as the fastest is far behind: its model may be off, but must not have it nearer.
_FAR = 1.5
_NUM_SOLUTIONS = 4
# A problem with times: `sizes`, `attributes`, `times_us` by kernel, and `strides` of tensors whose rows do not follow each other.
TimesRow = Mapping[str, Any]
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """A kernel's shape and the weights of its first terms; ``is_own``: the shape is not the prior's."""

    shape: Shape
    is_own: bool
    weights: tuple[float, ...]


class Measured:
    """Rows of times, and those of the index's medians behind them, as models see them."""

    def __init__(self, frozen: FrozenOp, arch: str, rows: Sequence[TimesRow], device: str) -> None:
        """``device`` is the GPU that the times are of. Raises :class:`FrozenUseError` for an op whose index says nothing about its cost."""
        if frozen.description["cost"] is None:
            raise FrozenUseError(f"{frozen.name} declares no cost (op.py: cost), so its kernels' times cannot be modelled")
        self.frozen, self.rows, self.device = frozen, rows, device
        self.core = open_core(frozen, arch)
        self.kernels = self.core.table.kernels
        measured = [*rows, *_list_medians(frozen, arch, device)]
        self.num_rows = len(rows)
        self.asked = [ask(self.core, row) for row in measured]
        self.times: _Floats = np.array([[row["times_us"].get(name, np.nan) for name in self.kernels] for row in measured])
        self.homes = [self.core.find_bucket_winners(each) for each in self.asked]
        self.rivals = {entry["kernel"] for entry in frozen.entries if entry["role"] != "fallback"}
        interface = frozen.description["interface"]
        self.shapes = [list_shapes(interface, frozen.kernels[name].manifest["prior"]) for name in self.kernels]
        self.groups = self._pool_groups(measured)
        self._terms: dict[int, _Floats] = {}
        self._fits: dict[tuple[int, bytes, int | None, int | None, bool], tuple[Model, _Floats]] = {}

    def _pool_groups(self, rows: Sequence[TimesRow]) -> list[str]:
        """Return the group of each problem by whose errors its kernels' models are set right.

        Classes of dtypes whose elements are as large and whose flops are of one unit are one group: what bfloat16 takes, float16 takes.
        """
        axes, interface = self.core.table.names.axes, self.frozen.description["interface"]
        classes = [axes.list_survey_classes(self.core.find_classes(each)) for each in self.asked]
        kinds: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
        for own, asked, row in zip(classes, self.asked, rows, strict=True):
            dtypes = [find_row(tensor["dtype"], row["attributes"]) for tensor in interface["tensors"]]
            kinds.setdefault(own, set()).add((asked.struct.unit, *(find_dtype(name).itemsize for name in dtypes)))
        surveyed = axes.names[: axes.num_survey]
        at = surveyed.index("dtypes") if "dtypes" in surveyed else len(surveyed)
        alike: dict[tuple[Any, ...], list[tuple[str, ...]]] = {}
        keys = {own: (own[:at], own[at + 1 :], frozenset(kind)) for own, kind in sorted(kinds.items())}
        for own, key in keys.items():
            alike.setdefault(key, []).append(own)
        return [axes.pool(alike[keys[own]]) for own in classes]

    def find_terms(self, kernel: int) -> _Floats:
        """Return the terms of a kernel's time by problem and shape."""
        if kernel not in self._terms:
            models = [make_model(self.core.table.names, shape) for shape in self.shapes[kernel]]
            self._terms[kernel] = np.array(self.core.find_terms_of_all(self.asked, kernel, models))
        return self._terms[kernel]

    def fit_kernel(self, kernel: int, timed: NDArray[np.bool_], finer: bool, heeds_far: bool) -> tuple[Model, _Floats]:
        """Return a kernel's model, fitted to the problems on which it was timed, and the microseconds that it gives for all.

        Fits are kept: those that differ in the kernels alone that have models fit the same model to the same times.
        """
        count = int(timed.sum())
        num_shapes = None if finer and count >= _MIN_SHAPED else 1
        num_terms = None if finer and count >= _MIN_FINE else _NUM_PLAIN_TERMS
        key = (kernel, timed.tobytes(), num_shapes, num_terms, heeds_far)
        if key not in self._fits:
            self._fits[key] = self._fit_kernel(kernel, timed, self.find_terms(kernel)[:, :num_shapes, :num_terms], heeds_far)
        return self._fits[key]

    def _fit_kernel(self, kernel: int, timed: NDArray[np.bool_], terms: _Floats, heeds_far: bool) -> tuple[Model, _Floats]:
        times, fastest = self.times[timed, kernel], np.nanmin(self.times[timed], axis=1)
        best, found = solve_heeding_far(terms[timed], times, fastest) if heeds_far else _solve(terms[timed], times, fastest / times)
        weights = tuple(float(f"{x:.{_NUM_WEIGHT_DIGITS}g}") for x in found)
        return Model(self.shapes[kernel][best], best > 0, weights), terms[:, best] @ np.array(weights)


def fit_survey(
    frozen: FrozenOp,
    arch: str,
    rows: Sequence[TimesRow],
    facts: Mapping[str, str],
    *,
    at_home: bool = False,
    finer: bool = True,
    heeds_far: bool = False,
) -> dict[str, Any]:
    """Return the line of the index that holds the models fitted to rows of times, and what they are off on these and on the medians.

    ``at_home``: the winner of a bucket in which nothing was timed has no model. Where few problems were timed, such a kernel looks slower
    than it is where it is at home; calls there are then decided without the survey. ``finer``: with finer models.
    ``heeds_far``: problems where a kernel is far behind count more, and in full where its model has it among the fastest all the same. One
    such choice costs more than many that are second best: it matters where kernels differ by large factors.
    ``facts`` are the line's ``device`` and ``record``. Raises :class:`FrozenUseError` for an op whose index says nothing about its cost.
    """
    measured = Measured(frozen, arch, rows, facts["device"])
    return fit_measured(measured, np.ones(len(rows), np.bool_), facts, at_home=at_home, finer=finer, heeds_far=heeds_far)


def fit_measured(
    measured: Measured,
    known: NDArray[np.bool_],
    facts: Mapping[str, str],
    *,
    at_home: bool = False,
    finer: bool = True,
    heeds_far: bool = False,
) -> dict[str, Any]:
    """Return what :func:`fit_survey` does, of the rows of times that are ``known`` alone."""
    core, times = measured.core, measured.times
    kept = np.append(known, np.ones(len(times) - measured.num_rows, np.bool_))
    drawn = kept & (np.arange(len(times)) < measured.num_rows)
    winners = {winner.kernel for winner in core.table.lists["winners"]} if at_home else set()
    models: dict[str, Model] = {}
    errors: dict[str, _Floats] = {}
    for i, name in enumerate(measured.kernels):
        timed = drawn & ~np.isnan(times[:, i])
        is_known = i not in winners or any(measured.homes[row] >> i & 1 for row in np.flatnonzero(timed))
        if timed.sum() < MIN_PROBLEMS or name not in measured.rivals or not is_known:
            continue
        models[name], modelled = measured.fit_kernel(i, timed, finer, heeds_far)
        errors[name] = times[:, i] / modelled - 1.0
    weights = {name: list(model.weights) for name, model in models.items()}
    shapes = {name: dict(model.shape) for name, model in models.items() if model.is_own}
    groups = _describe_groups(measured, np.flatnonzero(kept).tolist(), errors)
    row = {"kind": "survey", "arch": core.table.arch, "weights": weights, "groups": groups, **facts}
    return row | {"shapes": shapes} if shapes else row


def _solve(terms: _Floats, times: _Floats, say: _Floats) -> tuple[int, _Floats]:
    """Return which shape a kernel has, and the weights of its terms, where each problem has so much say."""
    matrices = (terms * (say / times)[:, np.newaxis, np.newaxis]).transpose(1, 0, 2)
    columns, left = choose_columns(matrices, say, len(times) // 2)
    best = int(np.argmin(left))
    best = best if left[best] < _MOST_LEFT * left[0] else 0
    return best, solve_columns(matrices[best], say, columns[best])


def solve_heeding_far(terms: _Floats, times: _Floats, fastest: _Floats) -> tuple[int, _Floats]:
    """Return the shape and the weights with which a kernel is among the fastest where it is; ``terms`` are by problem and shape.

    Where they have a kernel that is far behind among the fastest, the problem counts in full, and they are looked for again.
    """
    say, far = np.sqrt(fastest / times), np.minimum(times, _FAR * fastest)
    heed, best, least = say, (0, np.zeros(terms.shape[2])), np.inf
    for _ in range(_NUM_SOLUTIONS):
        shape, weights = _solve(terms, times, heed)
        modelled = terms[:, shape] @ weights
        too_fast = np.maximum(1.0 - modelled / far, 0.0) * (1.0 - say)
        error = float(np.sum((say * (modelled / times - 1.0)) ** 2 + too_fast**2))
        if error < least:
            best, least = (shape, weights), error
        heeded = np.where(modelled < far, 1.0, heed)
        if np.array_equal(heeded, heed):  # the same solution would come again
            break
        heed = heeded
    return best


def ask(core: DecisionCore, row: TimesRow) -> Asked:
    """Return a row's problem as decisions look at it."""
    strides = {name: tuple(each) if isinstance(each, Sequence) else each for name, each in row.get("strides", {}).items()}
    return core.ask(core.interface.make_query(Problem(row["sizes"], row["attributes"], strides)))


def _describe_groups(measured: Measured, kept: Sequence[int], errors: Mapping[str, _Floats]) -> list[dict[str, Any]]:
    """Return the problems of each group in which some kernel with a model was timed."""
    core = measured.core
    groups: dict[tuple[str, bool], list[int]] = {}
    for i in kept:
        groups.setdefault((measured.groups[i], bool(measured.asked[i].struct.is_loose)), []).append(i)
    listed = [
        {"group": name, "loose": loose} | _describe_group(core, [measured.asked[i] for i in at], {k: e[at] for k, e in errors.items()})
        for (name, loose), at in sorted(groups.items())
    ]
    return [group for group in listed if group["kernels"]]


def _describe_group(core: DecisionCore, asked: Sequence[Asked], errors: Mapping[str, _Floats]) -> dict[str, Any]:
    """Return the problems of one group: sizes, then by kernel by how much its model is off there (null: not timed)."""
    kernels = [kernel for kernel, off in errors.items() if not np.isnan(off).all()]
    if not kernels:
        return {"kernels": [], "points": []}
    points = []
    for each, off in zip(asked, np.stack([errors[kernel] for kernel in kernels], axis=1).tolist(), strict=True):
        sizes = each.struct.call.sizes[: len(core.table.names.sizes)]
        points.append([*sizes, *(None if math.isnan(x) else round(x, _NUM_ERROR_DECIMALS) for x in off)])
    return {"kernels": kernels, "points": points}


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
