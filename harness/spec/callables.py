"""Calling the functions with which an op describes itself, so that an error in one is reported with its place in ``op.py``."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.errors import SpecError


@dataclass(frozen=True)
class Described:
    """A function of an op: ``name`` is what ``op.py`` binds it to. What it raises becomes a :class:`SpecError` of three lines."""

    op: str
    name: str
    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        try:
            return self.function(*arguments)
        except SpecError:
            raise
        except Exception as error:
            # The last argument that has a name of its own is the problem.
            names = [a.name for a in arguments if isinstance(getattr(a, "name", None), str)]
            problem = f", problem {names[-1]}" if names else ""
            place = find_place(error.__traceback__)
            text = str(error) if not isinstance(error, KeyError) else f"there is no {error}"
            message = f"op {self.op}{problem}: {self.name}() fails\n  {place}\n  {type(error).__name__}: {text}"
            raise SpecError(message) from error


def find_place(trace: TracebackType | None, folder: Path | None = None) -> str:
    """Return file, line and text of the last frame in a description, "" where there is none: what that called, NumPy say, comes after it.

    ``folder`` is the op's; without it, whatever is no installed package is taken for a part of it.
    """
    found = ""
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        own = path.is_relative_to(folder) if folder else "site-packages" not in path.parts and path != Path(__file__)
        if own:
            found = f"{path}:{trace.tb_lineno}: {linecache.getline(str(path), trace.tb_lineno).strip()}"
        trace = trace.tb_next
    return found
