"""Formulas over an op's sizes: sums of products, or any formula in postfix order; both become steps of ``decide.h``.

A sum is ``[[coefficient, [size, ...]], ...]``. A postfix formula is ``{"postfix": [token, ...]}``: a number, the name of a size, or one of
:data:`OPERATORS`, which takes the last numbers, as many as it needs. Numbers are float64, so that ``//`` is exact up to 2^53.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contract.decision_structs import MAX_STACK, AicfStep
from contract.errors import FrozenError

PUSH_NUMBER, PUSH_SIZE, _FIRST_OPERATOR = 0, 1, 2
# In the order of the header's codes. "-//" is a division rounded up: -(-a // b) in Python.
OPERATORS: Mapping[str, Callable[..., float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: float(math.floor(a / b)),
    "-//": lambda a, b: float(math.ceil(a / b)),
    "min()": min,
    "max()": max,
    "<": lambda a, b: float(a < b),
    "?:": lambda condition, a, b: a if condition else b,
}
_NUM_OPERANDS = {name: 3 if name == "?:" else 2 for name in OPERATORS}
_CODES = {name: _FIRST_OPERATOR + i for i, name in enumerate(OPERATORS)}
Tokens = Sequence[float | str]


def list_tokens(formula: Any) -> list[float | str]:
    """Return a formula in postfix order; that of an empty sum is empty, and counts as 0."""
    if isinstance(formula, Mapping):
        return list(formula["postfix"])
    tokens: list[float | str] = []
    for number, (coefficient, names) in enumerate(formula):
        tokens.append(float(coefficient))
        for name in names:
            tokens += [name, "*"]
        if number > 0:
            tokens.append("+")
    return tokens


def check_tokens(tokens: Tokens, sizes: Sequence[str]) -> None:
    """Raise :class:`FrozenError` unless the tokens are empty or leave one number, with a stack of at most :data:`MAX_STACK`."""
    depth = 0
    for token in tokens:
        if isinstance(token, str) and token in OPERATORS:
            if depth < _NUM_OPERANDS[token]:
                raise FrozenError(f"a formula's {token!r} has fewer than {_NUM_OPERANDS[token]} numbers before it")
            depth -= _NUM_OPERANDS[token] - 1
            continue
        if isinstance(token, str) and token not in sizes:
            raise FrozenError(f"a formula names {token!r}, which is neither a size ({', '.join(sizes)}) nor one of {', '.join(OPERATORS)}")
        depth += 1
        if depth > MAX_STACK:
            raise FrozenError(f"a formula keeps more than {MAX_STACK} numbers at once: write it as sums that are added one by one")
    if tokens and depth != 1:
        raise FrozenError(f"a formula leaves {depth} numbers, must leave one")


def make_steps(tokens: Tokens, sizes: Sequence[str]) -> list[AicfStep]:
    """Return the steps of a formula; raises :class:`FrozenError` for one that is none."""
    check_tokens(tokens, sizes)
    steps = []
    for token in tokens:
        if not isinstance(token, str):
            steps.append(AicfStep(PUSH_NUMBER, 0, float(token)))
        elif token in _CODES:
            steps.append(AicfStep(_CODES[token], 0, 0.0))
        else:
            steps.append(AicfStep(PUSH_SIZE, sizes.index(token), 0.0))
    return steps


def evaluate(tokens: Tokens, sizes: Mapping[str, int]) -> float:
    """Return a formula's value, 0 for an empty one, as the core finds it."""
    stack: list[float] = []
    for token in tokens:
        if not isinstance(token, str):
            stack.append(float(token))
        elif token in OPERATORS:
            operands = stack[-_NUM_OPERANDS[token] :]
            del stack[-_NUM_OPERANDS[token] :]
            stack.append(OPERATORS[token](*operands))
        else:
            stack.append(float(sizes[token]))
    return stack[0] if stack else 0.0
