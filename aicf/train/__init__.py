"""Whole programs compiled once: inference, and forward, backward and update of a training step as one plan; and their training loop.

A name is imported when it is first used: loading a saved program needs nothing of what makes one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aicf.train.compiled import Compiled, Report
    from aicf.train.compiling import compile, compile_step  # noqa: A004  # as the field has it
    from aicf.train.loop import History, fit
    from aicf.train.program import Program, Step, load

_PLACES = {
    **dict.fromkeys(("Compiled", "Report"), "compiled"),
    **dict.fromkeys(("History", "fit"), "loop"),
    **dict.fromkeys(("Program", "Step", "load"), "program"),
    **dict.fromkeys(("compile", "compile_step"), "compiling"),
}

__all__ = ["Compiled", "History", "Program", "Report", "Step", "compile", "compile_step", "fit", "load"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = globals()[name] = getattr(importlib.import_module(f"aicf.train.{_PLACES[name]}"), name)
        return found
    raise AttributeError(f"module 'aicf.train' has no attribute {name!r}")
