"""Formulas over sizes and integer attributes: one text, evaluated here and translated to C.

They have ``+ - * // %``, brackets, whole numbers, names, and ``min``, ``max`` and ``ceil_div`` of two. ``//`` rounds down, as in Python.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.errors import SpecError


def _divide_up(a: int, b: int) -> int:
    return -(-a // b)


_OPERATORS: Mapping[type[ast.operator], tuple[Callable[[int, int], int], str]] = {
    ast.Add: (lambda a, b: a + b, "({} + {})"),
    ast.Sub: (lambda a, b: a - b, "({} - {})"),
    ast.Mult: (lambda a, b: a * b, "({} * {})"),
    ast.FloorDiv: (lambda a, b: a // b, "aicf::divide_down({}, {})"),
    ast.Mod: (lambda a, b: a % b, "aicf::find_modulus({}, {})"),
}
_FUNCTIONS: Mapping[str, tuple[Callable[[int, int], int], str]] = {
    "min": (min, "aicf::find_min({}, {})"),
    "max": (max, "aicf::find_max({}, {})"),
    "ceil_div": (_divide_up, "-aicf::divide_down(-{}, {})"),
}


@dataclass(frozen=True)
class Formula:
    """A formula; raises :class:`SpecError` for a text that is none."""

    text: str

    def __post_init__(self) -> None:
        _translate(self._parse(), lambda name: name)

    def _parse(self) -> ast.expr:
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            raise SpecError(f"formula {self.text!r}: {error.msg}") from error

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return the formula's value; raises :class:`SpecError` for a division by zero, and for a name without a value."""
        try:
            return _evaluate(self._parse(), values)
        except KeyError as error:
            raise SpecError(f"formula {self.text!r} asks for {error.args[0]}, which is neither a size nor an integer attribute") from error
        except ZeroDivisionError as error:
            raise SpecError(f"formula {self.text!r} divides by zero") from error

    def to_c(self, rename: Callable[[str], str]) -> str:
        """Return the formula in C++, with each name replaced; what divides is in ``common/contract.hpp``."""
        return _translate(self._parse(), rename)


def _evaluate(node: ast.expr, values: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant):
        return int(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return int(values[node.id])
    if isinstance(node, ast.UnaryOp):
        return -_evaluate(node.operand, values)
    function, (left, right) = _take_apart(node)
    return function[0](_evaluate(left, values), _evaluate(right, values))


def _translate(node: ast.expr, rename: Callable[[str], str]) -> str:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return str(node.value)
    if isinstance(node, ast.Name):
        return rename(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return f"(-{_translate(node.operand, rename)})"
    function, (left, right) = _take_apart(node)
    return function[1].format(_translate(left, rename), _translate(right, rename))


def _take_apart(node: ast.expr) -> tuple[tuple[Callable[[int, int], int], str], tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)], (node.left, node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and len(node.args) == 2:
        return _FUNCTIONS[node.func.id], (node.args[0], node.args[1])
    raise SpecError(f"formula part {ast.unparse(node)!r}: use + - * // %, brackets, whole numbers, names, min, max and ceil_div of two")
