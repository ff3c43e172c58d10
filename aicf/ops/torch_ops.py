"""Ops as PyTorch's own: ``torch.ops.aicf.<op>``, with a fake kernel for ``torch.compile`` and, where a rule says how, a backward pass.

Eager calls without gradients do not come this way: PyTorch's dispatcher costs more than the whole lean path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from aicf.ops.arrays import View
from aicf.ops.calling import OpCall
from aicf.ops.gradients import extend_options, find_gradients
from contract.calls import find_row

_SCHEMA_TYPES: dict[type[Any], str] = {bool: "bool", int: "int", float: "float", str: "str"}
_registered: dict[str, OpCall] = {}
_library = torch.library.Library("aicf", "FRAGMENT")  # its ops are there for as long as it is
_kernel_follows: dict[int, bool] = {}  # by a set of the dispatcher's keys
_DENSE = (torch._C.DispatchKey.CUDA, torch._C.DispatchKey.CPU)


def needs_dispatch(arrays: Iterable[torch.Tensor]) -> bool:
    """Whether PyTorch has to see a call: it is recorded for a backward pass, or tensors stand for something else.

    Such are fake tensors and other subclasses, and all tensors while a mode or a transform (``vmap``) of PyTorch is on.
    """
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    plain = (torch.Tensor, torch.nn.Parameter)
    return any(type(a) not in plain or (a.requires_grad and torch.is_grad_enabled()) for a in arrays)


def dispatch_if_needed(call: OpCall, tensors: Iterable[torch.Tensor], values: Sequence[Any]) -> Any:
    """Make the op known, and return the result of a call that PyTorch has to see; None for any other."""
    register(call)
    return dispatch(call, values) if needs_dispatch(tensors) else None


def dispatch(call: OpCall, values: Sequence[Any]) -> Any:
    """Return the result of a call through PyTorch's dispatcher."""
    register(call)
    made = getattr(torch.ops.aicf, call.signature.op)(*values)
    return made[0] if len(made) == 1 else tuple(made)


def register(call: OpCall) -> None:
    """Make ``torch.ops.aicf.<op>`` known, once a process.

    This is what :func:`torch.library.custom_op` does, less what it does at each call: outputs checked against inputs (an output is never
    one), and a second way through the dispatcher where nothing is recorded. That is two thirds of such a call's cost.
    """
    op = call.signature.op
    if op in _registered:
        return
    _registered[op] = call

    def run(*values: Any) -> list[torch.Tensor]:
        # Nothing is recorded here: to have that done is what a call that is recorded comes to the dispatcher for.
        was_enabled = torch._C.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # torch.no_grad, less a microsecond
        try:
            made = call.caller(*values)
        finally:
            torch._C._set_grad_enabled(was_enabled)
        return list(made) if isinstance(made, tuple) else [made]

    _library.define(op + make_schema(call), tags=(torch.Tag.pt2_compliant_tag,))
    for key in _DENSE:
        _library.impl(op, run, key.name)
    torch.library.register_fake(f"aicf::{op}", lambda *values: _make_fakes(call, values), lib=_library)
    overload = getattr(torch.ops.aicf, op).default
    recorded = _make_function(call, overload)

    def differentiate(keys: Any, *values: Any) -> list[torch.Tensor]:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*values):
            return list(recorded.apply(keys, *values))
        if _leads_to_kernel(keys):
            return run(*values)
        made: list[torch.Tensor] = overload.redispatch(keys & torch._C._after_autograd_keyset, *values)
        return made

    _library.impl(op, differentiate, "Autograd", with_keyset=True)


def _leads_to_kernel(keys: Any) -> bool:
    """Whether the op's kernel comes next after autograd: no mode, no fake tensor, no functionalisation lies between."""
    number = keys.raw_repr()
    known = _kernel_follows.get(number)
    if known is None:
        known = _kernel_follows[number] = (keys & torch._C._after_autograd_keyset).highestPriorityTypeId() in _DENSE
    return known


def make_schema(call: OpCall) -> str:
    """Return the op's schema in PyTorch's language.

    Outputs are a list, for which of them there are depends on options. There are no defaults: PyTorch leaves values out that are the
    schema's, in some of its functions and not in others.
    """
    words = [f"Tensor{'?' if is_optional else ''} {name}" for name, is_optional in call.signature.inputs]
    words += [f"{_SCHEMA_TYPES[type(a['default'])]} {a['name']}" for a in call.signature.options]
    return f"({', '.join(words)}) -> Tensor[]"


