"""Features of a problem, of its data alone: sizes, and how well small closed-form models predict rows that they have not seen.

All are computed from standardised inputs and targets, so they stay as they are (up to rounding) where inputs or floating targets are
shifted or multiplied by positive factors, and where rows come in another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aicf.rewrite.induce.problems import Array, Problem

# More rows than this are thinned out, and interactions are looked for among so many inputs.
_MAX_ROWS, _MAX_PAIRED = 512, 8
_RANDOM, _WAVES, _BINS = 96, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), 8
_PENALTIES = (0.01, 0.3, 3.0, 30.0, 300.0)


def find_features(problem: Problem) -> dict[str, float]:
    """Return the features by name, all finite.

    ``linear``, ``waves`` and so on are parts of the variance (1: all of it, below 0: worse than the mean) that a ridge regression predicts
    of each row from all others, over the inputs, waves of single inputs, and so on; ``..._gain`` are differences of them.
    """
    x, y = _prepare(problem)
    rows, inputs = x.shape
    relevance = np.array([_predict(_cut_in_bins(x[:, [i]]), y) for i in range(inputs)]).clip(0.0)
    strongest = np.argsort(-relevance, kind="stable")[:_MAX_PAIRED]
    found = {name: _predict(make(x, strongest), y) for name, make in _LANDMARKS.items()}
    found |= {f"{name}_gain": found[a] - max(found[b], 0.0) for name, a, b in _GAINS}
    gradients = _find_gradients(x, y)
    spectrum = np.linalg.eigvalsh(gradients @ gradients.T).clip(0.0)
    return found | {
        "rows": math.log10(len(problem.x)),
        "inputs": math.log2(inputs),
        "outputs": math.log2(problem.outputs),
        "classes": float(problem.is_classes),
        "rank": _count_effective(spectrum),
        "relevant": _count_effective((gradients**2).sum(1)),
        "relevant_alone": _count_effective(relevance),
        "input_rank": _count_effective(np.linalg.eigvalsh(x.T @ x).clip(0.0)) / inputs,
        "tails": float(np.mean((x**4).mean(0))) / 3.0 - 1.0,
        "discrete": float(np.mean([len(np.unique(column.round(6))) for column in x.T])) / rows,
        "noise": min(_find_difference(x, y, 1), 2.0),
        "noise_near": min(_find_difference(x[:, strongest[:3]], y, 1), 2.0),
        "neighbours": 1.0 - min(_find_difference(x, y, 5), 2.0),
    }


def _prepare(problem: Problem) -> tuple[Array, Array]:
    """Return standardised inputs and targets (a column per class) of at most 512 rows, in an order that follows from their values."""
    x, y = problem.x.astype(np.float64), problem.y.astype(np.float64)
    if problem.is_classes:
        y = np.eye(problem.outputs)[problem.y]
    x, y = (a - a.mean(0) for a in (x, y))
    x, y = (a / np.where(a.std(0) > 1e-6 * np.abs(a).max(initial=1e-12), a.std(0), np.inf) for a in (x, y))
    # Rounding makes the order that of equal values before scaling.
    order = np.lexsort((*x.round(4).T, *y.round(4).T))
    kept = order[np.linspace(0, len(order) - 1, min(len(order), _MAX_ROWS)).round().astype(np.int64)]
    return x[kept], y[kept]


def _predict(basis: Array, y: Array) -> float:
    """Return the part of the targets' variance that a ridge regression predicts of rows left out one by one, for the best penalty."""
    basis = basis - basis.mean(0)
    u, s, _ = np.linalg.svd(basis, full_matrices=False)
    kept = s > 1e-8 * max(float(s.max(initial=0.0)), 1e-12)
    u, s = u[:, kept], s[kept]
    y = y - y.mean(0)
    along, total = u.T @ y, max(float((y**2).sum()), 1e-12)
    best = -0.5
    for penalty in _PENALTIES:
        shrunk = s**2 / (s**2 + penalty)
        rest = y - u @ (shrunk[:, None] * along)
        leverage = (u**2) @ shrunk + 1.0 / len(y)
        best = max(best, 1.0 - float(((rest / np.maximum(1.0 - leverage, 1e-3)[:, None]) ** 2).sum()) / total)
    return best


def _cut_in_bins(x: Array) -> Array:
    edges = np.quantile(x, np.arange(1, _BINS) / _BINS, axis=0)
    return np.concatenate([x > edge for edge in edges], axis=1).astype(np.float64)


def _draw(inputs: int, key: int) -> tuple[Array, Array]:
    rng = np.random.Generator(np.random.Philox(key=[inputs, key]))
    directions = rng.normal(size=(inputs, _RANDOM))
    return directions / np.linalg.norm(directions, axis=0), rng.uniform(-1.5, 1.5, _RANDOM)


