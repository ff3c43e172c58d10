"""Structures as text, ``"gate 32 relu res32tanh"``: modules that are made of them for any number of inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from aicf import functional as F
from aicf.nn import LayerNorm, Linear, Module, Parameter, Sequential
from aicf.random import find_generator
from aicf.rewrite.blocks import ACTIVATIONS, Residual
from aicf.tensor import Tensor


class Sine(Module):
    """The sine of ``scale x``."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """Return the sine."""
        return F.sin(x if self.scale == 1.0 else x * self.scale)


class Steep(Module):
    """``sigmoid(5 x)``: a soft step."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the steps."""
        return F.sigmoid(x * 5.0)


class Product(Module):
    """``(A x + a) (B x + b)``: each unit multiplies two sums; with a ``gate`` the second goes through sigmoid first."""

    def __init__(self, inputs: int, outputs: int, gate: bool = False) -> None:
        self.left, self.right, self.gate = Linear(inputs, outputs), Linear(inputs, outputs), gate

    def forward(self, x: Tensor) -> Tensor:
        """Return the products."""
        right = self.right(x)
        made: Tensor = self.left(x) * (F.sigmoid(right) if self.gate else right)
        return made


class Each(Module):
    """Units of one input each: ``f(w x_i + b)``, x [rows, inputs] to [rows, inputs * units]; a sum of them is an additive function."""

    def __init__(self, inputs: int, units: int, activation: Module) -> None:
        self.weight = Parameter(find_generator().normal((inputs, units), 1.5))
        self.bias = Parameter(find_generator().uniform((inputs, units), -1.5, 1.5))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Return the units."""
        return F.flatten(self.activation(F.unsqueeze(x, (2,)) * self.weight + self.bias), 1)


class Gate(Module):
    """A trained factor for each input."""

    def __init__(self, inputs: int) -> None:
        self.weight = Parameter(np.ones(inputs, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Return the inputs times their factors."""
        return x * self.weight


class Skip(Module):
    """``inner(x) + W x + b``."""

    def __init__(self, inner: Module, inputs: int, outputs: int) -> None:
        self.inner, self.straight = inner, Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        made: Tensor = self.inner(x) + self.straight(x)
        return made


_FUNCTIONS: dict[str, Callable[[], Module]] = {**ACTIVATIONS, "sin": Sine, "sin3": lambda: Sine(3.0), "steep": Steep}
_WORD = re.compile(r"(?P<kind>res|each|mul|glu|)(?P<size>\d+)(?P<function>[a-z_]\w*)?$")

# What a corpus tries: from linear to products, each with few parameters.
STRUCTURES: tuple[str, ...] = (
    "",
    "8 relu",
    "64 relu",
    "16 relu 16 relu",
    "64 relu 64 relu",
    "32 relu 32 relu 32 relu 32 relu",
    "32 tanh",
    "32 tanh 32 tanh",
    "32 gelu_tanh 32 gelu_tanh",
    "32 res32relu res32relu",
    "32 norm relu 32 norm relu",
    "32 res32silu norm res32silu norm",
    "2 32 relu 32 relu",
    "1 32 tanh",
    "3 32 sin",
    "32 sin",
    "32 sin3",
    "32 sin3 32 relu",
    "32 sin 32 sin",
    "mul16",
    "mul16 mul16",
    "mul16 32 relu",
    "glu32 glu32",
    "each8relu",
    "each6sin",
    "each8steep",
    "each6sin 32 relu",
    "each8steep 32 relu",
    "each4tanh mul16",
    "48 steep",
    "32 steep 32 relu",
    "gate 32 relu 32 relu",
    "skip 32 tanh",
)


def make_structure(text: str, inputs: int, outputs: int) -> Module:
    """Return a new module of a structure; its last layer is linear, and is not written.

    Words: ``32`` a linear layer, an activation's name (also ``sin``, ``sin3``, ``steep``), ``norm``, ``res32relu`` a residual block,
    ``mul16`` products of two sums, ``glu32`` gated sums, ``each8relu`` units of one input each, ``gate`` factors of the inputs, and at the
    beginning ``skip`` for a linear layer beside all others. Raises ValueError for another word.
    """
    words = text.split()
    is_beside, words = words[:1] == ["skip"], words[words[:1] == ["skip"] :]
    layers: list[Module] = []
    width = inputs
    for word in words:
        made, width = _make_layer(word, width, text)
        layers.append(made)
    inner = Sequential(*layers, Linear(width, outputs))
    return Skip(inner, inputs, outputs) if is_beside else inner


def _make_layer(word: str, width: int, text: str) -> tuple[Module, int]:
    """Return a word's module for so many features, and how many it makes."""
    if word in _FUNCTIONS:
        return _FUNCTIONS[word](), width
    if word in ("norm", "gate"):
        return (LayerNorm if word == "norm" else Gate)(width), width
    found = _WORD.match(word)
    kind, function = (found["kind"], found["function"]) if found else ("?", None)
    size = int(found["size"]) if found else 0
    if size and kind in ("res", "each") and function in _FUNCTIONS:
        if kind == "each":
            return Each(width, size, _FUNCTIONS[function]()), width * size
        return Residual(Linear(width, size), _FUNCTIONS[function](), Linear(size, width)), width
    if size and kind in ("mul", "glu", "") and function is None:
        return (Linear(width, size) if not kind else Product(width, size, kind == "glu")), size
    raise ValueError(
        f"structure {text!r}: {word!r} is not a layer; expected one like 32, relu, norm, res32relu, mul16, glu32, each8relu or gate"
    )
