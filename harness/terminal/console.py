"""What a person sees during work: a progress bar on a terminal and in a notebook, plain lines elsewhere.

The lines go to stderr, since results go to stdout.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from harness.spec import SpecError
from harness.terminal.notebook import NotebookLine, is_notebook


class Progress(Protocol):
    """Counts finished pieces of a long job."""

    def advance(self, text: str = "") -> None:
        """Say that one more piece is done; ``text`` describes it."""
        ...


class _Lines:
    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0

    def advance(self, text: str = "") -> None:
        self._done += 1
        print(f"{self._what} [{self._done}/{self._total}] {text}".rstrip(), file=sys.stderr, flush=True)


@contextmanager
def open_progress(what: str, total: int, *, quiet: bool = False) -> Iterator[Progress]:
    """Show progress of ``total`` pieces for the length of the block; ``quiet`` shows nothing."""
    if quiet:
        yield _Silent()
        return
    if is_notebook():
        with contextlib.closing(NotebookLine(what, total)) as line:
            yield line
        return
    if not sys.stderr.isatty():
        yield _Lines(what, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    console = Console(stderr=True)

    def keep() -> Column:
        return Column(no_wrap=True, min_width=7)

    # The piece has what room the rest leaves: on a narrow terminal it is cut, and neither the count nor the times are.
    columns = (
        TextColumn("{task.description}", table_column=keep()),
        BarColumn(bar_width=max(4, min(40, (console.width - 60) // 2))),
        MofNCompleteColumn(table_column=keep()),
        TimeElapsedColumn(table_column=keep()),
        TimeRemainingColumn(table_column=keep()),
        TextColumn("{task.fields[piece]}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    with Bar(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(what, total=total, piece="")

        class _Bar:
            def advance(self, text: str = "") -> None:
                bar.update(task, advance=1, piece=text)

        yield _Bar()


class _Silent:
    def advance(self, text: str = "") -> None:
        """Show nothing."""


_MIN_TIMED = 3  # pieces of which the others' time is estimated


class Stages:
    """Counts finished pieces of the stages of a job, which may run at the same time, and says them in one line."""

    def __init__(self, what: str, totals: Mapping[str, int]) -> None:
        self._what = what
        self._totals = dict(totals)
        self._done = dict.fromkeys(totals, 0)
        self._known = dict.fromkeys(totals, 0)
        self._began_s: dict[str, float] = {}
        self._last_piece_s = time.monotonic()

    def advance(self, stage: str, text: str = "", *, known: bool = False) -> None:
        """Say that one more piece of a stage is done; ``text`` describes it, ``known`` says that it was done before this job."""
        self._done[stage] += 1
        self._known[stage] += known
        if not known:
            self._began_s.setdefault(stage, self._last_piece_s)
        self._last_piece_s = time.monotonic()
        self._show(stage, text)

    def set_total(self, stage: str, total: int) -> None:
        """Say how many pieces a stage has, where that shows on the way."""
        self._totals[stage] = total

    def say(self, text: str) -> None:
        """Say something that is to stay on the screen."""

    def _show(self, stage: str, text: str) -> None:
        """Show the counts."""

    def describe_rest(self) -> str:
        """Return ``verify: about 40 s left``, of the stage that needs the longest by its pieces; "" where too few are done to say."""
        left_s = {stage: rest_s for stage in self._totals if (rest_s := self._estimate_rest(stage)) is not None}
        if not left_s:
            return ""
        stage = max(left_s, key=lambda name: left_s[name])
        return f"{stage}: about {left_s[stage]:.0f} s left"

    def _estimate_rest(self, stage: str) -> float | None:
        done, total = self._done[stage], self._totals[stage]
        num_timed = done - self._known[stage]
        if num_timed < _MIN_TIMED or done >= total:
            return None
        return (self._last_piece_s - self._began_s[stage]) / num_timed * (total - done)

    def describe(self, *, with_known: bool = True) -> str:
        """Return ``build 55/55 · verify 12/55 (10 before) · count 0/55``."""
        known = {s: f" ({n} before)" if n and with_known else "" for s, n in self._known.items()}
        return " · ".join(f"{s} {self._done[s]}/{total}{known[s]}" for s, total in self._totals.items())


class _StageLines(Stages):
    """Prints a line when a stage is complete, and beside that one every ``_EVERY_S`` seconds."""

    _EVERY_S = 15.0

    def __init__(self, what: str, totals: Mapping[str, int]) -> None:
        super().__init__(what, totals)
        self._started_s = self._last_s = time.monotonic()

    def _show(self, stage: str, text: str) -> None:
        now_s = time.monotonic()
        if self._done[stage] == self._totals[stage] or now_s - self._last_s >= self._EVERY_S:
            self._last_s = now_s
            rest = self.describe_rest()
            self.say(f"{self.describe()} ({now_s - self._started_s:.0f} s{f'; {rest}' if rest else ''})")

    def say(self, text: str) -> None:
        print(f"{self._what}: {text}", file=sys.stderr, flush=True)


class _StagesInNotebook(Stages):
    def __init__(self, what: str, totals: Mapping[str, int]) -> None:
        super().__init__(what, totals)
        self._line = NotebookLine(what, sum(totals.values()))

    def _show(self, stage: str, text: str) -> None:
        words = " · ".join(filter(None, (self.describe(with_known=False), self.describe_rest(), text)))
        self._line.show(sum(self._done.values()), sum(self._totals.values()), words)

    def say(self, text: str) -> None:
        print(f"{self._what}: {text}")

    def close(self) -> None:
        """Take the line away."""
        self._line.close()


@contextmanager
def open_stages(what: str, totals: Mapping[str, int], *, quiet: bool = False) -> Iterator[Stages]:
    """Show the progress of a job's stages (pieces by name) for the length of the block: one live line on a terminal, else sparse ones."""
    if quiet:
        yield Stages(what, totals)
        return
    if is_notebook():
        with contextlib.closing(_StagesInNotebook(what, totals)) as line:
            yield line
        return
    if not sys.stderr.isatty():
        yield _StageLines(what, totals)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    def keep(name: str) -> TextColumn:
        return TextColumn(f"{{task.fields[{name}]}}", markup=False, table_column=Column(no_wrap=True))

    elapsed = TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7))

    # The piece has what room the rest leaves: it is cut, and the counts are not.
    piece = TextColumn("{task.fields[piece]}", style="dim", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    console = Console(stderr=True)
    with Bar(keep("what"), BarColumn(bar_width=8), keep("counts"), elapsed, piece, console=console, transient=True, expand=True) as bar:
        task = bar.add_task("", total=sum(totals.values()), what=what, counts=Stages(what, totals).describe(), piece="")

        class _StageBar(Stages):
            def _show(self, stage: str, text: str) -> None:
                done, total = sum(self._done.values()), sum(self._totals.values())
                piece = " · ".join(filter(None, (self.describe_rest(), text)))
                bar.update(task, completed=done, total=total, counts=self.describe(with_known=False), piece=piece)

            def say(self, text: str) -> None:
                bar.console.print(f"{what}: {text}", markup=False, highlight=False, soft_wrap=True)

        yield _StageBar(what, totals)


def claim_output(place: Path, option: str, *, is_folder: bool = False) -> None:
    """Make the folder that a file goes to, or the folder ``place`` itself, before the work whose result goes there.

    Raises :class:`SpecError`, which names the option, where nothing can be written.
    """
    folder = place if is_folder else place.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SpecError(f"{option} {place}: nothing can be written there ({error.strerror}); name another place") from error


def print_warning(text: str) -> None:
    """Say on stderr what went wrong without stopping the work."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Write one JSON document to stdout; values that JSON lacks (NaN, infinity) become null."""
    print(json.dumps(_clean(value), indent=2))


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
