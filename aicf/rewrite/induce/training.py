"""Short runs that corpora are made of: a structure trained on a problem by a compiled step of the NumPy backend."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import aicf
from aicf import functional as F
from aicf import optim
from aicf.data import DataLoader
from aicf.nn import Module
from aicf.rewrite.induce.problems import Array, Problem
from aicf.rewrite.induce.structures import make_structure
from aicf.tensor import Tensor

WINDOWS = 6


@dataclass(frozen=True)
class Outcome:
    """What came of a run: losses over those of the best constant. ``loss`` is of rows held out, ``curve`` means over parts of the run."""

    loss: float
    curve: tuple[float, ...]


def scale_problem(problem: Problem) -> tuple[Problem, Problem]:
    """Return the training and the held-out rows, with the mean and deviation of the former taken off inputs and floating targets."""
    train, held = problem.split()

    def scale(part: Problem) -> Problem:
        x = _standardise(part.x, train.x)
        y = part.y if problem.is_classes else _standardise(part.y, train.y)
        return Problem.of(x, y, part.name, part.family)

    return scale(train), scale(held)


def _standardise(values: np.ndarray, by: np.ndarray) -> np.ndarray:
    deviation = by.std(0)
    return np.asarray((values - by.mean(0)) / np.where(deviation > 1e-7, deviation, 1.0))


def train(problem: Problem, structure: str, seed: int, *, steps: int = 300, batch: int = 64, rate: float = 4e-3) -> Outcome:
    """Train a structure by Adam on a problem's training rows, and evaluate it on those held out; the same arguments give the same bits."""
    rows, held = scale_problem(problem)
    aicf.manual_seed(seed)
    model = make_structure(structure, problem.inputs, problem.outputs)
    loader = DataLoader((rows.x, rows.y), batch=min(batch, len(rows.x)), seed=seed)
    first = tuple(Tensor(array[: loader.batch]) for array in loader.arrays)
    loss = F.cross_entropy if problem.is_classes else F.mse_loss
    step = aicf.compile_step(model, lambda m, x, y: loss(m(x), y), optim.Adam(model.parameters(), lr=rate), first, cache_plans=0)
    losses: list[float] = []
    while len(losses) < steps:
        losses += [float(step(*arrays).item()) for arrays, _ in zip(loader, range(steps - len(losses)), strict=False)]
    scale = find_scale(held)
    curve = np.array_split(np.array(losses), WINDOWS)
    return Outcome(find_loss(model, held) / scale, tuple(float(part.mean()) / scale for part in curve))


def find_loss(model: Module, problem: Problem) -> float:
    """Return the mean squared error or cross-entropy on all rows."""
    found = np.asarray(model(Tensor(problem.x)).numpy(), np.float64)
    if not problem.is_classes:
        return float(((found - problem.y) ** 2).mean())
    shifted = found - found.max(1, keepdims=True)
    return float((np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(found)), problem.y]).mean())


def find_scale(problem: Problem) -> float:
    """Return the loss of the best constant: the targets' variance, or the entropy of the classes."""
    if not problem.is_classes:
        return max(float(problem.y.var(0).mean()), 1e-9)
    parts: Array = np.bincount(problem.y) / len(problem.y)
    return max(-math.fsum(float(p) * math.log(p) for p in parts if p > 0.0), 1e-9)