def _make_fakes(call: OpCall, values: Sequence[Any]) -> list[torch.Tensor]:
    """Return outputs without data: their shapes, dtypes and device; sizes may be symbols.

    Raises ValueError for a call that changes a tensor in place: the op's schema does not say so, and PyTorch would move or drop the call.
    """
    signature = call.signature
    tensors = {n: v for (n, _), v in zip(signature.inputs, values, strict=False) if v is not None}
    if changed := sorted(signature.changed & tensors.keys()):
        raise ValueError(
            f"{changed[0]}: {signature.op} changes it in place, which torch.compile does not see; call it outside of what is compiled"
        )
    views = {n: View(0, tuple(t.shape), tuple(t.stride()), str(t.dtype).removeprefix("torch.")) for n, t in tensors.items()}
    problem = signature.make_problem(views, call.name_options(values))
    attributes = {a["name"]: a["default"] for a in signature.interface.attributes} | dict(problem.attributes)
    device = next(iter(tensors.values())).device
    outputs = signature.list_outputs(attributes)
    shapes = [[problem.sizes[s] for s in find_row(t["shape"], attributes)] for t in outputs]
    dtypes = [getattr(torch, find_row(t["dtype"], attributes)) for t in outputs]
    return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in zip(shapes, dtypes, strict=True)]


def _make_function(call: OpCall, overload: Any) -> Any:
    """Return a call that is recorded, as PyTorch's autograd wants it: ``apply`` takes the dispatcher's keys and the arguments."""

    def forward(ctx: Any, keys: Any, *values: Any) -> tuple[torch.Tensor, ...]:
        for (name, _), value in zip(call.signature.inputs, values, strict=False):
            if name in call.signature.changed and value is not None and value.is_floating_point():
                op = call.signature.op
                raise ValueError(
                    f"{name}: {op} changes it in place, which PyTorch's autograd does not record; call it under torch.no_grad()"
                )
        extended = _extend(call, values)
        with torch._C._AutoDispatchBelowAutograd():
            made = overload.redispatch(keys & torch._C._after_autograd_keyset, *extended)
        _keep(ctx, values, made)
        return tuple(made[: call.count_outputs(values)])

    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        return (None, *_run_backward(call, ctx, grads))

    # Gradients come from kernels that nothing records: a second derivative through them would be wrong, and is refused.
    members = {"forward": staticmethod(forward), "backward": staticmethod(once_differentiable(backward))}
    return type(f"Recorded_{call.signature.op}", (torch.autograd.Function,), members)


def _extend(call: OpCall, values: Sequence[Any]) -> Sequence[Any]:
    """Return a call's arguments with the options under which it keeps what its backward pass needs."""
    options = extend_options(call.signature.op, call.name_options(values))
    return (*values[: len(call.signature.inputs)], *(options[a["name"]] for a in call.signature.options))


def _keep(ctx: Any, inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> None:
    """Keep a call's inputs and outputs for its backward pass."""
    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    ctx.values = tuple(None if isinstance(v, torch.Tensor) else v for v in inputs)
    ctx.places = tuple(i for i, v in enumerate(inputs) if isinstance(v, torch.Tensor))
    ctx.save_for_backward(*tensors, *outputs)


def _run_backward(call: OpCall, ctx: Any, grads: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
    assert call.find_function is not None  # those that users call have it
    op = call.signature.op
    values, saved = list(ctx.values), ctx.saved_tensors
    for place, tensor in zip(ctx.places, saved, strict=False):
        values[place] = tensor
    inputs = dict(zip([n for n, _ in call.signature.inputs], values, strict=False))
    names = [n for n, _ in call.signature.inputs]
    needed = frozenset(n for n, is_needed in zip(names, ctx.needs_input_grad[1:], strict=False) if is_needed)
    found = find_gradients(call.find_function, op, inputs, call.name_options(values), saved[len(ctx.places) :], grads, needed)
    return (*(found.get(n) for n in names), *(None for _ in call.signature.options))
