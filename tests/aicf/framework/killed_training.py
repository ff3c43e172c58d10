"""Training that is killed with SIGKILL at drawn moments and taken up again: ``python -m tests.aicf.framework.killed_training``.

Each run is a child of its own, forked before anything is opened. Moments are counted: before and behind each step of the plan, and before
each byte-moving call of the checkpoint's way to the disk; so that a seed tells where a run dies, also in the middle of a step or a file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.data import DataLoader
from aicf.state import read_arrays
from aicf.train import Step, fit

_RNG = np.random.default_rng(3)
X, Y = _RNG.normal(size=(44, 8)).astype(np.float32), _RNG.integers(0, 4, size=44)


def make_step(backend: str) -> tuple[Step, DataLoader]:
    """Return a step with all that a checkpoint must have; on the device a smaller one, of few kernels."""
    aicf.manual_seed(2)
    drop = [nn.Dropout(0.25, aicf.Generator(11))] if backend == "numpy" else []
    rate, clip = (optim.cosine(1e-2, total=40, warmup=4), 0.5) if backend == "numpy" else (1e-2, None)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), *drop, nn.Linear(16, 4))
    loader = DataLoader((X, Y), batch=8, seed=5)
    example = (Tensor(X[:8]), Tensor(Y[:8]))
    optimizer = optim.AdamW(model.parameters(), rate)
    step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optimizer, example, clip_norm=clip, backend=backend)
    return step, loader


class Clock:
    """Counts moments; at the last one the process kills itself. ``files`` are the moments on a file's way to the disk."""

    def __init__(self, last: int | None) -> None:
        self.count = 0
        self.files: list[int] = []
        self._last = last

    def tick(self, *, is_file: bool = False) -> None:
        self.count += 1
        if is_file:
            self.files.append(self.count)
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, function: Callable[..., Any], *, behind: bool = False, is_file: bool = False) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.tick(is_file=is_file)
            made = function(*arguments, **options)
            if behind:
                self.tick(is_file=is_file)
            return made

        return call


class _TornFile:
    """A file whose first write comes in two halves."""

    def __init__(self, file: Any, clock: Clock) -> None:
        self._file, self._clock = file, clock

    def __enter__(self) -> _TornFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, content: bytes) -> None:
        half = len(content) // 2
        self._file.write(content[:half])
        self._file.flush()
        self._clock.tick(is_file=True)
        self._file.write(content[half:])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def open_torn(clock: Clock) -> None:
    """Have the clock tick on each file's way to the disk."""
    open_file = Path.open
    Path.open = lambda self, mode="r", *rest: (  # type: ignore[assignment,method-assign,misc]
        _TornFile(open_file(self, mode, *rest), clock) if mode == "xb" else open_file(self, mode, *rest)
    )
    os.fsync = clock.wrap(os.fsync, is_file=True)
    Path.replace = clock.wrap(Path.replace, behind=True, is_file=True)  # type: ignore[method-assign]


def train(made: tuple[Step, DataLoader], folder: Path, steps: int, last: int | None) -> Clock:
    """Train to the end, or to the last moment; returns the clock with all moments that there were."""
    step, loader = made
    clock = Clock(last)
    if step.plan.backend == "numpy":
        step.executor.run_step = clock.wrap(step.executor.run_step)  # type: ignore[method-assign]
    else:
        step.executor.run = clock.wrap(step.executor.run, behind=True)  # type: ignore[method-assign]
    open_torn(clock)
    fit(step, loader, steps=steps, checkpoints=folder, save_every=3, read_every=1, show=False)
    return clock


class Children:
    """Runs in children of their own: a step of the host is made once, before; the device is opened by each child."""

    def __init__(self, backend: str, steps: int) -> None:
        self._backend, self._steps = backend, steps
        self._made = make_step(backend) if backend == "numpy" else None

    def run(self, folder: Path, last: int | None) -> tuple[int, list[int]] | None:
        """Train in a child; returns how many moments there were and which are files', None where it was killed. Any other end raises."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            clock = train(self._made or make_step(self._backend), folder, self._steps, last)
            os.write(writing, json.dumps([clock.count, clock.files]).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told = pipe.read()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return None
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(f"the child ended with {os.waitstatus_to_exitcode(status)}")
        count, files = json.loads(told)
        return count, files


def read_content(path: Path) -> tuple[dict[str, tuple[str, bytes]], dict[str, str]]:
    """Return what a checkpoint says: the order of its facts is not told."""
    arrays, facts = read_arrays(path)
    return {name: (f"{a.dtype}{a.shape}", a.tobytes()) for name, a in arrays.items()}, facts


def main(folder: Path, backend: str, steps: int, kills: int, seed: int) -> None:
    """Print what happened as JSON: moments of a whole run, and for each trial where it was killed and whether its last file is the same.

    Every other trial dies on a file's way to the disk; half of them are killed once more, wherever they are then.
    """
    children = Children(backend, steps)
    whole = children.run(folder / "whole", None)
    assert whole is not None
    count, files = whole
    random, name = Random(seed), f"step-{steps:09}.safetensors"
    expected = read_content(folder / "whole" / name)
    trials = []
    for trial in range(kills):
        place, first = folder / str(trial), random.choice(files) if trial % 2 else random.randint(1, count)
        was_killed = children.run(place, first) is None
        left = sorted(p.name for p in place.iterdir()) if place.is_dir() else []
        if trial % 4 > 1:
            children.run(place, random.randint(1, count))
        children.run(place, None)
        trials.append({"moment": first, "killed": was_killed, "left": left, "same": read_content(place / name) == expected})
    print(json.dumps({"moments": count, "trials": trials}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
