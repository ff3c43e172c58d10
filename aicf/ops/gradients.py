"""Backward passes of frozen ops under PyTorch's autograd: the opset's rules, run on PyTorch's tensors.

What no frozen op does (a sum over rows alone, a sum of two gradients) is left to PyTorch, whose autograd calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aicf.ops.calling import FindFunction
from aicf.opset import Attrs, Backward, Builder, OpDef, Type, find_op
from device import UnavailableError


def find_rule(op: str) -> OpDef:
    """Return the op whose gradient rule is known; raises :class:`UnavailableError` for one that has none."""
    try:
        known = find_op(op)
    except KeyError:
        known = None
    if known is None or known.gradient is None:
        raise UnavailableError(f"{op}: no backward op is known; call it under torch.no_grad(), or on tensors that need no gradient")
    return known


def extend_options(op: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under which an op returns what its backward pass reads as well; as they are for an op without a rule."""
    try:
        known = find_op(op)
    except KeyError:
        return dict(options)
    return known.extend(options, set(known.input_names(len(known.inputs))))


def find_gradients(
    find: FindFunction,
    op: str,
    inputs: Mapping[str, Any],
    options: Mapping[str, Any],
    outputs: Sequence[Any],
    grads: Sequence[Any],
    needed: frozenset[str],
) -> dict[str, Any]:
    """Return gradients by input, of a call that was recorded with options extended; raises :class:`UnavailableError`.

    ``find`` returns the function of an op.
    """
    known = find_rule(op)
    assert known.gradient is not None
    attrs = extend_options(op, options)
    named = {name: value for name, value in inputs.items() if value is not None}
    made = dict(zip(known.outputs, outputs, strict=False))
    builder = TorchBuilder(find, op)
    types = {name: builder.type_of(value) for name, value in {**named, **made}.items()}
    g = Backward(builder, known, attrs, {**named, **made}, types, set(needed))
    if all(gradient is None for gradient in grads):
        return {}
    found = known.gradient(g, *grads)
    return {n: d for n, d in zip(known.input_names(len(inputs)), found, strict=False) if d is not None and n in needed}


def find_function(find: FindFunction, op: str, wanted: str) -> Callable[..., Any]:
    """Return the function of a frozen op that a backward pass of ``op`` needs; raises :class:`UnavailableError` where it is not frozen."""
    try:
        return find(wanted)
    except AttributeError as error:
        raise UnavailableError(
            f"{op}: its backward pass needs op {wanted}, which is not frozen: `make op={wanted} promote` freezes it; "
            "without gradients call it under torch.no_grad()"
        ) from error


class TorchBuilder(Builder):
    """Calls ops on PyTorch's tensors: frozen ones as functions of ``aicf.ops``, the others as PyTorch has them."""

    def __init__(self, find: FindFunction, op: str) -> None:
        self._find, self._op = find, op

    def type_of(self, value: Any) -> Type:
        """Return a tensor's type; its sizes may be symbols while PyTorch compiles."""
        return Type(str(value.dtype).removeprefix("torch."), tuple(value.shape))

    def call(self, op: str, inputs: Sequence[Any | None], attrs: Attrs) -> tuple[Any, ...]:
        """Return the outputs of an op."""
        known = find_op(op)
        if not known.is_frozen:
            return (_call_torch(op, inputs, known.fill(attrs)),)
        named = {n: _with_rows(x) for n, x in zip(known.input_names(len(inputs)), inputs, strict=True) if x is not None}
        made = find_function(self._find, self._op, op)(**named, **attrs)
        return made if isinstance(made, tuple) else (made,)


def _call_torch(op: str, inputs: Sequence[Any], attrs: Attrs) -> Any:
    import torch

    aten = torch.ops.aten
    first = inputs[0]
    if op == "Elementwise":
        slopes: dict[str, Callable[..., Any]] = {
            "relu_slope": lambda y: aten.threshold_backward(torch.ones_like(y), y, 0),
            "silu_slope": lambda z: aten.silu_backward(torch.ones_like(z), z),
            "gelu_tanh_slope": lambda z: aten.gelu_backward(torch.ones_like(z), z, approximate="tanh"),
            "gelu_erf_slope": lambda z: aten.gelu_backward(torch.ones_like(z), z, approximate="none"),
        }
        name = str(attrs["function"])
        return (slopes[name] if name in slopes else getattr(torch, name))(*inputs)
    if op == "Reduce" and attrs["function"] == "sum":
        return first.sum(attrs["axes"], keepdim=attrs["keep"])
    if op == "Permute":
        return first.permute(attrs["order"]).contiguous()
    raise UnavailableError(f"{op}: a backward pass asks PyTorch for it, and it has no name there")


def _with_rows(tensor: Any) -> Any:
    """Return a tensor whose rows are contiguous and apart; a gradient may be one number seen as all (``sum().backward()``)."""
    if tensor.ndim != 2:
        return tensor.contiguous()
    rows, columns = tensor.stride()
    return tensor if columns == 1 and rows >= tensor.shape[1] else tensor.contiguous()
