"""Frozen ops as functions on arrays of PyTorch, CuPy, NumPy and the device: ``aicf.ops.gemm_bias_act(a, b, bias, act="silu")``.

A function is made from the op's row in the index when it is first asked for; ``aicf.ops.softmax.__doc__`` says what it takes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from aicf.ops.functions import make_function
from aicf.registry import list_ops


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_") or name not in list_ops():
        known = ", ".join(list_ops()) or "none"
        raise AttributeError(f"module 'aicf.ops' has no attribute {name!r}; frozen ops: {known}")
    function = globals()[name] = make_function(name, _find_function)
    return function


def _find_function(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(sys.modules[__name__], name)
    return function


def __dir__() -> list[str]:
    return list_ops()
