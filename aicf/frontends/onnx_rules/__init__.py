"""Operators of ONNX by name: what each means in this package's functions."""

from aicf.frontends.onnx_rules import elementwise, products, shapes
from aicf.frontends.onnx_rules.settings import RULES, Function, Rule, Settings

__all__ = ["RULES", "Function", "Rule", "Settings", "elementwise", "products", "shapes"]
