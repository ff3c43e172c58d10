"""Fitting the time model's parameters to measured times, and evaluating it on points left out of the fit.

Each parameter is positive and starts at a prior: one for the factor of a throughput, a published latency for a latency. The fit is a
damped Gauss-Newton (Marquardt, 1963) on the logarithm of (modelled / measured), with a small pull of each parameter's logarithm to its
prior, so that what the points do not tell stays where the sources put it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.model.time_model import DRAM_TERMS, L2_TERMS, LATENCIES, PARAMETERS, SM_TERMS, THROUGHPUTS

Floats = NDArray[np.float64]

# Clocks, of Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture" (arXiv 2402.13499), tables of latencies; four
# clocks are a dependent fp32 instruction's. The overhead is that of an empty kernel between two events.
PRIOR: Mapping[str, float] = {
    **dict.fromkeys(THROUGHPUTS, 1.0),
    "dram_runs": 0.05,
    "latency_chain": 1.0,
    "latency_near": 33.0,
    "latency_far": 500.0,
    "latency_barrier": 30.0,
    "overhead_us": 2.5,
    "norm_sm": 3.0,
    "norm": 3.0,
}
_PULL = 0.01
_STEPS = 120
_LARGEST_STEP = 0.5


@dataclass(frozen=True)
class Point:
    """One measured time with its terms. ``group`` are points that are held out together: one variant's."""

    op: str
    variant: str
    problem: str
    terms: Mapping[str, float]
    measured_us: float

    @property
    def group(self) -> str:
        """The variant, over all problems."""
        return f"{self.op}/{self.variant}"


def make_matrix(points: Sequence[Point]) -> dict[str, Floats]:
    """Return each term over all points."""
    return {name: np.array([p.terms[name] for p in points]) for name in (*THROUGHPUTS, *LATENCIES)}


def combine_all(matrix: Mapping[str, Floats], logs: Floats) -> Floats:
    """Return the modelled times of all points, as :func:`harness.model.time_model.combine` has it, at logarithms of the parameters."""
    q = dict(zip(PARAMETERS, np.exp(logs), strict=True))
    scaled = {name: q[name] * matrix[name] for name in THROUGHPUTS}
    on_sm = _join([scaled[name] for name in SM_TERMS], 1.0 + q["norm_sm"])
    in_l2 = sum((scaled[name] for name in L2_TERMS), np.zeros(1))
    latency = sum((q[f"latency_{name}"] * matrix[name] for name in LATENCIES), np.zeros(1))
    in_dram = sum((scaled[name] for name in DRAM_TERMS), np.zeros(1))
    return np.asarray(q["overhead_us"] + _join([on_sm, in_l2, in_dram, scaled["blocks"], latency], 1.0 + q["norm"]))


def _join(rows: Sequence[Floats], norm: float) -> Floats:
    largest = np.maximum(np.max(rows, axis=0), 1e-12)  # powers of large numbers overflow: take it out first
    return np.asarray(largest * sum(((row / largest) ** norm for row in rows), np.zeros(1)) ** (1.0 / norm))


def fit_parameters(points: Sequence[Point], prior: Mapping[str, float] = PRIOR) -> dict[str, float]:
    """Return the parameters that fit the points best."""
    matrix, measured = make_matrix(points), np.array([p.measured_us for p in points])
    start = np.log([prior[name] for name in PARAMETERS])
    weight = math.sqrt(len(points))

    def find_residuals(logs: Floats) -> Floats:
        misfit = np.log(combine_all(matrix, logs) / measured) / weight
        return np.concatenate([misfit, math.sqrt(_PULL / len(start)) * (logs - start)])

    logs, damping = start.copy(), 1e-2
    residuals = find_residuals(logs)
    for _ in range(_STEPS):
        steps = 1e-4 * np.eye(len(logs))
        jacobian = np.stack([(find_residuals(logs + step) - residuals) / 1e-4 for step in steps], axis=1)
        normal = jacobian.T @ jacobian + damping * np.eye(len(logs))
        move = np.clip(np.linalg.solve(normal, -jacobian.T @ residuals), -_LARGEST_STEP, _LARGEST_STEP)
        found = find_residuals(logs + move)
        if found @ found < residuals @ residuals:
            gain = 1.0 - (found @ found) / (residuals @ residuals)
            logs, residuals, damping = logs + move, found, max(damping / 3.0, 1e-9)
            if gain < 1e-7:
                break
        else:
            damping *= 4.0
            if damping > 1e6:
                break
    return dict(zip(PARAMETERS, np.exp(logs).tolist(), strict=True))


def model_points(points: Sequence[Point], parameters: Mapping[str, float]) -> Floats:
    """Return the modelled times of points."""
    return combine_all(make_matrix(points), np.log([parameters[name] for name in PARAMETERS]))


def split_by_variant(points: Sequence[Point], num_folds: int = 5) -> list[list[int]]:
    """Return the indices of each fold's held-out points: variants by a hash of their names, all problems of one together."""
    folds: list[list[int]] = [[] for _ in range(num_folds)]
    for index, point in enumerate(points):
        folds[hashlib.sha256(f"fold {point.group}".encode()).digest()[0] % num_folds].append(index)
    return [fold for fold in folds if fold]


def split_by_op(points: Sequence[Point]) -> list[list[int]]:
    """Return the indices of each op's points."""
    return [[i for i, p in enumerate(points) if p.op == op] for op in dict.fromkeys(p.op for p in points)]


def hold_out(points: Sequence[Point], folds: Sequence[Sequence[int]]) -> Floats:
    """Return for every point the time modelled by a fit to the other folds."""
    modelled = np.full(len(points), np.nan)
    for fold in folds:
        held = set(fold)
        parameters = fit_parameters([p for i, p in enumerate(points) if i not in held])
        modelled[list(fold)] = model_points([points[i] for i in fold], parameters)
    return modelled


def rank(values: Floats) -> Floats:
    """Return ranks from 0, equal values sharing their mean rank."""
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values))
    ranks[order] = np.arange(len(values))
    for value in np.unique(values):
        same = values == value
        ranks[same] = ranks[same].mean()
    return ranks


def correlate_ranks(left: Floats, right: Floats) -> float:
    """Return Spearman's rank correlation (Spearman, 1904): Pearson's, of the ranks. NaN where either side does not vary."""
    a, b = rank(np.asarray(left, float)), rank(np.asarray(right, float))
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size else math.nan


def find_best_share(measured: Floats, modelled: Floats, tie: float = 0.0) -> float:
    """Return how far down the model's order the best measured point stands, as a share: 0.1 is at the end of the first tenth.

    ``tie`` is the relative difference below which measured times are not told apart: the first of all that tie with the best counts.
    """
    best = modelled[measured <= measured.min() * (1 + tie)].min()
    return (int(np.count_nonzero(modelled < best)) + 1) / len(measured)


def find_first_tenth(measured: Floats, modelled: Floats, share: float = 0.1) -> float:
    """Return the fastest measured time among the model's first tenth over the fastest of all: what measuring no more than these loses."""
    first = np.argsort(modelled, kind="stable")[: max(1, math.ceil(share * len(modelled)))]
    return float(measured[first].min() / measured.min())
