"""Units that do little are removed until that costs too much: ``python examples/prune_and_rollback.py``.

The network begins with more hidden units than scikit-learn's digits need. In each round a snapshot is taken, the quarter of the units that
contribute least goes, and training continues; where the test accuracy falls by more than a point below the best one, the run goes back to
the snapshot, bit for bit.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.data import DataLoader
from aicf.rewrite import Run

BATCH, ALLOWED = 64, 0.01


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of a batch."""
    return F.cross_entropy(model(x), y)


def start(units: int) -> Run:
    """Return a run with that many hidden units."""
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, units), nn.ReLU(), nn.Linear(units, 10))
    batch = (Tensor(np.zeros((BATCH, 64), np.float32)), Tensor(np.zeros(BATCH, np.int64)))
    return Run(aicf.compile_step(model, loss, optim.AdamW(model.parameters(), lr=3e-3), batch))


def rank_units(run: Run, x: np.ndarray) -> np.ndarray:
    """Return the hidden units, those first that contribute least: by their mean activation times the weights that read them."""
    hidden = run.model[1](run.model[0](Tensor(x))).numpy()
    return np.argsort(hidden.mean(0) * np.abs(run.model[2].weight.numpy()).sum(0))


def measure_accuracy(run: Run, x: np.ndarray, y: np.ndarray) -> float:
    """Return the share of images whose class is found."""
    return float((run.model(Tensor(x)).numpy().argmax(1) == y).mean())


def prune(units: int, steps: int, rounds: int) -> list[tuple[int, float, bool]]:
    """Return for each round the units that were left, the accuracy, and whether it was rolled back."""
    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int64)
    x, x_test, y, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
    loader, run = DataLoader((x, y), batch=BATCH, seed=1), start(units)
    run.fit(loader, 2 * steps)
    best = measure_accuracy(run, x_test, y_test)
    found = [(units, best, False)]
    for _ in range(rounds):
        snapshot, before = run.snapshot(), run.step.state_dict()
        run.prune("0", rank_units(run, x)[: max(units // 4, 1)])
        run.fit(loader, steps)
        accuracy = measure_accuracy(run, x_test, y_test)
        is_worse = accuracy < best - ALLOWED
        found.append((run.model[0].out_features, accuracy, is_worse))
        if is_worse:
            run.rollback(snapshot)
            same = all(np.array_equal(before[key], value) for key, value in run.step.state_dict().items())
            print(f"{found[-1][0]:4} units: accuracy {accuracy:.4f}, too low; back to {units} units{', bit for bit' if same else ''}")
            break
        units, best = run.model[0].out_features, max(best, accuracy)
        print(f"{units:4} units: accuracy {accuracy:.4f}")
        if units <= 1:
            break
    return found


def main() -> None:
    """Train and print what comes out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=128, help="hidden units at first")
    parser.add_argument("--steps", type=int, default=200, help="steps of training in each round")
    arguments = parser.parse_args()
    prune(arguments.units, arguments.steps, rounds=20)


if __name__ == "__main__":
    main()
