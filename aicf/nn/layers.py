"""Layers with parameters, and dropout. New parameters are drawn from the default generator: ``aicf.manual_seed`` repeats them."""

from __future__ import annotations

import math

import numpy as np

from aicf import functional as F
from aicf.nn.module import Module, Parameter
from aicf.random import Generator, find_generator
from aicf.tensor import Tensor


class Linear(Module):
    """``y = x weight' + bias``: x [..., in_features], weight [out_features, in_features], drawn from +-1/sqrt(in_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = 1.0 / math.sqrt(max(in_features, 1))
        self.weight = Parameter(find_generator().uniform((out_features, in_features), -bound, bound))
        self.bias = Parameter(find_generator().uniform((out_features,), -bound, bound)) if bias else None

    @property
    def in_features(self) -> int:
        """How many features go in: what the weight says, which a rewrite may change."""
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        """How many features come out."""
        return self.weight.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """Return the product."""
        return F.linear(x, self.weight, self.bias)

    def describe(self) -> str:
        """Return the sizes."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axis, times weight, plus bias."""

    def __init__(self, features: int, eps: float = 1e-5) -> None:
        self.eps = eps
        self.weight = Parameter(np.ones(features, np.float32))
        self.bias = Parameter(np.zeros(features, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised rows."""
        return F.layer_norm(x, self.weight, self.bias, self.eps)

    def describe(self) -> str:
        """Return the size."""
        return f"{self.weight.shape[0]}, eps={self.eps}"


class RMSNorm(Module):
    """Root mean square 1 over the last axis, times weight."""

    def __init__(self, features: int, eps: float = 1e-6) -> None:
        self.eps = eps
        self.weight = Parameter(np.ones(features, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised rows."""
        return F.rms_norm(x, self.weight, self.eps)

    def describe(self) -> str:
        """Return the size."""
        return f"{self.weight.shape[0]}, eps={self.eps}"


class Embedding(Module):
    """Rows of a table [count, features] by index, normally distributed at first."""

    def __init__(self, count: int, features: int, deviation: float = 1.0) -> None:
        self.weight = Parameter(find_generator().normal((count, features), deviation))

    def forward(self, indices: Tensor) -> Tensor:
        """Return a row per index."""
        return F.embedding(self.weight, indices)

    def describe(self) -> str:
        """Return the sizes."""
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


class Dropout(Module):
    """Sets elements to zero with probability p while training; its masks come from a generator's counter."""

    def __init__(self, p: float = 0.5, generator: Generator | None = None) -> None:
        self.p, self.generator = p, generator

    def forward(self, x: Tensor) -> Tensor:
        """Return the elements that stay, over 1 - p."""
        return F.dropout(x, self.p, training=self.training, generator=self.generator)

    def describe(self) -> str:
        """Return the probability."""
        return f"p={self.p}"
