"""NVTX ranges for Nsight Systems: a plan's run, and inside of it each step by its owner's path, in the domain ``aicf``.

Without the package ``nvtx`` there are none. A replayed graph is one range: its steps are no calls of the host.
"""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

from aicf.plan import Step

DOMAIN = "aicf"
_HAS_NVTX = importlib.util.find_spec("nvtx") is not None


@lru_cache(maxsize=8192)
def mark(name: str) -> AbstractContextManager[Any]:
    """Return a context manager that is a range of this name; it may be entered again."""
    if not _HAS_NVTX:
        return nullcontext()
    nvtx = importlib.import_module("nvtx")
    made: AbstractContextManager[Any] = nvtx.annotate(message=name, domain=DOMAIN)
    return made


def name_step(plan: str, index: int, step: Step) -> str:
    """Return a step's name: the plan, the path of the module that it belongs to, its number and op."""
    return "/".join((plan, step.owner or "-", f"{index}:{step.attrs['op'] if step.op == 'flat' else step.op}"))
