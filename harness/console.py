"""What a person sees while work goes on: a progress bar on a terminal, plain lines elsewhere; on stderr, since results go to stdout."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from harness.spec import SpecError


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
