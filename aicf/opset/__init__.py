"""The ops that the framework knows, one file per family: inputs and outputs, meaning, gradient, frozen kernels.

High-level ops have names in camel case (``Linear``); frozen ops, which they are lowered to, have their own (``gemm_bias_act``).
A module of this package that binds ``OPS`` adds its ops to the table. So does the file ``ops/<name>/opset.py`` of a project of one's own,
which is found as the project's ops are; :func:`register` adds an op from elsewhere.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from aicf.errors import OpsetError
from aicf.opset.definition import REQUIRED, Arrays, Backward, Builder, OpDef, Types, V, same_floats
from aicf.opset.own import FILE, read_opset_files
from aicf.opset.types import Attr, Attrs, Type, find_dtype, freeze, require_contiguous, type_of
from contract.layout import find_ops_dir

__all__ = [
    "REQUIRED",
    "Arrays",
    "Attr",
    "Attrs",
    "Backward",
    "Builder",
    "OpDef",
    "Type",
    "Types",
    "V",
    "find_dtype",
    "find_op",
    "freeze",
    "list_ops",
    "register",
    "require_contiguous",
    "same_floats",
    "type_of",
]


@cache
def _table() -> dict[str, OpDef]:
    table: dict[str, OpDef] = {}
    for module in pkgutil.iter_modules(__path__):
        for op in getattr(importlib.import_module(f"{__name__}.{module.name}"), "OPS", ()):
            if op.name in table:
                raise ValueError(f"op {op.name} is defined twice, the second time in {module.name}")
            table[op.name] = op
    return table


def _read_own() -> Mapping[str, OpDef]:
    """Return the ops of the opset files of the project that we stand in."""
    ops_dir = find_ops_dir()
    own = {} if ops_dir is None else read_opset_files(ops_dir)
    if taken := sorted(own.keys() & _table().keys()):
        raise OpsetError(f"{ops_dir}: an {FILE} defines op {taken[0]}, which the framework has already; give yours another name")
    return own


def register(op: OpDef) -> None:
    """Add an op to the table that no file defines; raises ValueError where the name is taken."""
    if op.name in _read_own() or _table().setdefault(op.name, op) is not op:
        raise ValueError(f"op {op.name} is defined already")


def list_ops() -> tuple[str, ...]:
    """Return the names of all ops, the project's own among them; raises :class:`~aicf.errors.OpsetError`."""
    return tuple(sorted(_table().keys() | _read_own().keys()))


def find_op(name: str) -> OpDef:
    """Return an op by name.

    Raises KeyError listing those that there are, and :class:`~aicf.errors.OpsetError` where the framework has none of that name and a file
    of the project's own cannot be loaded.
    """
    if (found := _table().get(name)) is not None:
        return found
    found = _read_own().get(name)
    if found is None:
        raise KeyError(f"no op {name!r}; there are: {', '.join(list_ops())}; a project's own op brings ops/<name>/{FILE}")
    return found
