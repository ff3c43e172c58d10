"""``fit``: a training step run over a loader, with a progress bar, a loss curve, and checkpoints that a killed run goes on from."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from aicf.errors import StateError
from aicf.train.checkpoints import Checkpoints, Loader, Progress
from aicf.train.curve import draw_curve
from aicf.train.program import Step
from aicf.train.progress import Report
from contract.files import write_atomically

CURVE = "loss.svg"


@dataclass(frozen=True)
class History:
    """What a run did: the losses that were read, by the number of steps done then, those before a resumption included.

    ``resumed_at`` is how many steps a checkpoint had done already; ``checkpoint`` is the last file, None where none is kept.
    """

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    resumed_at: int = 0
    checkpoint: Path | None = None

    def draw(self, path: Path | str) -> None:
        """Write the loss curve (SVG); raises :class:`~aicf.errors.StateError` where that fails."""
        text = draw_curve(self.steps, self.losses, f"loss over {max(self.steps, default=0)} steps")
        try:
            write_atomically(Path(path), text)
        except OSError as error:
            raise StateError(f"{path}: the loss curve cannot be written: {error.strerror or error}") from error


def fit(
    step: Step,
    loader: Loader,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    checkpoints: Path | str | None = None,
    save_every: int = 1000,
    keep: int = 2,
    resume: bool = True,
    read_every: int = 10,
    show: bool = True,
) -> History:
    """Train until ``steps`` steps, or ``epochs`` epochs, are done, those before a resumption included.

    With a folder for ``checkpoints`` the run is saved there every ``save_every`` steps, at its end, and where Ctrl-C stops it, behind the
    step that runs: :class:`KeyboardInterrupt` is raised then, and a second Ctrl-C counts at once. The loss curve lies beside the files.
    Started again, the run goes on from the newest file and has the bits of one that was never stopped. The loss is read every
    ``read_every`` steps: reading waits for the device.

    Raises ValueError for a folder with another run's checkpoints (``resume`` off, or more steps than are asked for), and
    :class:`~aicf.errors.StateError` for files that cannot be written or read, naming the older one that stands.
    """
    total = _find_total(loader, steps, epochs)
    if save_every < 1 or read_every < 1:
        raise ValueError(f"save_every={save_every}, read_every={read_every}: must be at least 1")
    store = None if checkpoints is None else Checkpoints(Path(checkpoints), keep)
    with ExitStack() as held:
        progress = Progress()
        if store is not None:
            held.enter_context(store.locked())
            progress = _take_up(store, step, loader, resume, total)
        run = _Run(step, loader, progress, store, save_every, read_every, total)
        resumed_at = progress.done
        is_asked_to_stop = held.enter_context(_delay_interrupts())
        report = held.enter_context(Report(step.plan.name, total, resumed_at)) if show else None
        run.go(is_asked_to_stop, report)
    return History(tuple(progress.steps), tuple(progress.losses), resumed_at, run.saved)


def _find_total(loader: Loader, steps: int | None, epochs: int | None) -> int:
    if (steps is None) == (epochs is None):
        raise ValueError("give either steps or epochs")
    total = steps if steps is not None else (epochs or 0) * len(loader)
    if total < 0:
        raise ValueError(f"steps={steps}, epochs={epochs}: must not be negative")
    return total


def _take_up(store: Checkpoints, step: Step, loader: Loader, resume: bool, total: int) -> Progress:
    there = store.find()
    if there and not resume:
        raise ValueError(f"{store.folder}: holds {there[-1].name}; name another folder, or resume=True goes on from there")
    progress = store.read_newest(step, loader)
    if progress.done > total:
        raise ValueError(f"{store.folder}: {progress.done} steps are done there, and {total} are asked for; name another folder")
    return progress


class _Run:
    """One call of :func:`fit` between its beginning and its end."""

    def __init__(
        self, step: Step, loader: Loader, progress: Progress, store: Checkpoints | None, save_every: int, read_every: int, total: int
    ) -> None:
        self.step, self.loader, self.progress, self.store = step, loader, progress, store
        self.save_every, self.read_every, self.total = save_every, read_every, total
        self.saved: Path | None = None
        self._saved_at = -1

    def go(self, is_asked_to_stop: Callable[[], bool], report: Report | None) -> None:
        progress = self.progress
        batches = _repeat(self.step.feed(self.loader))
        while progress.done < self.total:
            value = self.step(*next(batches))
            progress.done += 1
            loss = math.nan
            if progress.done % self.read_every == 0 or progress.done == self.total:
                loss = float(value.item())
                progress.steps.append(progress.done)
                progress.losses.append(loss)
            if progress.done % self.save_every == 0:
                self.save()
            if report is not None and not math.isnan(loss):
                report.update(progress.done, loss)
            if is_asked_to_stop():
                self.save()
                where = "" if self.saved is None else f"; saved as {self.saved}"
                raise KeyboardInterrupt(f"stopped after step {progress.done} of {self.total}{where}")
        self.save()

    def save(self) -> None:
        """Write a checkpoint of the present step, and the curve, unless that is done."""
        if self.store is None or self._saved_at == self.progress.done:
            return
        self.saved = self.store.write(self.step, self.loader, self.progress)
        self._saved_at = self.progress.done
        History(tuple(self.progress.steps), tuple(self.progress.losses)).draw(self.store.folder / CURVE)


def _repeat(loader: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield batches for ever; an epoch that was left at its very end has none left, two such are an empty loader."""
    empty = 0
    while empty < 2:
        empty += 1
        for batch in loader:
            empty = 0
            yield batch
    raise ValueError("the loader has no batch")


@contextmanager
def _delay_interrupts() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C count when it is asked for: states are between two steps only. A second one raises at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
