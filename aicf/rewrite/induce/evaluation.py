"""How good proposals are: whole families of problems are left out, and what is proposed for them compared with the best that was run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from aicf.rewrite.induce.model import LossModel, Settings, Space, to_target
from aicf.rewrite.induce.patterns import Patterns
from aicf.rewrite.induce.problems import Array
from aicf.rewrite.induce.records import Corpus, Record, mean_over_seeds

# What choose_settings finds for the corpus that comes with the package.
BEST_SETTINGS = Settings()
CANDIDATES = tuple(Settings(*values) for values in itertools.product((0.7, 1.0), (1.0,), (1.0, 3.0), (0.1, 0.5)))
PROPOSED = "proposed"
BASELINES = ("random", "nearest problem's best", "best on average", "largest")


class Table:
    """Mean losses over seeds of structures, by their patterns' key, on problems; only problems on which all of them were run."""

    def __init__(self, corpus: Corpus) -> None:
        self.cells = mean_over_seeds(corpus)
        names = sorted({problem for problem, _ in self.cells})
        counts = {name: sum(problem == name for problem, _ in self.cells) for name in names}
        self.keys = sorted({key for _, key in self.cells})
        self.problems = [name for name in names if counts[name] == len(self.keys)]
        self.losses = np.array([[self.cells[name, key].loss for key in self.keys] for name in self.problems])
        self.regrets = self.losses - self.losses.min(axis=1, keepdims=True)
        self._first = [self.cells[name, self.keys[0]] for name in self.problems]

    @cached_property
    def families(self) -> list[str]:
        """The family of each problem."""
        return [record.family for record in self._first]

    @cached_property
    def features(self) -> list[Mapping[str, float]]:
        """The features of each problem."""
        return [record.features for record in self._first]

    @cached_property
    def patterns(self) -> list[Patterns]:
        """The patterns of each structure."""
        return [next(r.patterns for (_, found), r in self.cells.items() if found == key) for key in self.keys]

    def count_parameters(self, row: int) -> list[int]:
        """Return each structure's parameters on a problem."""
        return [self.cells[self.problems[row], key].patterns.parameters for key in self.keys]


@dataclass(frozen=True)
class Judged:
    """A problem that was held out with its family: the structure proposed for it, and regrets by method.

    A regret is the loss of the chosen structure less that of the best one, both over the best constant's. ``expected`` and ``found`` are
    base-10 logarithms of the proposed structure's loss.
    """

    problem: str
    family: str
    structure: str
    best: str
    regrets: Mapping[str, float]
    expected: float
    found: float


def judge(corpus: Corpus, candidates: Sequence[Settings] = CANDIDATES) -> list[Judged]:
    """Return what comes of proposals for each problem of the corpus, made of the runs on problems of other families alone.

    The settings are chosen among ``candidates`` by leaving families out of those that are left; one candidate is taken as it is. Raises
    ValueError for a corpus of fewer than three families.
    """
    if len(corpus.families) < 3:
        raise ValueError(f"the corpus has {len(corpus.families)} families; at least 3 are needed to leave some out")
    table, made = Table(corpus), []
    for family in corpus.families:
        rest = corpus.select(set(corpus.families) - {family})
        settings = choose_settings(rest, candidates)
        model = LossModel(rest, settings)
        for row in (i for i, found in enumerate(table.families) if found == family):
            expected = model.predict(table.features[row], table.patterns)
            choice = int(np.argmin(model.predict_places(table.features[row], table.patterns)))
            regrets = {PROPOSED: float(table.regrets[row, choice]), **find_baselines(table, row)}
            name, best = table.problems[row], table.keys[int(np.argmin(table.losses[row]))]
            texts = [table.cells[name, key].structure for key in (table.keys[choice], best)]
            found = to_target(table.losses[row, choice])
            made.append(Judged(name, family, texts[0], texts[1], regrets, float(expected[choice]), found))
    return made


