"""A run's checkpoints: a folder with a file per moment, each whole or not there. A run goes on from the newest with the same bits.

A file holds all states of the step (weights, moments, the step that schedules look at, random counters), the loader's place, and the
losses so far. It is written beside its place, forced to the disk and renamed; older files are removed only behind that.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aicf.errors import StateError
from aicf.state import read_arrays, write_arrays
from aicf.train.compiled import Compiled

_NAME = re.compile(r"step-(\d{9,})\.safetensors\Z")
_STEPS, _LOSSES = "history:steps", "history:losses"


class Loader(Protocol):
    """Batches whose order goes on where a state was taken; :class:`~aicf.data.DataLoader` is one."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rest of the present epoch."""

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""

    def state_dict(self) -> dict[str, int]:
        """Return the place behind the last batch that was yielded."""

    def load_state_dict(self, state: Mapping[str, int], /) -> None:
        """Go on from such a place."""


@dataclass
class Progress:
    """How far a run is: steps that are done, and losses by the number of steps that were done when they were read."""

    done: int = 0
    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


class Checkpoints:
    """The checkpoints in a folder, of which the last ``keep`` are kept."""

    def __init__(self, folder: Path, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint must be kept")
        self.folder = folder
        self._keep = keep

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one run, and clear away what killed ones had begun to write.

        Raises :class:`StateError` where another run holds it, or it cannot be made. The lock ends with the process, however that ends.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / ".lock").open("w")
        except OSError as error:
            raise StateError(f"{self.folder}: cannot hold checkpoints: {error.strerror or error}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateError(f"{self.folder}: another run writes its checkpoints here; give each run a folder of its own") from None
            for part in self.folder.glob(".step-*.safetensors.*"):
                part.unlink(missing_ok=True)
            yield

    def find(self) -> list[Path]:
        """Return the files that are there, the newest last."""
        if not self.folder.is_dir():
            return []
        found = {int(match[1]): path for path in self.folder.iterdir() if (match := _NAME.match(path.name))}
        return [found[done] for done in sorted(found)]

    def write(self, step: Compiled, loader: Loader, progress: Progress) -> Path:
        """Write a checkpoint; raises :class:`StateError` where that fails, and the older ones stay."""
        path = self.folder / f"step-{progress.done:09}.safetensors"
        arrays: dict[str, NDArray[Any]] = dict(step.state_dict())
        arrays |= {_STEPS: np.array(progress.steps, np.int64), _LOSSES: np.array(progress.losses, np.float64)}
        write_arrays(path, arrays, {"done": str(progress.done), "loader": json.dumps(loader.state_dict())})
        for old in self.find()[: -self._keep]:
            old.unlink(missing_ok=True)
        return path

    def read_newest(self, step: Compiled, loader: Loader) -> Progress:
        """Take up the newest checkpoint; returns how far it is, nothing done where there is none.

        Raises :class:`StateError` for one that cannot be read or belongs to another step: it names the file, and the older one that stands.
        """
        found = self.find()
        if not found:
            return Progress()
        try:
            return read_checkpoint(found[-1], step, loader)
        except StateError as error:
            older = f"{found[-2].name} is intact: remove {found[-1].name} to resume from it" if len(found) > 1 else "there is no older one"
            raise StateError(f"{error}; {older}") from error


def read_checkpoint(path: Path, step: Compiled, loader: Loader) -> Progress:
    """Put a step and a loader where a checkpoint was taken; nothing is changed where it raises :class:`StateError`."""
    arrays, facts = read_arrays(path)
    try:
        done, place = int(facts["done"]), json.loads(facts["loader"])
        steps, losses = arrays.pop(_STEPS), arrays.pop(_LOSSES)
        before = loader.state_dict()
        loader.load_state_dict(place)
    except (KeyError, ValueError) as error:
        raise StateError(f"{path}: is not a checkpoint of this run: {error}") from error
    try:
        step.load_state_dict(arrays)
    except ValueError as error:
        loader.load_state_dict(before)
        raise StateError(f"{path}: belongs to another step: {error}") from error
    return Progress(done, steps.tolist(), losses.tolist())
