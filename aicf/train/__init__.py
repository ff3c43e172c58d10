"""Whole programs compiled once: inference, and forward, backward and update of a training step as one plan."""

from __future__ import annotations

from pathlib import Path

from aicf.errors import PlanError
from aicf.train.compiled import Compiled, Report, read_saved
from aicf.train.program import Program, compile  # noqa: A004  # as the field has it
from aicf.train.step import Step, compile_step

__all__ = ["Compiled", "Program", "Report", "Step", "compile", "compile_step", "load"]

_KINDS: dict[str, type[Program] | type[Step]] = {"Program": Program, "Step": Step}


def load(folder: Path | str) -> Program | Step:
    """Return a program or a step that was saved: it runs with no pass and no selection.

    Raises :class:`~aicf.errors.PlanError` or :class:`~aicf.errors.StateError` naming the file that cannot be read.
    """
    kind, arrays = read_saved(folder)
    if kind not in _KINDS:
        raise PlanError(f"{folder}: holds a program of kind {kind!r}; there are: {', '.join(_KINDS)}")
    return _KINDS[kind].read(Path(folder), arrays)
