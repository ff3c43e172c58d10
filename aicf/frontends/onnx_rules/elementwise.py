"""Elementwise operators of ONNX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from aicf import functional as F
from aicf.frontends.network import Refusal
from aicf.frontends.onnx_rules.settings import Function, Settings, plain, rule
from aicf.opset.types import DTYPES
from aicf.tensor import Tensor

for _name, _function in {
    "Identity": lambda x: x,
    "Abs": F.abs,
    "Cos": F.cos,
    "Erf": F.erf,
    "Exp": F.exp,
    "HardSwish": lambda x: x * F.clip(x * (1.0 / 6.0) + 0.5, 0.0, 1.0),
    "IsNaN": lambda x: ~_equal(x, x),
    "Log": F.log,
    "Mish": lambda x: x * F.tanh(F.softplus(x)),
    "Neg": lambda x: -x,
    "Not": lambda x: ~x,
    "Reciprocal": lambda x: 1.0 / x,
    "Relu": F.relu,
    "Sigmoid": F.sigmoid,
    "Sign": F.sign,
    "Sin": F.sin,
    "Softplus": F.softplus,
    "Softsign": lambda x: x / (abs(x) + 1.0),
    "Sqrt": F.sqrt,
    "Tanh": F.tanh,
}.items():
    plain(_name, _function)


def _equal(x: Tensor, y: Tensor) -> Tensor:
    return x._binary("eq", y)


def _power(x: Tensor, exponent: Tensor) -> Tensor:
    return x ** exponent.cast(x.dtype)


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Settings], Function]:
    def make(node: Settings) -> Function:
        node.require("broadcast", 0)  # NumPy's rules came with version 7
        return function

    return make


for _name, _pair in {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Div": lambda x, y: x / y,
    "Pow": _power,
    "Equal": _equal,
    "Less": lambda x, y: x < y,
    "LessOrEqual": lambda x, y: x <= y,
    "Greater": lambda x, y: x > y,
    "GreaterOrEqual": lambda x, y: x >= y,
    "And": lambda x, y: x & y,
    "Or": lambda x, y: x | y,
    "Xor": lambda x, y: ~_equal(x, y),
    "PRelu": F.leaky_relu,
}.items():
    rule(_name)(_binary(_pair))

plain("Where", F.where)
plain("Max", lambda *xs: functools.reduce(F.maximum, xs))
plain("Min", lambda *xs: functools.reduce(F.minimum, xs))
plain("Sum", lambda *xs: functools.reduce(lambda x, y: x + y, xs))
plain("Mean", lambda *xs: functools.reduce(lambda x, y: x + y, xs) * (1.0 / len(xs)))


@rule("Clip")
def _clip(node: Settings) -> Function:
    low, high = node.get("min"), node.get("max")
    return lambda x, first=None, last=None: F.clip(x, low if first is None else first, high if last is None else last)


@rule("LeakyRelu")
def _leaky_relu(node: Settings) -> Function:
    slope = node.get("alpha", 0.01)
    return lambda x: F.leaky_relu(x, slope)


@rule("Elu")
def _elu(node: Settings) -> Function:
    alpha = node.get("alpha", 1.0)
    return lambda x: F.elu(x, alpha)


@rule("Celu")
def _celu(node: Settings) -> Function:
    alpha = node.get("alpha", 1.0)
    return lambda x: F.elu(x * (1.0 / alpha)) * alpha


@rule("Selu")
def _selu(node: Settings) -> Function:
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813232421875)
    return lambda x: F.elu(x, alpha) * gamma


@rule("ThresholdedRelu")
def _thresholded_relu(node: Settings) -> Function:
    alpha = node.get("alpha", 1.0)
    return lambda x: F.where(x > alpha, x, 0.0)


@rule("HardSigmoid")
def _hard_sigmoid(node: Settings) -> Function:
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    return lambda x: F.clip(x * alpha + beta, 0.0, 1.0)


@rule("Gelu")
def _gelu(node: Settings) -> Function:
    approximate = node.get("approximate", "none")
    return lambda x: F.gelu(x, approximate=approximate)


@rule("Swish")
def _swish(node: Settings) -> Function:
    alpha = node.get("alpha", 1.0)
    return F.silu if alpha == 1.0 else lambda x: x * F.sigmoid(x * alpha)


@rule("Cast")
def _cast(node: Settings) -> Function:
    dtype = find_dtype_name(node.attrs["to"])
    return lambda x: x.cast(dtype)


plain("CastLike", lambda x, like: x.cast(like.dtype))


def find_dtype_name(number: int) -> str:
    """Return the name of a dtype of ONNX; raises :class:`Refusal` for one that this package does not have."""
    import onnx_ir

    name = onnx_ir.DataType(number).name
    known = {"DOUBLE": "float64", "FLOAT": "float32"}.get(name, name.lower())
    if known not in DTYPES:
        raise Refusal(f"dtype {name} is not supported; supported: {', '.join(DTYPES)}")
    return known


@rule("Dropout", hosts=(1, 2), trains=True)
def _dropout(node: Settings) -> Function:
    """Return dropout that follows the module's training mode where the node does, and that changes nothing elsewhere."""
    old, has_mask = node.get("ratio", 0.5), any(node.reads[1:])

    def run(x: Tensor, ratio: Any = None, trains: Any = None, *, training: bool = False) -> Any:
        p = old if ratio is None else float(np.asarray(ratio))
        drops = training and p > 0.0 and trains is not None and bool(np.asarray(trains))
        if drops and has_mask:
            raise Refusal("the mask output of an active dropout is not supported")
        made = F.dropout(x, p, training=drops)
        return (made, F.ones_like(x).cast("bool")) if len(node.reads) > 1 else made

    return run


@rule("Shrink")
def _shrink(node: Settings) -> Function:
    bias, edge = node.get("bias", 0.0), node.get("lambd", 0.5)
    return lambda x: F.where(x < -edge, x + bias, F.where(x > edge, x - bias, 0.0))


@rule("LpNormalization")
def _lp_normalization(node: Settings) -> Function:
    axis, p = node.get("axis", -1), node.get("p", 2)

    def run(x: Tensor) -> Tensor:
        norm = abs(x).sum(axis, keep=True) if p == 1 else F.sqrt(F.square(x).sum(axis, keep=True))
        return F.where(norm > 0.0, x / norm, 0.0)

    return run
