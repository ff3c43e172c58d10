"""Runs that are killed in a rewrite, or in the file behind it: ``python -m tests.aicf.rewrite.killed_run FOLDER KILLS SEED``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.data import DataLoader
from aicf.rewrite import Deepen, Freeze, Prune, Rule, Run, Separate, Widen
from aicf.rewrite.draft import Draft
from aicf.rewrite.structure import Structure
from aicf.state import read_arrays
from tests.aicf.framework.killed_training import Clock, open_torn

_RNG = np.random.default_rng(3)
X, Y = _RNG.normal(size=(44, 8)).astype(np.float32), _RNG.integers(0, 4, size=44)
STEPS = 6
# The rewrites of a run, by the number of steps that are done then.
PLANNED: tuple[tuple[int, Rule], ...] = (
    (1, Widen("0", 10, 1)),
    (1, Separate("0", 0.5, 1)),
    (2, Deepen("1", hidden=5)),
    (3, Freeze("0")),
    (5, Prune("0", (0, 9))),
)
NAME = "run.safetensors"


def start() -> Run:
    """Return the run as it begins."""
    aicf.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Dropout(0.25, aicf.Generator(11)), nn.Linear(6, 4))
    optimizer = optim.AdamW(model.parameters(), optim.cosine(1e-2, total=40, warmup=4))
    step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optimizer, (Tensor(X[:8]), Tensor(Y[:8])), clip_norm=0.5)
    return Run(step, every=2)


def train(folder: Path) -> None:
    """Train to the end, from where the folder's file is; a file follows every step and every rewrite."""
    run, loader, path = start(), DataLoader((X, Y), batch=8, seed=5), folder / NAME
    folder.mkdir(exist_ok=True)
    if path.exists():
        run.resume(path, loader)
    while True:
        for at, rule in PLANNED[len(run.records) :]:
            if at <= run.steps_done:
                run.apply(rule)
                run.snapshot().save(path)
        if run.steps_done >= STEPS:
            return
        run.fit(loader, 1)
        run.snapshot().save(path)


def run_child(folder: Path, last: int | None) -> int | None:
    """Train in a child; returns how many moments there were, None where it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        clock = Clock(last)
        for owner, name in ((Draft, "carry"), (Draft, "finish"), (Structure, "prepare"), (Structure, "exchange"), (Structure, "retire")):
            setattr(owner, name, clock.wrap(getattr(owner, name), behind=True))
        open_torn(clock)
        train(folder)
        os.write(writing, str(clock.count).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -9):
        raise SystemExit(f"the child ended with {status}")
    return int(told) if status == 0 else None


def read_content(path: Path) -> dict[str, Any]:
    """Return all states of a file, and how far it is."""
    arrays, facts = read_arrays(path)
    kept = {name: facts[name] for name in ("steps_done", "loader")} | {"rewrites": len(facts["records"].splitlines())}
    return kept | {name: (str(a.dtype), a.shape, a.tobytes().hex()) for name, a in arrays.items()}


def main(folder: Path, kills: int, seed: int) -> None:
    """Print for each killed run whether it ended as the one that was not killed did."""
    count = run_child(folder / "whole", None)
    assert count is not None
    expected, random = read_content(folder / "whole" / NAME), Random(seed)
    trials = []
    for trial in range(kills):
        place, moment = folder / str(trial), random.randint(1, count)
        was_killed = run_child(place, moment) is None
        run_child(place, None)
        trials.append({"moment": moment, "killed": was_killed, "same": read_content(place / NAME) == expected})
    print(json.dumps({"moments": count, "rewrites": expected["rewrites"], "trials": trials}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
