"""The public function of an op, with its own signature and documentation, generated from the interface in the index."""

from __future__ import annotations

import keyword
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

from aicf.errors import FrozenError
from aicf.ops.arguments import Signature
from aicf.ops.calling import FindFunction, OpCall
from aicf.registry import Registry, open_registry
from contract.calls import Value

# torch.compile reads this code: while it does, the call is one node of its graph, the custom op. What is compiled is this text and two
# numbers; an op's names come in afterwards, as names of variables (`code.replace`), so that no document is ever read as code. A function
# of `*inputs, **options` would need no text at all, and would take a tuple and a dictionary more at each call, and words of its own for
# arguments that do not fit.
_TEXT = """\
def make(caller, dispatch_compiled, modules):
    def function({parameters}):
        if "torch" in modules and modules["torch"].compiler.is_compiling():
            return dispatch_compiled({arguments})
        return caller({arguments})
    return function
"""


def make_function(op: str, find_function: FindFunction, registry: Registry | None = None) -> Callable[..., Any]:
    """Return an op's function. The device is opened, and the lean path compiled where it is not in the cache.

    ``find_function`` returns another op's function, which a backward pass calls; it raises AttributeError where there is none.
    Raises :class:`~aicf.errors.FrozenError`, :class:`~aicf.errors.SelectionError` where nothing is frozen for this device,
    :class:`~device.UnavailableError` and :class:`~device.toolchain.BuildError`.
    """

    def dispatch(call: OpCall, tensors: Iterable[Any], values: Sequence[Any]) -> Any:
        return _open_torch_ops().dispatch_if_needed(call, tensors, values)

    def dispatch_compiled(*values: Any) -> Any:
        return _open_torch_ops().dispatch(call, values)

    call = OpCall(op, registry or open_registry(), dispatch, find_function)
    function = write_function(call.signature, call.caller, dispatch_compiled)
    if "torch" in sys.modules:
        _open_torch_ops().register(call)
    return function


def _open_torch_ops() -> ModuleType:
    """Return what makes ops PyTorch's own; only those who use PyTorch import it."""
    from aicf.ops import torch_ops

    return torch_ops


def write_function(signature: Signature, caller: Any, dispatch_compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that hands its arguments, all by position, to ``caller``, or while PyTorch compiles to ``dispatch_compiled``.

    Raises :class:`~aicf.errors.FrozenError` for names that no function and no argument can have.
    """
    op = signature.op
    inputs, options = [name for name, _ in signature.inputs], [a["name"] for a in signature.options]
    for name in (op, *inputs, *options):
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise FrozenError(f"{op}: index.jsonl: interface: {name!r} cannot be the name of a function or of an argument")
    if len(set(inputs + options)) < len(inputs + options):
        raise FrozenError(f"{op}: index.jsonl: interface: two arguments have one name: {', '.join(inputs + options)}")
    template = _make_template(len(inputs), len(options))
    function: Callable[..., Any] = template(caller, dispatch_compiled, sys.modules)
    assert isinstance(function, FunctionType)
    function.__code__ = function.__code__.replace(co_varnames=(*inputs, *options), co_name=op, co_filename=f"<aicf.ops.{op}>")
    function.__defaults__ = tuple(None for _, is_optional in signature.inputs if is_optional)
    function.__kwdefaults__ = {a["name"]: a["default"] for a in signature.options}
    function.__doc__ = describe(signature)
    function.__module__, function.__name__, function.__qualname__ = "aicf.ops", op, op
    return function


@cache
def _make_template(num_inputs: int, num_options: int) -> Callable[..., Callable[..., Any]]:
    """Return what makes functions of so many inputs, and so many options that are given by name."""
    inputs, options = [f"i{n}" for n in range(num_inputs)], [f"o{n}" for n in range(num_options)]
    parameters = ", ".join([*inputs, *(["*", *options] if options else [])])
    space: dict[str, Any] = {}
    exec(compile(_TEXT.format(parameters=parameters, arguments=", ".join(inputs + options)), "<aicf.ops>", "exec"), space)
    made: Callable[..., Callable[..., Any]] = space["make"]
    return made


def describe(signature: Signature) -> str:
    """Return what an op's function takes and returns, from its interface tables."""
    lines = [
        f"Frozen op {signature.op}.",
        "",
        "Arrays are of one framework; rows are contiguous. Work is queued on its current stream.",
        "",
    ]
    for tensor in signature.interface.tensors:
        shapes = " or ".join(f"[{', '.join(map(str, row['value']))}]{_when(row['when'])}" for row in tensor["shape"])
        dtypes = ", ".join(dict.fromkeys(row["value"] for row in tensor["dtype"]))
        absent = any(row["value"] is False for row in tensor["present"])
        when = " or ".join(_when(row["when"]).strip() for row in tensor["present"] if row["value"])
        note = "" if not absent else f"; returned {when}" if tensor["role"] == "output" else "; may be None"
        note += "; changed in place" if tensor["role"] == "inout" else ""
        lines.append(f"{tensor['name']} ({tensor['role']}): {shapes}, {dtypes}{note}")
    for attribute in signature.options:
        choices = ", ".join(map(repr, attribute["choices"]))
        lines += [f"{attribute['name']}: one of {choices}; {attribute['default']!r} by default"]
    return "\n".join(lines)


def _when(when: Mapping[str, Value]) -> str:
    return f" where {' and '.join(f'{name} is {value}' for name, value in when.items())}" if when else ""
