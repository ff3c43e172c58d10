"""Modules that rewriting puts into networks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from aicf.backends import find_backend
from aicf.nn import GELU, LayerNorm, Linear, Module, Parameter, ReLU, RMSNorm, Sigmoid, SiLU, Tanh
from aicf.tensor import Tensor

# Activations by their names in rules.
ACTIVATIONS: dict[str, Callable[[], Module]] = {
    "relu": ReLU,
    "gelu": GELU,
    "gelu_tanh": lambda: GELU("tanh"),
    "silu": SiLU,
    "tanh": Tanh,
    "sigmoid": Sigmoid,
}

# Activations' names in rules by those of the elementwise functions that they are.
FUNCTIONS = {"relu": "relu", "gelu_erf": "gelu", "gelu_tanh": "gelu_tanh", "silu": "silu", "tanh": "tanh", "sigmoid": "sigmoid"}

# Norms by their names in rules, each of a number of features.
NORMS: dict[str, Callable[[int], Module]] = {"layer": LayerNorm, "rms": RMSNorm}


class Residual(Module):
    """``x + down(activation(up(x)))``."""

    def __init__(self, up: Linear, activation: Module, down: Linear) -> None:
        self.up, self.activation, self.down = up, activation, down

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        change: Tensor = self.down(self.activation(self.up(x)))
        return x + change


class GatedNorm(Module):
    """``x + gate (norm(x) - x)``, with a gate per feature of the last axis, zero at first."""

    def __init__(self, norm: Module, features: int) -> None:
        self.norm, self.gate = norm, make_parameter(np.zeros(features, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Return what lies between the input and its norm."""
        change: Tensor = self.norm(x) - x
        return x + self.gate * change


class Identity(Module):
    """Its input: what is left of a block that was removed."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the input."""
        return x


def make_linear(weight: NDArray[np.floating], bias: NDArray[np.floating] | Parameter | None) -> Linear:
    """Return a linear layer of these parameters, in host memory."""
    made = Linear.__new__(Linear)
    made.weight = make_parameter(weight)
    made.bias = bias if bias is None or isinstance(bias, Parameter) else make_parameter(bias)
    return made


def make_parameter(values: NDArray[np.floating]) -> Parameter:
    """Return a parameter in host memory."""
    return Parameter.wrap(np.ascontiguousarray(values), find_backend("numpy")).require_grad()


def name_activation(module: Module) -> str:
    """Return an activation's name in rules, empty for another module."""
    if isinstance(module, GELU):
        return "gelu_tanh" if module.approximate == "tanh" else "gelu"
    return next((name for name, make in ACTIVATIONS.items() if isinstance(make, type) and type(module) is make), "")
