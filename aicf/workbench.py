"""The workbench from Python: ops, the verbs as functions that return data frames, and loose kernels; see ``docs/workbench.md``.

A door and no more: the rooms of ``harness`` are behind it, which nothing else in ``aicf`` may see, and which ``import aicf`` leaves alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from device.interface import UnavailableError

if TYPE_CHECKING:
    from harness.workbench import Op as Op


def _open() -> Any:
    try:
        return importlib.import_module("harness.workbench")
    except ModuleNotFoundError as error:
        raise UnavailableError(f"the workbench is not installed, {error.name} is missing: pip install 'aicf[workbench]'") from error


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'aicf.workbench' has no attribute {name!r}")
    return getattr(_open(), name)


def __dir__() -> Iterable[str]:
    return sorted(n for n in dir(_open()) if not n.startswith("_"))