def _project(x: Array, scale: float, key: int) -> Array:
    directions, offsets = _draw(x.shape[1], key)
    return np.asarray(scale * (x @ directions) + scale * offsets)


def _multiply_pairs(x: Array, strongest: np.ndarray) -> Array:
    first, second = np.triu_indices(len(strongest))
    return x[:, strongest[first]] * x[:, strongest[second]]


def _multiply_triples(x: Array, strongest: np.ndarray) -> Array:
    among = strongest[:5]
    return np.stack([x[:, i] * x[:, j] * x[:, k] for i in among for j in among for k in among if i < j < k] or [x[:, 0] ** 3], axis=1)


_LANDMARKS: dict[str, Callable[[Array, np.ndarray], Array]] = {
    "linear": lambda x, s: x,
    "squares": lambda x, s: np.concatenate([x, x**2, x**3], axis=1),
    "bins": lambda x, s: _cut_in_bins(x[:, s]),
    "kinks": lambda x, s: np.concatenate([x, *(np.maximum(x - e, 0.0) for e in (-1.0, -0.5, 0.0, 0.5, 1.0))], axis=1),
    "waves": lambda x, s: np.concatenate([x, *(f(w * x[:, s]) for w in _WAVES for f in (np.sin, np.cos))], axis=1),
    "pairs": lambda x, s: np.concatenate([x, _multiply_pairs(x, s)], axis=1),
    "triples": lambda x, s: np.concatenate([x, _multiply_pairs(x, s), _multiply_triples(x, s)], axis=1),
    "boxes": lambda x, s: (
        _multiply_pairs(_cut_in_bins(x[:, s[:3]]), np.arange(3 * (_BINS - 1))[:21]) if x.shape[1] >= 3 else _cut_in_bins(x)
    ),
    "random_kinks": lambda x, s: np.concatenate([x, np.maximum(_project(x, 1.0, 0), 0.0)], axis=1),
    "random_kinks_few": lambda x, s: np.concatenate([x, np.maximum(_project(x[:, s[:3]], 1.0, 0), 0.0)], axis=1),
    "random_waves": lambda x, s: np.concatenate([x, np.sin(_project(x, 1.5, 1)), np.cos(_project(x, 1.5, 1))], axis=1),
    "random_waves_fast": lambda x, s: np.concatenate([x, np.sin(_project(x, 4.0, 1)), np.cos(_project(x, 4.0, 1))], axis=1),
    "random_waves_few": lambda x, s: np.concatenate(
        [x, np.sin(_project(x[:, s[:3]], 3.0, 1)), np.cos(_project(x[:, s[:3]], 3.0, 1))], axis=1
    ),
    "random_steps": lambda x, s: np.concatenate([x, _project(x, 1.0, 2) > 0.0], axis=1),
}
# Name, and the two landmarks that it is the difference of.
_GAINS = (
    ("pair", "pairs", "linear"),
    ("triple", "triples", "pairs"),
    ("wave", "waves", "kinks"),
    ("step", "bins", "kinks"),
    ("bend", "kinks", "linear"),
    ("mix", "random_kinks", "kinks"),
    ("mix_few", "random_kinks_few", "kinks"),
    ("wave_mix", "random_waves_fast", "random_kinks"),
    ("step_mix", "random_steps", "random_kinks"),
)


def _find_gradients(x: Array, y: Array) -> Array:
    """Return gradients [inputs, rows * outputs] of a smooth fit: waves along random directions."""
    directions, offsets = _draw(x.shape[1], 3)
    z = x @ directions + offsets
    basis = np.concatenate([x, np.sin(z)], axis=1)
    weights = np.linalg.solve(basis.T @ basis + 3.0 * np.eye(basis.shape[1]), basis.T @ y)
    slopes = np.einsum("nr,ir,ro->ino", np.cos(z), directions, weights[x.shape[1] :]) + weights[: x.shape[1], None, :]
    return np.asarray(slopes.reshape(x.shape[1], -1))


def _count_effective(weights: Array) -> float:
    """Return how many weights there are to speak of: 1 where one is all, their number where all are alike."""
    total = float(weights.sum())
    return 1.0 if total <= 0.0 else total**2 / float((weights**2).sum())


def _find_difference(x: Array, y: Array, neighbours: int) -> float:
    """Return the part of the variance that is left between rows and the mean of their nearest neighbours."""
    square = (x**2).sum(1)
    distance = square[:, None] + square[None, :] - 2.0 * (x @ x.T)
    np.fill_diagonal(distance, np.inf)
    near = np.argsort(distance, axis=1, kind="stable")[:, :neighbours]
    rest = y - y[near].mean(1)
    return float((rest**2).sum() / max(float((y**2).sum()), 1e-12)) * neighbours / (neighbours + 1.0)
