"""Activations of PyTorch, and dropout."""

from __future__ import annotations

from collections.abc import Callable

from aicf import functional as F
from aicf.frontends.torch_rules.elementwise import to_float
from aicf.frontends.torch_rules.table import rule
from aicf.tensor import Tensor


def _in_place(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda input, inplace=False: function(to_float(input))  # noqa: A006


for _name, _function in {
    "relu": F.relu,
    "silu": F.silu,
    "mish": lambda x: x * F.tanh(F.softplus(x)),
    "hardsigmoid": lambda x: F.clip(x * (1.0 / 6.0) + 0.5, 0.0, 1.0),
    "hardswish": lambda x: x * F.clip(x * (1.0 / 6.0) + 0.5, 0.0, 1.0),
    "relu6": lambda x: F.clip(F.relu(x), None, 6.0),
    "selu": lambda x: F.elu(x, 1.6732632423543772) * 1.0507009873554805,
}.items():
    rule(_name)(_in_place(_function))


@rule("hardtanh")
def _hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: A002
    return F.clip(input, min_val, max_val)


@rule("leaky_relu")
def _leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:  # noqa: A002
    return F.leaky_relu(input, negative_slope)


@rule("prelu")
def _prelu(input: Tensor, weight: Tensor) -> Tensor:  # noqa: A002
    one_each = weight.shape != (1,) and input.ndim > 1
    return F.leaky_relu(input, weight.reshape(-1, *[1] * (input.ndim - 2)) if one_each else weight)


@rule("elu", scale=(1, 1.0), input_scale=(1, 1.0))
def _elu(input: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:  # noqa: A002
    return F.elu(input, alpha)


@rule("functional.elu")
def _elu_of_functional(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: A002
    return F.elu(input, alpha)


@rule("celu", "functional.celu")
def _celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: A002
    return F.elu(input * (1.0 / alpha)) * alpha


@rule("gelu")
def _gelu(input: Tensor, approximate: str = "none") -> Tensor:  # noqa: A002
    return F.gelu(input, approximate=approximate)


@rule("softplus")
def _softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:  # noqa: A002
    scaled = input * beta
    return F.where(scaled > threshold, input, F.softplus(scaled) * (1.0 / beta))


@rule("dropout", is_view=True)  # where it drops nothing PyTorch returns its input
def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: A002
    return F.dropout(input, p, training=training)
