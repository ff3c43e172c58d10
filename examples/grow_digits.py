"""A network that is too small for scikit-learn's digits, and grows while it trains: ``python examples/grow_digits.py``.

It begins with four hidden units. A policy looks at the loss: where that no longer falls, the layer is made twice as wide (its function
stays as it is, and so does the optimizer's state), the copies are separated, and a judge keeps the wider one or goes back. A picture of the
run is written: loss with every rewrite marked, memory, time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.data import DataLoader
from aicf.rewrite import Judge, Run, draw_timeline, policies, replay_decisions

BATCH = 64


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of a batch."""
    return F.cross_entropy(model(x), y)


def start(units: int, most: int, seed: int = 0, backend: str = "numpy", every: int = 25) -> Run:
    """Return a run that begins with few hidden units, and may have ``most``."""
    aicf.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, units), nn.ReLU(), nn.Linear(units, 10))
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    batch = (Tensor(np.zeros((BATCH, 64), np.float32)), Tensor(np.zeros(BATCH, np.int64)))
    step = aicf.compile_step(model, loss, optimizer, batch, backend=backend)
    grow = policies.plateau(policies.double("0", most, deviation=1.0), steps=4 * every, least=0.15)
    return Run(step, grow, every=every, judge=Judge(steps=4 * every, history=4 * every))


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images and labels to train on, and those to test on."""
    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int64)
    x, x_test, y, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
    return x, y, x_test, y_test


def measure_accuracy(model: nn.Module, x: np.ndarray, y: np.ndarray) -> float:
    """Return the share of images whose class is found."""
    classify = aicf.compile(model, (Tensor(x),))
    return float((classify(x).numpy().argmax(1) == y).mean())


def grow(steps: int, picture: Path, backend: str = "numpy", every: int = 25) -> Run:
    """Train, print what was decided, and write the picture; returns the run."""
    x, y, x_test, y_test = load_data()
    run = start(4, 64, backend=backend, every=every)
    run.fit(DataLoader((x, y), batch=BATCH, seed=1), steps)
    for decision in run.log.decisions:
        rule = {key: value for key, value in (decision.rule or {}).items() if key != "seed"}
        evidence = {key: value for key, value in decision.evidence.items() if isinstance(value, float)}
        print(f"step {decision.step:5}  {decision.action:9} {rule}  " + "  ".join(f"{k} {v:.4g}" for k, v in evidence.items()))
    accuracy = measure_accuracy(run.model, x_test, y_test)
    print(f"{run.model[0].out_features} hidden units after {run.steps_done} steps: test accuracy {accuracy:.4f}")
    if replay_decisions(run.log, run.policy, run.judge) == run.log.decisions:
        print("the log leads to the same decisions again")
    draw_timeline(run.log, picture)
    run.log.write(picture.with_suffix(".jsonl"))
    print(f"wrote {picture} and {picture.with_suffix('.jsonl')}")
    return run


def main() -> None:
    """Train and print what comes out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="steps to train, those that are rolled back included")
    parser.add_argument("--picture", type=Path, default=Path("grow_digits.svg"), help="where the picture goes")
    parser.add_argument("--backend", choices=["numpy", "cuda"], default="numpy", help="where the step runs")
    arguments = parser.parse_args()
    grow(arguments.steps, arguments.picture, arguments.backend)


if __name__ == "__main__":
    main()
