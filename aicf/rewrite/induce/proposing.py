"""``propose``: structures for a problem, each with what is expected of it, the runs that speak for it and against it, and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from aicf.nn import Module
from aicf.rewrite.induce.costs import Cost, find_cost
from aicf.rewrite.induce.evaluation import BEST_SETTINGS, find_residuals
from aicf.rewrite.induce.features import find_features
from aicf.rewrite.induce.model import LossModel, Settings
from aicf.rewrite.induce.patterns import Patterns, find_patterns
from aicf.rewrite.induce.problems import Problem
from aicf.rewrite.induce.records import Corpus
from aicf.rewrite.induce.structures import make_structure

# The part of losses that lies between an expectation's bounds, as far as whole families that were left out tell.
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True)
class Evidence:
    """A run that counts in a prediction: its loss over that of the best constant, and its place on its problem, from 0 (best) to 1 (worst).

    ``weight`` is how much the square of its place counts in that of the expected place.
    """

    run: str
    problem: str
    loss: float
    place: float
    weight: float

    def __str__(self) -> str:
        return f"{self.run}: loss {self.loss:.3g}, place {self.place:.2f}, weight {self.weight:.3f}"


@dataclass(frozen=True)
class StructureProposal:
    """A structure, its expected place among the corpus' (0: the best one), and the loss that is expected of a short run.

    The loss is over that of the best constant; ``low`` and ``high`` are bounds of four cases in five. ``evidence`` are runs that make the
    place better, ``counter_evidence`` those that make it worse, the strongest first.
    """

    structure: str
    patterns: Patterns
    place: float
    expected_loss: float
    low: float
    high: float
    evidence: tuple[Evidence, ...]
    counter_evidence: tuple[Evidence, ...]
    cost: Cost | None
    inputs: int
    outputs: int

    def make(self) -> Module:
        """Return a new module of the structure, for the problem's inputs and outputs."""
        return make_structure(self.structure, self.inputs, self.outputs)

    def __str__(self) -> str:
        expected = f"place {self.place:.2f}, loss {self.expected_loss:.3g} ({self.low:.3g} to {self.high:.3g})"
        head = f"{self.structure or 'linear'}: {expected}"
        lines = [head if self.cost is None else f"{head}, {self.cost} per step"]
        lines += [f"  for      {each}" for each in self.evidence]
        return "\n".join(lines + [f"  against  {each}" for each in self.counter_evidence])


@lru_cache(maxsize=1)
def open_corpus() -> Corpus:
    """Return the corpus that comes with the package, read once."""
    return Corpus.read()


def propose(
    problem: Problem,
    corpus: Corpus | None = None,
    *,
    structures: Sequence[str] | None = None,
    limit: int = 3,
    runs: int = 3,
    with_cost: bool = True,
    batch: int = 64,
    settings: Settings = BEST_SETTINGS,
) -> list[StructureProposal]:
    """Return the ``limit`` structures of which the best places are expected on a problem, the best one first.

    Candidates are ``structures``, text for :func:`~aicf.rewrite.induce.make_structure`, by default those of the corpus. Each comes with
    at most ``runs`` runs for and against it. Costs are of training steps of ``batch`` rows on the device that is open; ``with_cost=False``
    opens none. Raises ValueError for an empty corpus.
    """
    corpus = open_corpus() if corpus is None else corpus
    texts = list(corpus.structures.values()) if structures is None else list(structures)
    if not texts:
        raise ValueError("there are no structures to choose from: the corpus has none that can be made; pass some")
    features, model = find_features(problem), LossModel(corpus, settings)
    patterns = [find_patterns(make_structure(text, problem.inputs, problem.outputs), problem.inputs) for text in texts]
    expected, places = model.predict(features, patterns), model.predict_places(features, patterns)
    low, high = np.quantile(find_residuals(corpus, settings), [_LOW, _HIGH])
    made = []
    for i in np.argsort(places, kind="stable")[:limit]:
        favour, against = find_evidence(model, features, patterns[i], runs)
        cost = find_cost(make_structure(texts[i], problem.inputs, problem.outputs), problem, batch) if with_cost else None
        losses = [float(10.0 ** (expected[i] + shift)) for shift in (0.0, low, high)]
        sizes, place = (problem.inputs, problem.outputs), float(places[i])
        made.append(StructureProposal(texts[i], patterns[i], place, losses[0], losses[1], losses[2], favour, against, cost, *sizes))
    return made


def find_evidence(
    model: LossModel, features: dict[str, float], patterns: Patterns, runs: int
) -> tuple[tuple[Evidence, ...], tuple[Evidence, ...]]:
    """Return the runs that speak for a structure on a problem and those that speak against it, at most ``runs`` of each.

    A run counts by its weight in the prediction times how much its place, squared, differs from the mean of all.
    """
    weights, cells = model.weigh(features, patterns), list(model.cells.values())
    shares = np.where(weights > 0.0, weights * (model.scores - model.scores.mean()), 0.0)
    order = np.argsort(shares, kind="stable")
    chosen = [[i for i in order[:runs] if shares[i] < 0.0], [i for i in order[::-1][:runs] if shares[i] > 0.0]]
    favour, against = (
        tuple(Evidence(cells[i].name, cells[i].problem, cells[i].loss, float(model.places[i]), float(weights[i])) for i in indices)
        for indices in chosen
    )
    return favour, against
