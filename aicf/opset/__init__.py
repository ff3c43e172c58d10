"""The ops that the framework knows, one file per family: inputs and outputs, meaning, gradient, frozen kernels.

High-level ops have names in camel case (``Linear``); frozen ops, which they are lowered to, have their own (``gemm_bias_act``).
A module of this package that binds ``OPS`` adds its ops to the table; :func:`register` adds one from elsewhere.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from aicf.opset.definition import Backward, Builder, OpDef
from aicf.opset.types import Attr, Attrs, Type, find_dtype, type_of

__all__ = ["Attr", "Attrs", "Backward", "Builder", "OpDef", "Type", "find_dtype", "find_op", "list_ops", "register", "type_of"]


@cache
def _table() -> dict[str, OpDef]:
    table: dict[str, OpDef] = {}
    for module in pkgutil.iter_modules(__path__):
        for op in getattr(importlib.import_module(f"{__name__}.{module.name}"), "OPS", ()):
            if op.name in table:
                raise ValueError(f"op {op.name} is defined twice, the second time in {module.name}")
            table[op.name] = op
    return table


def register(op: OpDef) -> None:
    """Add a project's own op to the table; raises ValueError where the name is taken."""
    if _table().setdefault(op.name, op) is not op:
        raise ValueError(f"op {op.name} is defined already")


def list_ops() -> tuple[str, ...]:
    """Return the names of all ops."""
    return tuple(sorted(_table()))


def find_op(name: str) -> OpDef:
    """Return an op by name; raises KeyError listing those that there are."""
    try:
        return _table()[name]
    except KeyError:
        raise KeyError(f"no op {name!r}; there are: {', '.join(list_ops())}") from None
