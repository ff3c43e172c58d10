"""Which frozen kernel serves a call, and why: :func:`select`, :func:`explain`."""

from __future__ import annotations

from aicf.errors import FrozenError, SelectionError
from aicf.registry.explaining import Candidate, Explanation, explain
from aicf.registry.handles import KernelHandle
from aicf.registry.problems import HwCaps, Preferences
from aicf.registry.selection import Registry, open_registry, select
from contract.calls import Problem
from contract.decision import How
from contract.frozen_set import list_ops

__all__ = [
    "Candidate",
    "Explanation",
    "FrozenError",
    "How",
    "HwCaps",
    "KernelHandle",
    "Preferences",
    "Problem",
    "Registry",
    "SelectionError",
    "explain",
    "list_ops",
    "open_registry",
    "select",
]
