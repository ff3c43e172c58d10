"""The public function of an op, with its own signature and documentation, written from the index as ``dataclasses`` writes ``__init__``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from aicf.building.native import load_extension
from aicf.ops.arguments import Signature
from aicf.ops.calling import OpCall
from aicf.registry import Registry, open_registry
from aicf.registry.problems import Value

# torch.compile reads this code: while it does, the call is one node of its graph, the custom op. From Python 3.12 on nobody else runs it:
# the extension adopts the function.
_TEXT = """\
def make(caller, dispatch_compiled, modules):
    def {op}({parameters}):
        if "torch" in modules and modules["torch"].compiler.is_compiling():
            return dispatch_compiled({arguments})
        return caller({arguments})
    return {op}
"""


def make_function(op: str, registry: Registry | None = None) -> Callable[..., Any]:
    """Return an op's function. The device is opened, and the lean path compiled where it is not in the cache.

    Raises :class:`~aicf.errors.FrozenError`, :class:`~aicf.errors.SelectionError` where nothing is frozen for this device,
    :class:`~device.UnavailableError` and :class:`~device.toolchain.BuildError`.
    """
    call = OpCall(op, registry or open_registry())

    def dispatch_compiled(*values: Any) -> Any:
        from aicf.ops import torch_ops

        return torch_ops.dispatch(call, values)

    function = write_function(call.signature, call.caller, dispatch_compiled)
    if "torch" in sys.modules:
        from aicf.ops import torch_ops

        torch_ops.register(call)
    return function


def write_function(signature: Signature, caller: Any, dispatch_compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that hands its arguments, all by position, to ``caller``, or while PyTorch compiles to ``dispatch_compiled``."""
    op = signature.op
    names = [name for name, _ in signature.inputs] + [a["name"] for a in signature.options]
    words = [f"{name}=None" if is_optional else name for name, is_optional in signature.inputs]
    words += ["*", *(f"{a['name']}={a['default']!r}" for a in signature.options)] if signature.options else []
    text = _TEXT.format(op=op, parameters=", ".join(words), arguments=", ".join(names))
    space: dict[str, Any] = {}
    exec(compile(text, f"<aicf.ops.{op}>", "exec"), space)
    function: Callable[..., Any] = space["make"](caller, dispatch_compiled, sys.modules)
    function.__doc__ = describe(signature)
    function.__module__, function.__qualname__ = "aicf.ops", op
    load_extension().adopt(function)
    return function


def describe(signature: Signature) -> str:
    """Return what an op's function takes and returns, from its interface tables."""
    lines = [
        f"Frozen op {signature.op}.",
        "",
        "Arrays are of one framework; rows are contiguous. Work is queued on its current stream.",
        "",
    ]
    for tensor in signature.interface.tensors:
        shapes = " or ".join(f"[{', '.join(row['value'])}]{_when(row['when'])}" for row in tensor["shape"])
        dtypes = ", ".join(dict.fromkeys(row["value"] for row in tensor["dtype"]))
        absent = any(row["value"] is False for row in tensor["present"])
        when = " or ".join(_when(row["when"]).strip() for row in tensor["present"] if row["value"])
        note = "" if not absent else "; may be None" if tensor["role"] == "input" else f"; returned {when}"
        lines.append(f"{tensor['name']} ({tensor['role']}): {shapes}, {dtypes}{note}")
    for attribute in signature.options:
        choices = ", ".join(map(repr, attribute["choices"]))
        lines += [f"{attribute['name']}: one of {choices}; {attribute['default']!r} by default"]
    return "\n".join(lines)


def _when(when: Mapping[str, Value]) -> str:
    return f" where {' and '.join(f'{name} is {value}' for name, value in when.items())}" if when else ""
