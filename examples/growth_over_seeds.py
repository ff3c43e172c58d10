"""What growing a network does, over seeds: ``python examples/growth_over_seeds.py``. It prints a table of every seed, and medians.

A network of 8 hidden units is made 16 wide after a third of the steps, and 32 wide after two thirds. Compared are: optimizer state
carried over; the same with all units trained at the full rate from then on; with all moments set to zero besides; the final size from
the start; and the small network throughout.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.data import DataLoader
from aicf.rewrite import Run

BATCH, UNITS = 64, (8, 16, 32)
MOMENTS = ("exp_avg", "exp_avg_sq")


def start(units: int, seed: int) -> Run:
    """Return a run with that many hidden units."""
    aicf.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 10))
    batch = (Tensor(np.zeros((BATCH, 64), np.float32)), Tensor(np.zeros(BATCH, np.int64)))
    step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optim.AdamW(model.parameters(), lr=2e-3), batch)
    return Run(step)


def widen(run: Run, units: int, seed: int, kind: str) -> None:
    """Make both hidden layers wider and their copies different, and keep, release or reset what was carried."""
    for owner in ("0", "2"):
        run.widen(owner, units, seed=seed)
        run.separate(owner, 1.0, seed=seed)
        if kind != "carried":
            run.release(owner)
    if kind == "reset":
        state = run.step.state_dict()
        run.step.load_state_dict({key: np.zeros_like(a) if key.split(":")[0] in MOMENTS else a for key, a in state.items()})


def train(kind: str, seed: int, steps: int, data: tuple[np.ndarray, ...]) -> tuple[float, float]:
    """Return the mean training loss of the last tenth of the steps, and the test accuracy."""
    x, x_test, y, y_test = data
    loader, grows = DataLoader((x, y), batch=BATCH, seed=seed), kind.startswith("grown")
    run = start(UNITS[-1] if kind == "large" else UNITS[0], seed)
    losses: list[float] = []
    for units in UNITS:
        if grows and units > UNITS[0]:
            widen(run, units, seed, kind.removeprefix("grown, "))
        losses += run.fit(loader, steps // len(UNITS))
    found = run.model(Tensor(x_test)).numpy().argmax(1)
    return float(np.mean(losses[-max(steps // 10, 1) :])), float((found == y_test).mean())


def compare(seeds: int, steps: int, show: Callable[[str], None] = print) -> dict[str, np.ndarray]:
    """Return for each kind an array [seeds, 2] of training loss and test accuracy, and print them."""
    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int64)
    data = tuple(train_test_split(images, labels, test_size=0.25, random_state=0))
    kinds = ("grown, carried", "grown, released", "grown, reset", "large", "small")
    rows: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    show("| seed | " + " | ".join(kinds) + " |")
    show("|---" * (len(kinds) + 1) + "|")
    for seed in range(seeds):
        for kind in kinds:
            rows[kind].append(train(kind, seed, steps, data))
        show(f"| {seed} | " + " | ".join("{:.4f}, {:.4f}".format(*rows[kind][-1]) for kind in kinds) + " |")
    found = {kind: np.array(values) for kind, values in rows.items()}
    show("| median | " + " | ".join("{:.4f}, {:.4f}".format(*np.median(found[kind], axis=0)) for kind in kinds) + " |")
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds")
    parser.add_argument("--steps", type=int, default=900, help="steps of each run")
    arguments = parser.parse_args()
    compare(arguments.seeds, arguments.steps)


if __name__ == "__main__":
    main()
