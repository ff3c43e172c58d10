"""The place among others, and the loss, that a structure is expected to reach on a problem: Gaussian processes of runs.

Their covariance is a product: two runs are alike where their problems are alike by features and their structures by patterns. All that
enters a prediction are runs, each with a weight. Structures are chosen by places, since losses differ more by problem than by structure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aicf.rewrite.induce.patterns import Patterns
from aicf.rewrite.induce.problems import Array
from aicf.rewrite.induce.records import Record, mean_over_seeds

_LEAST_LOSS, _MOST_LOSS = 0.003, 2.0
_PRECISION, _MAX_STEPS = 1e-9, 1000
# How much all problems are alike from the start: what a structure does on average counts.
_SHARED = 0.5
_MOST_DEVIATIONS = 4.0
_MEAN_SCORE = 1.0 / 3.0


@dataclass(frozen=True)
class Settings:
    """How alike runs are: lengths in units of typical distances, and ``noise``, the variance of what is not explained.

    ``slope`` is the part of the covariance that goes on in a line beyond the problems that were seen.
    """

    feature_length: float = 1.0
    pattern_length: float = 1.0
    noise: float = 3.0
    slope: float = 0.1


def to_target(loss: float) -> float:
    """Return what is predicted of a loss: its logarithm to the base 10, of at least 0.003 and at most 2."""
    return math.log10(min(max(loss, _LEAST_LOSS), _MOST_LOSS))


class Space:
    """Named numbers as points: standardised over those that were seen first, in units of their typical distance."""

    def __init__(self, seen: Sequence[Mapping[str, float]]) -> None:
        self.names = sorted({name for each in seen for name in each})
        values = self._list(seen)
        self.mean, deviation = values.mean(0), values.std(0)
        self.scale = np.where(deviation > 1e-9, deviation, 1.0)
        self._seen = list(seen)
        points = self._scale(values)
        distances = _square_distances(points, points)
        others = distances[~np.eye(len(distances), dtype=bool)]
        self.typical = max(float(np.median(others)), 1e-9) if others.size else 1.0

    def _list(self, seen: Sequence[Mapping[str, float]]) -> Array:
        return np.array([[each.get(name, 0.0) for name in self.names] for each in seen])

    def compare(self, seen: Sequence[Mapping[str, float]], length: float, slope: float = 0.0) -> Array:
        """Return covariances [seen, first ones] of functions that vary over ``length``, and of a ``slope``."""
        points, first = self._scale(self._list(seen)), self._scale(self._list(self._seen))
        near = np.exp(-0.5 * _square_distances(points, first) / (self.typical * length**2))
        return np.asarray(near + slope * (points @ first.T) / len(self.names))

    def _scale(self, values: Array) -> Array:
        return np.asarray(((values - self.mean) / self.scale).clip(-_MOST_DEVIATIONS, _MOST_DEVIATIONS))


def _square_distances(a: Array, b: Array) -> Array:
    return np.asarray(((a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2.0 * a @ b.T).clip(0.0))


class LossModel:
    """A Gaussian process of records. Raises ValueError for none."""

    def __init__(self, records: Iterable[Record], settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.cells = mean_over_seeds(records)
        if not self.cells:
            raise ValueError("there are no records to predict by; Corpus.read() returns those that come with the package")
        self.problems = {r.problem: r.features for r in self.cells.values()}
        self.structures = {r.patterns.key: r.patterns.values for r in self.cells.values()}
        rows = {name: i for i, name in enumerate(self.problems)}
        columns = {key: i for i, key in enumerate(self.structures)}
        self._row = np.array([rows[problem] for problem, _ in self.cells])
        self._column = np.array([columns[key] for _, key in self.cells])
        self.targets = np.array([to_target(r.loss) for r in self.cells.values()])
        self.places = find_places(self.cells)
        # Squares: to be among the last costs more than to be the first gains.
        self.scores = self.places**2
        self.mean = float(self.targets.mean())
        self._features, self._patterns = Space(list(self.problems.values())), Space(list(self.structures.values()))
        self._across = self._compare_problems(list(self.problems.values()))
        self._between = self._compare_structures(list(self.structures.values()))
        self._inverse = self._invert()
        self._for_losses, self._for_scores = self._solve(self.targets - self.mean), self._solve(self.scores - _MEAN_SCORE)

    def _compare_problems(self, features: Sequence[Mapping[str, float]]) -> Array:
        return self._features.compare(features, self.settings.feature_length, self.settings.slope) + _SHARED

    def _compare_structures(self, patterns: Sequence[Mapping[str, float]]) -> Array:
        return self._patterns.compare(patterns, self.settings.pattern_length) + 1.0

    def _spread(self, v: Array) -> Array:
        """Return a number per run on the grid of problems and structures, zero where nothing was run."""
        grid = np.zeros((len(self.problems), len(self.structures)))
        grid[self._row, self._column] = v
        return grid

    def _multiply(self, v: Array) -> Array:
        """Return the covariance of all runs times a vector."""
        grid = self._spread(v)
        # A problem's own level, which features do not tell, is the same for all structures.
        made = self._across @ grid @ self._between + grid.sum(1, keepdims=True)
        return np.asarray(made[self._row, self._column] + self.settings.noise * v)

    def _invert(self) -> tuple[Array, Array]:
        """Return the inverse of the whole grid's covariance: the eigenvectors over problems, and a matrix over structures for each."""
        values, vectors = np.linalg.eigh(self._across)
        blocks = values.clip(0.0)[:, None, None] * self._between + 1.0 + self.settings.noise * np.eye(len(self.structures))
        return np.asarray(vectors), np.asarray(np.linalg.inv(blocks))

    def _solve(self, right: Array) -> Array:
        """Return the covariance's inverse times a vector, by conjugate gradients.

        They are preconditioned by the inverse for the whole grid: where all structures were run on all problems, one step is enough.
        """
        vectors, blocks = self._inverse

        def precondition(v: Array) -> Array:
            turned = np.einsum("pst,pt->ps", blocks, vectors.T @ self._spread(v))
            return np.asarray((vectors @ turned)[self._row, self._column])

        made, rest = np.zeros_like(right), right.copy()
        ready = precondition(rest)
        direction, product = ready.copy(), float(rest @ ready)
        for _ in range(_MAX_STEPS):
            if float(rest @ rest) <= _PRECISION**2 * float(right @ right):
                break
            image = self._multiply(direction)
            step = product / float(direction @ image)
            made += step * direction
            rest -= step * image
            ready = precondition(rest)
            before, product = product, float(rest @ ready)
            direction = ready + product / before * direction
        return made

    def predict(self, features: Mapping[str, float], patterns: Sequence[Patterns]) -> Array:
        """Return the expected logarithm (base 10) of the loss of each structure on a problem."""
        return self.mean + self._apply(self._for_losses, features, patterns)

    def predict_places(self, features: Mapping[str, float], patterns: Sequence[Patterns]) -> Array:
        """Return the expected place of each structure among those of the corpus: about 0 for the best one, 1 for the worst."""
        scores = _MEAN_SCORE + self._apply(self._for_scores, features, patterns)
        return np.asarray(np.sign(scores) * np.sqrt(np.abs(scores)))

    def _apply(self, solution: Array, features: Mapping[str, float], patterns: Sequence[Patterns]) -> Array:
        across = self._compare_problems([features])[0]
        return np.asarray((across @ self._spread(solution)) @ self._compare_structures([p.values for p in patterns]).T)

    def weigh(self, features: Mapping[str, float], patterns: Patterns) -> Array:
        """Return how much each run counts in both predictions, in the order of ``cells``.

        An expected logarithm is the mean plus the weighted sum of those found less the mean; the square of an expected place is a third
        plus the weighted sum of the squares found less a third.
        """
        across, between = self._compare_problems([features])[0], self._compare_structures([patterns.values])[0]
        return self._solve(across[self._row] * between[self._column])


def find_places(cells: Mapping[tuple[str, str], Record]) -> Array:
    """Return each run's place among those on its problem, by its loss: 0 for the best one, 1 for the worst one, 0.5 for one alone.

    Equal losses share places.
    """
    groups: dict[str, list[float]] = {}
    for (problem, _), record in cells.items():
        groups.setdefault(problem, []).append(record.loss)
    made = []
    for (problem, _), record in cells.items():
        losses = np.array(groups[problem])
        below, same = int((losses < record.loss).sum()), int((losses == record.loss).sum())
        made.append((below + 0.5 * (same - 1)) / (len(losses) - 1) if len(losses) > 1 else 0.5)
    return np.array(made)
