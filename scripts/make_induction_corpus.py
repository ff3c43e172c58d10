"""Make the corpus of ``aicf.rewrite.induce``: short runs of every structure on every problem, then their features and patterns in one file.

    nice python scripts/make_induction_corpus.py train runs.jsonl     # some 20 minutes of one core; goes on where it was stopped
    python scripts/make_induction_corpus.py pack runs.jsonl           # writes the corpus that the package reads

Runs are compiled steps of the NumPy backend. Problems are scikit-learn's small data sets and drawn ones of known structure. The same
arguments give the same losses, up to what another BLAS rounds differently.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

# One thread: layers of 32 units are too small for more.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn import datasets

from aicf.rewrite.induce import (
    CORPUS,
    FAMILIES,
    STRUCTURES,
    Corpus,
    Patterns,
    Problem,
    Record,
    draw_problem,
    find_features,
    find_patterns,
    make_structure,
    train,
)

MEASURED = "measured"
PER_FAMILY = 12


def load_measured() -> list[Problem]:
    """Return problems of scikit-learn's data sets, rows in an order that no class or date shows in."""
    iris, wine, cancer, digits, diabetes = (
        getattr(datasets, f"load_{name}")() for name in ("iris", "wine", "breast_cancer", "digits", "diabetes")
    )
    found = [
        Problem.of(iris.data, iris.target, "iris", MEASURED),
        Problem.of(iris.data[:, :3], iris.data[:, 3], "petal width of iris", MEASURED),
        Problem.of(wine.data, wine.target, "wine", MEASURED),
        Problem.of(wine.data[:, 1:], wine.data[:, 0], "alcohol of wine", MEASURED),
        Problem.of(cancer.data, cancer.target, "breast cancer", MEASURED),
        Problem.of(cancer.data[:, :10], cancer.data[:, 20], "worst radius of breast cancer", MEASURED),
        Problem.of(digits.data[:900], digits.target[:900], "digits", MEASURED),
        Problem.of(digits.data[:900], digits.target[:900] % 2, "parity of digits", MEASURED),
        Problem.of(diabetes.data, diabetes.target, "diabetes", MEASURED),
        Problem.of(np.delete(diabetes.data, 2, axis=1), diabetes.data[:, 2], "body mass of diabetes", MEASURED),
    ]
    orders = [np.random.Generator(np.random.Philox(key=i)).permutation(len(p.x)) for i, p in enumerate(found)]
    return [Problem(p.name, p.x[order], p.y[order], p.family) for p, order in zip(found, orders, strict=True)]


def list_problems(per_family: int = PER_FAMILY) -> list[Problem]:
    """Return all problems of the corpus, families in turn."""
    drawn = [draw_problem(family, seed) for seed in range(per_family) for family in FAMILIES]
    rounds = itertools.zip_longest(*(drawn[i :: len(FAMILIES)] for i in range(len(FAMILIES))), load_measured())
    return [p for each in rounds for p in each if p is not None]


def read_done(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the runs of a file, but for a last line that was not finished."""
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.endswith("}"):
            yield json.loads(line)


def train_all(path: Path, seeds: int, steps: int) -> None:
    """Append a line per run that the file does not have yet."""
    done = {(row["problem"], row["structure"], row["seed"]) for row in read_done(path)}
    with path.open("a") as file:
        for seed in range(seeds):
            for problem, structure in itertools.product(list_problems(), STRUCTURES):
                if (problem.name, structure, seed) in done:
                    continue
                found = train(problem, structure, seed, steps=steps)
                row = {"problem": problem.name, "structure": structure, "seed": seed, "steps": steps}
                row |= {"loss": float(f"{found.loss:.5g}"), "curve": [float(f"{v:.4g}") for v in found.curve]}
                file.write(json.dumps(row) + "\n")
                file.flush()


def pack(path: Path, target: Path) -> Corpus:
    """Write the corpus of a file's runs, with features and patterns; a problem is left out until each structure was trained on it."""
    problems = {problem.name: problem for problem in list_problems()}
    runs = list(read_done(path))
    counts = Counter(row["problem"] for row in runs if row["seed"] == 0)
    features = {name: _round(find_features(problems[name].split()[0])) for name, n in counts.items() if n == len(STRUCTURES)}
    patterns: dict[tuple[str, int, int], Patterns] = {}
    corpus = Corpus()
    for row in runs:
        if row["problem"] not in features:
            continue
        problem, structure = problems[row["problem"]], row["structure"]
        sizes = structure, problem.inputs, problem.outputs
        if sizes not in patterns:
            found = find_patterns(make_structure(*sizes), problem.inputs)
            patterns[sizes] = replace(found, values=_round(found.values))
        curve = tuple(row["curve"])
        corpus.add(
            Record(problem.name, problem.family, features[problem.name], structure, patterns[sizes], row["loss"], curve, row["seed"])
        )
    corpus.write(target)
    return corpus


def _round(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.5g}") for name, value in values.items()}


def main() -> None:
    """Train or pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    training = verbs.add_parser("train", help="train what is missing")
    training.add_argument("runs", type=Path, help="a file of lines, which is appended to")
    training.add_argument("--seeds", type=int, default=1, help="runs of each structure on each problem")
    training.add_argument("--steps", type=int, default=300, help="steps of each run")
    packing = verbs.add_parser("pack", help="write the corpus of what was trained")
    packing.add_argument("runs", type=Path, help="the file of lines")
    packing.add_argument("--target", type=Path, default=CORPUS, help="the corpus")
    arguments = parser.parse_args()
    if arguments.verb == "train":
        train_all(arguments.runs, arguments.seeds, arguments.steps)
    else:
        corpus = pack(arguments.runs, arguments.target)
        print(f"{len(corpus)} runs of {len(corpus.structures)} structures, {arguments.target.stat().st_size} bytes: {arguments.target}")


if __name__ == "__main__":
    main()
