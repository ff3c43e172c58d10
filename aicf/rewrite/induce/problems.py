"""Problems: rows of inputs and targets; families of drawn ones whose structure is known, for corpora."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
# Every third row is held out of training, and of the features.
HELD = 3


@dataclass(frozen=True, eq=False)
class Problem:
    """Inputs x [rows, inputs] and targets y: floating [rows, outputs] for a regression, integers [rows] for classes counted from 0.

    ``family`` is what is left out as a whole when proposals are judged. Raises ValueError for shapes that do not fit, and for values
    that are not finite.
    """

    name: str
    x: NDArray[np.float32]
    y: NDArray[np.float32] | NDArray[np.int64]
    family: str = ""

    @classmethod
    def of(cls, x: ArrayLike, y: ArrayLike, name: str = "problem", family: str = "") -> Problem:
        """Return a problem of arrays of any numbers; targets [rows] of floating numbers are one output."""
        inputs, targets = np.asarray(x, np.float32), np.asarray(y)
        if targets.dtype.kind in "iub":
            return cls(name, inputs, targets.astype(np.int64), family)
        return cls(name, inputs, targets.astype(np.float32).reshape(len(targets), -1), family)

    def __post_init__(self) -> None:
        if self.x.ndim != 2 or self.y.ndim != (1 if self.is_classes else 2) or len(self.x) != len(self.y):
            raise ValueError(
                f"{self.name}: expected x [rows, inputs] and y [rows, outputs] or classes [rows], got {self.x.shape}, {self.y.shape}"
            )
        if len(self.x) < 12:
            raise ValueError(f"{self.name}: has {len(self.x)} rows; features need at least 12")
        if not (np.isfinite(self.x).all() and np.isfinite(self.y).all()) or (self.is_classes and self.y.min() < 0):
            raise ValueError(f"{self.name}: has values that are not finite, or a class below 0; leave these rows out")

    @property
    def is_classes(self) -> bool:
        """Whether targets are classes."""
        return self.y.dtype.kind == "i"

    @property
    def inputs(self) -> int:
        """How many inputs a row has."""
        return int(self.x.shape[1])

    @property
    def outputs(self) -> int:
        """How many outputs a network for it has: targets, or classes."""
        return int(self.y.max()) + 1 if self.is_classes else int(self.y.shape[1])

    def split(self) -> tuple[Problem, Problem]:
        """Return the rows to train on, and every third row, which is held out."""
        held = np.arange(len(self.x)) % HELD == HELD - 1
        parts = [Problem(self.name, self.x[rows], self.y[rows], self.family) for rows in (~held, held)]
        return parts[0], parts[1]


# ---- drawn problems

_SHAPES: dict[str, Callable[[Array, Array], Array]] = {
    "line": lambda t, p: (0.5 + p[0]) * t,
    "square": lambda t, p: (t - p[0] + 0.5) ** 2,
    "sine": lambda t, p: np.sin((1.5 + 4.0 * p[0]) * t + 6.0 * p[1]),
    "kink": lambda t, p: np.abs(t - p[0] + 0.5),
    "step": lambda t, p: 2.0 * (t > p[0] - 0.5) - 1.0,
    "bump": lambda t, p: 2.0 * np.exp(-2.0 * (t - 2.0 * p[0] + 1.0) ** 2),
}


def _bend(rng: np.random.Generator, t: Array, among: tuple[str, ...] = tuple(_SHAPES)) -> Array:
    """Return a drawn function of one variable."""
    return np.asarray(_SHAPES[among[rng.integers(len(among))]](t, rng.uniform(size=2)))


def _draw_directions(rng: np.random.Generator, inputs: int, count: int) -> Array:
    found = rng.normal(size=(inputs, count))
    return np.asarray(found / np.linalg.norm(found, axis=0))


def _additive(rng: np.random.Generator, x: Array) -> Array:
    """Sum of functions of one input each."""
    kinds = tuple(rng.choice(list(_SHAPES), size=2, replace=False))
    return np.asarray(sum(_bend(rng, x[:, i], kinds) for i in range(x.shape[1])))


def _multiplicative(rng: np.random.Generator, x: Array) -> Array:
    """Sum of products of functions of two or three inputs."""
    made = np.zeros(len(x))
    for _ in range(rng.integers(1, 4)):
        chosen = rng.choice(x.shape[1], size=min(rng.integers(2, 4), x.shape[1]), replace=False)
        made += np.prod([x[:, i] if rng.uniform() < 0.6 else _bend(rng, x[:, i]) for i in chosen], axis=0)
    return made


def _periodic(rng: np.random.Generator, x: Array) -> Array:
    """Waves along directions or single inputs, with a slope."""
    count = int(rng.integers(1, 4))
    along = np.eye(x.shape[1])[:, :count] if rng.uniform() < 0.5 else _draw_directions(rng, x.shape[1], count)
    waves = np.sin(x @ along * rng.uniform(2.0, 6.0, along.shape[1]) + rng.uniform(0.0, 6.0, along.shape[1])).sum(1)
    return np.asarray(waves + rng.uniform(0.0, 0.5) * x[:, 0])


def _low_rank(rng: np.random.Generator, x: Array) -> Array:
    """Bends along one or two directions among many inputs."""
    z = x @ _draw_directions(rng, x.shape[1], int(rng.integers(1, 3)))
    return np.asarray(sum(_bend(rng, column) for column in z.T) + (z.prod(1) if rng.uniform() < 0.5 else 0.0))


def _sparse(rng: np.random.Generator, x: Array) -> Array:
    """Bends along two or three of many inputs."""
    chosen = rng.choice(x.shape[1], size=int(rng.integers(2, 4)), replace=False)
    parts = [_bend(rng, x[:, i]) for i in chosen]
    return np.asarray(sum(parts) + (np.prod(parts, axis=0) if rng.uniform() < 0.5 else 0.0))


def _piecewise(rng: np.random.Generator, x: Array) -> Array:
    """Constants or linear functions in boxes, made by splits at single inputs."""
    region = np.zeros(len(x), np.int64)
    for depth in range(rng.integers(2, 4)):
        region += (x[:, rng.integers(x.shape[1])] > rng.uniform(-0.6, 0.6)) * 2**depth
    slopes = rng.normal(size=(8, x.shape[1])) * (rng.uniform() < 0.5)
    return np.asarray(1.5 * rng.normal(size=8)[region] + (x * slopes[region]).sum(1))


# Family: its function, and the least and most inputs.
FAMILIES: dict[str, tuple[Callable[[np.random.Generator, Array], Array], int, int]] = {
    "additive": (_additive, 3, 8),
    "multiplicative": (_multiplicative, 3, 8),
    "periodic": (_periodic, 2, 5),
    "low rank": (_low_rank, 8, 20),
    "sparse": (_sparse, 10, 20),
    "piecewise": (_piecewise, 2, 6),
}


def draw_problem(family: str, seed: int, rows: int = 768) -> Problem:
    """Return a drawn problem of a family of :data:`FAMILIES`; one in four has two classes, above and below the median."""
    function, least, most = FAMILIES[family]
    rng = np.random.Generator(np.random.Philox(key=[seed, sorted(FAMILIES).index(family)]))
    x = rng.normal(size=(rows, int(rng.integers(least, most + 1)))) if rng.uniform() < 0.5 else None
    x = rng.uniform(-1.7, 1.7, size=(rows, int(rng.integers(least, most + 1)))) if x is None else x
    y = function(rng, x)
    y = (y - y.mean()) / max(float(y.std()), 1e-9) + rng.choice([0.0, 0.05, 0.2]) * rng.normal(size=rows)
    if seed % 4 == 3:
        return Problem.of(x, (y > np.median(y)).astype(np.int64), f"{family} {seed}", family)
    return Problem.of(x, y, f"{family} {seed}", family)