def find_baselines(table: Table, row: int) -> dict[str, float]:
    """Return the regrets on a problem of what one does without a model of losses, with the problems of other families at hand.

    ``random`` is the mean over all structures; the nearest problem is so by features; ``best on average`` has the least mean regret.
    """
    others = [i for i, family in enumerate(table.families) if family != table.families[row]]
    nearest = others[int(np.argmax(Space([table.features[i] for i in others]).compare([table.features[row]], 1.0)[0]))]
    chosen = {
        "nearest problem's best": int(np.argmin(table.losses[nearest])),
        "best on average": int(np.argmin(table.regrets[others].mean(axis=0))),
        "largest": int(np.argmax(table.count_parameters(row))),
    }
    return {"random": float(table.regrets[row].mean())} | {name: float(table.regrets[row, i]) for name, i in chosen.items()}


def choose_settings(corpus: Corpus, candidates: Sequence[Settings] = CANDIDATES) -> Settings:
    """Return the settings of the least mean regret, where each family is predicted from the others."""
    if len(candidates) == 1:
        return candidates[0]
    table = Table(corpus)

    def find_regret(settings: Settings) -> float:
        regrets = []
        for family in corpus.families:
            model = LossModel(corpus.select(set(corpus.families) - {family}), settings)
            rows = [i for i, found in enumerate(table.families) if found == family]
            for row in rows:
                choice = int(np.argmin(model.predict_places(table.features[row], table.patterns)))
                regrets.append(table.regrets[row, choice])
        return float(np.mean(regrets))

    return min(candidates, key=find_regret)


def find_residuals(corpus: Corpus, settings: Settings) -> Array:
    """Return found less expected logarithms (base 10) of all mean losses, where each family is predicted from the others.

    A corpus of one family is predicted from itself.
    """
    families = corpus.families
    made: list[float] = []
    for family in families:
        model = LossModel(corpus.select(set(families) - {family}) if len(families) > 1 else corpus, settings)
        groups: dict[str, list[Record]] = {}
        for record in mean_over_seeds(corpus.select([family])).values():
            groups.setdefault(record.problem, []).append(record)
        for records in groups.values():
            expected = model.predict(records[0].features, [r.patterns for r in records])
            made += [to_target(r.loss) - float(e) for r, e in zip(records, expected, strict=True)]
    return np.array(made)


def compare_pairs(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the one-sided p-value of Wilcoxon's signed-rank test that ``a`` lies below ``b``, pair by pair.

    Pairs without a difference are left out, ranks of ties are shared, and the normal approximation is taken; 1 where no pair differs.
    """
    differences = np.asarray(b) - np.asarray(a)
    differences = differences[differences != 0.0]
    count = len(differences)
    if not count:
        return 1.0
    _, inverse, sizes = np.unique(np.abs(differences), return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    ranks = (ends - (sizes - 1) / 2.0)[inverse]
    above = float(ranks[differences > 0.0].sum())
    variance = count * (count + 1) * (2 * count + 1) / 24.0 - float((sizes**3 - sizes).sum()) / 48.0
    return 0.5 * math.erfc((above - count * (count + 1) / 4.0) / math.sqrt(2.0 * variance))


def tabulate(judged: Sequence[Judged]) -> str:
    """Return a table of mean and median regrets by method, with how often proposals were better and worse, and the p-value."""
    lines = ["| chosen by | mean regret | median | proposal better / same / worse | p |", "|---|---|---|---|---|"]
    mine = np.array([each.regrets[PROPOSED] for each in judged])
    for name in (PROPOSED, *BASELINES):
        theirs = np.array([each.regrets[name] for each in judged])
        line = f"| {name} | {theirs.mean():.4f} | {np.median(theirs):.4f} |"
        if name == PROPOSED:
            lines.append(f"{line} | |")
            continue
        p = compare_pairs(mine.tolist(), theirs.tolist())
        lines.append(f"{line} {(mine < theirs).sum()} / {(mine == theirs).sum()} / {(mine > theirs).sum()} | {p:.1e} |")
    return "\n".join(lines)
