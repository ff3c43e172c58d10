"""How far a run is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0


class Report:
    """Shows steps done and the last loss on the console, standard error by default."""

    def __init__(self, name: str, total: int, done: int, console: Console | None = None) -> None:
        self._name, self._total, self._first = name, total, done
        self._console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._begin = self._told = time.monotonic()
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, TextColumn("loss {task.fields[loss]}"), console=self._console)
            self._task = self._bar.add_task(name, total=total, completed=done, loss="-")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, loss: float) -> None:
        """Show that many steps and the last loss; without a terminal every ten seconds, and at the end."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, loss=f"{loss:.5g}")
            return
        now = time.monotonic()
        if done == self._total or now - self._told >= _SECONDS_BETWEEN_LINES:
            self._told = now
            per_step = 1e3 * (now - self._begin) / max(done - self._first, 1)
            self.say(f"{self._name}: step {done}/{self._total}, loss {loss:.5g}, {per_step:.3g} ms a step")

    def say(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
