"""Operators of PyTorch by name: what each means in this package's functions."""

from aicf.frontends.torch_rules import activations, elementwise, layers, shapes
from aicf.frontends.torch_rules.table import RULES, Rule

__all__ = ["RULES", "Rule", "activations", "elementwise", "layers", "shapes"]
