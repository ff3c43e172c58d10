"""Elementwise operators of PyTorch, with its promotion of dtypes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from aicf import functional as F
from aicf.frontends.network import Refusal
from aicf.frontends.torch_rules.table import rule
from aicf.opset.types import FLOATS, INTEGERS, find_dtype
from aicf.tensor import Tensor


def promote(x: Any, y: Any) -> tuple[Any, Any]:
    """Return two operands in the dtype that PyTorch gives their result: of two tensors the higher one; a number changes the kind alone."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return _promote_to_number(x, y), _promote_to_number(y, x)
    wanted = _find_common(x, y)
    return x.cast(wanted), y.cast(wanted)


def _promote_to_number(x: Any, other: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    if isinstance(other, float) and not x.type.is_float:
        return x.cast("float32")
    return x.cast("int64") if x.dtype == "bool" and isinstance(other, int) and not isinstance(other, bool) else x


def _find_common(x: Tensor, y: Tensor) -> str:
    """Return the dtype of the higher kind; of one kind a tensor with axes decides over one without."""
    a, b = x.dtype, y.dtype
    kinds = [(dtype in FLOATS) + (dtype != "bool") for dtype in (a, b)]
    if kinds[0] != kinds[1]:
        return a if kinds[0] > kinds[1] else b
    if a == b or (x.ndim == 0) != (y.ndim == 0):
        return b if x.ndim == 0 else a
    made = "float32" if {a, b} == {"float16", "bfloat16"} else np.promote_types(find_dtype(a), find_dtype(b)).name
    if made not in (*FLOATS, *INTEGERS):
        raise Refusal(f"values of {a} and {b} have no common dtype here")
    return made


def to_float(x: Tensor) -> Tensor:
    """Return integers as float32, as PyTorch's functions of floating numbers do."""
    return x if x.type.is_float else x.cast("float32")


def _of_floats(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda input: function(to_float(input))  # noqa: A006  # PyTorch's name for it


for _name, _function in {
    "cos": F.cos,
    "erf": F.erf,
    "exp": F.exp,
    "expm1": F.expm1,
    "log": F.log,
    "log1p": F.log1p,
    "rsqrt": F.rsqrt,
    "sigmoid": F.sigmoid,
    "sin": F.sin,
    "sqrt": F.sqrt,
    "tanh": F.tanh,
    "reciprocal": lambda x: 1.0 / x,
    "softsign": lambda x: x / (abs(x) + 1.0),
    "log_sigmoid": lambda x: -F.softplus(-x),
}.items():
    rule(_name)(_of_floats(_function))


@rule("abs")
def _abs(input: Any) -> Any:  # noqa: A002
    return abs(input)


@rule("neg")
def _neg(input: Any) -> Any:  # noqa: A002
    return -input


@rule("sign")
def _sign(input: Tensor) -> Tensor:  # noqa: A002
    return F.sign(input)


@rule("square")
def _square(input: Tensor) -> Tensor:  # noqa: A002
    return F.square(input)


def _compute(function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """Return a function of tensors, or of numbers of the host."""
    x, y = promote(x, y)
    return function(x, y)


@rule("add", "iadd")
def _add(input: Any, other: Any, alpha: Any = 1) -> Any:  # noqa: A002
    return _compute(operator.add, input, other if alpha == 1 else other * alpha)


@rule("sub", "isub")
def _sub(input: Any, other: Any, alpha: Any = 1) -> Any:  # noqa: A002
    return _compute(operator.sub, input, other if alpha == 1 else other * alpha)


@rule("rsub")
def _rsub(input: Any, other: Any, alpha: Any = 1) -> Any:  # noqa: A002
    return _compute(operator.sub, other, input if alpha == 1 else input * alpha)


@rule("mul", "imul", "multiply")
def _mul(input: Any, other: Any) -> Any:  # noqa: A002
    return _compute(operator.mul, input, other)


@rule("div", "truediv", "true_divide", "divide", "itruediv", rounding_mode=(None,))
def _div(input: Any, other: Any, rounding_mode: Any = None) -> Any:  # noqa: A002
    x, y = promote(input, other)
    return (to_float(x) if isinstance(x, Tensor) else x) / (to_float(y) if isinstance(y, Tensor) else y)


@rule("floordiv", "floor_divide")
def _floordiv(input: Any, other: Any) -> Any:  # noqa: A002
    if isinstance(input, Tensor) or isinstance(other, Tensor):
        raise Refusal("floor division of tensors is not supported")
    return input // other


@rule("pow")
def _pow(input: Any, exponent: Any) -> Any:  # noqa: A002
    if not isinstance(input, Tensor) and not isinstance(exponent, Tensor):
        return input**exponent
    if isinstance(exponent, Tensor):
        return _compute(operator.pow, input if isinstance(input, Tensor) else exponent._lift(input), exponent)
    known: dict[Any, Callable[[Tensor], Tensor]] = {1: lambda x: x, 2: F.square, 0.5: F.sqrt, -0.5: F.rsqrt, -1: lambda x: 1.0 / x}
    return known[exponent](input) if exponent in known else input**exponent


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda input, other: _compute(function, input, other)  # noqa: A006


def _equal(x: Any, y: Any) -> Any:
    return x._binary("eq", y) if isinstance(x, Tensor) else y._binary("eq", x) if isinstance(y, Tensor) else x == y


def _differ(x: Any, y: Any) -> Any:
    same = _equal(x, y)
    return ~same if isinstance(same, Tensor) else not same


for _name, _comparing in {
    "eq": _equal,
    "ne": _differ,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}.items():
    rule(_name)(_comparison(_comparing))

rule("logical_and", "bitwise_and", "and_", "__and__")(_comparison(operator.and_))
rule("logical_or", "bitwise_or", "or_", "__or__")(_comparison(operator.or_))


@rule("logical_not", "bitwise_not", "invert")
def _not(input: Tensor) -> Tensor:  # noqa: A002
    return ~input


# Along an axis PyTorch returns indices too, and the gradient goes to one of those that tie: torch.amax and torch.argmax are served.
@rule("max", other=(None,))
def _max(input: Tensor, other: Tensor | None = None) -> Tensor:  # noqa: A002
    return input.max() if other is None else F.maximum(*promote(input, other))


@rule("min", other=(None,))
def _min(input: Tensor, other: Tensor | None = None) -> Tensor:  # noqa: A002
    return input.min() if other is None else F.minimum(*promote(input, other))


@rule("maximum")
def _maximum(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    return F.maximum(*promote(input, other))


@rule("minimum")
def _minimum(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    return F.minimum(*promote(input, other))


@rule("where")
def _where(condition: Tensor, input: Any, other: Any) -> Tensor:  # noqa: A002
    x, y = promote(input, other)
    return F.where(condition, x, y)


@rule("masked_fill")
def _masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:  # noqa: A002
    return F.where(mask, value, input)


@rule("clamp", "clip")
def _clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:  # noqa: A002
    return F.clip(input, min, max)


def find_dtype_name(dtype: Any) -> str:
    """Return the name of a dtype: PyTorch's, its number in TorchScript, or the name itself; raises :class:`Refusal`."""
    name = _NUMBERS.get(dtype, str(dtype)) if isinstance(dtype, int) else str(dtype).removeprefix("torch.")
    if name not in (*FLOATS, *INTEGERS, "bool"):
        raise Refusal(f"dtype {name} is not supported; supported: {', '.join((*FLOATS, *INTEGERS, 'bool'))}")
    return name


_NUMBERS = {0: "uint8", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 11: "bool", 15: "bfloat16"}


@rule("to", "_to_copy", "type", is_view=True)
def _to(input: Tensor, *given: Any, dtype: Any = None, **options: Any) -> Tensor:  # noqa: A002
    """Return the tensor in a dtype, or in that of another tensor; where it is to lie is not the network's business."""
    for value in (*given, dtype):
        if isinstance(value, Tensor):
            return input.cast(value.dtype)
        if str(value).startswith("torch.") or (isinstance(value, int) and not isinstance(value, bool)):
            return input.cast(find_dtype_name(value))
    return input


for _name, _dtype in {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64"}.items():
    rule(_name, is_view=True)(lambda input, _dtype=_dtype: input.cast(_dtype))  # noqa: A006


@rule("type_as", is_view=True)
def _type_as(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    return input.cast(other.dtype)
