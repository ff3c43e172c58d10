"""Tracing a function of sizes: called with symbols instead of numbers, it returns the formula that it computes.

Arithmetic of symbols is written down. A comparison takes part in control flow (``if``, ``min``, ``max``), so the function is called once
for either outcome, and the formulas that come of it are joined: by a minimum or maximum where that is what differs, else by a selection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from contract.formulas import OPERATORS

MAX_CASES = 32
_MAX_POWER = 8


class TracingError(ValueError):
    """The function does something with a size that is no formula; the message says what."""


@dataclass(frozen=True)
class Node:
    """A part of a formula: a number, the name of a size, or an operator (a key of :data:`OPERATORS`) with its operands."""

    value: float | str
    operands: tuple[Node, ...] = ()

    def list_tokens(self) -> list[float | str]:
        """Return the formula in postfix order."""
        return [*(token for operand in self.operands for token in operand.list_tokens()), self.value]

    @property
    def is_number(self) -> bool:
        """Whether it is a number."""
        return not isinstance(self.value, str)


def _apply(operator: str, *operands: Node) -> Node:
    if all(o.is_number for o in operands):
        numbers = [float(o.value) for o in operands]
        try:
            return Node(OPERATORS[operator](*numbers))
        except ArithmeticError as error:
            raise TracingError(f"computes {operator!r} of {numbers}: {error}") from error
    return Node(operator, operands)


class Symbol:
    """What stands for a number while a function is traced."""

    __slots__ = ("_cases", "node")
    __hash__ = None  # type: ignore[assignment]  # equality asks for a case

    def __init__(self, node: Node, cases: _Cases) -> None:
        self.node = node
        self._cases = cases

    def __repr__(self) -> str:
        return f"<{' '.join(map(str, self.node.list_tokens()))}>"

    def _combine(self, operator: str, other: Any, *, is_right: bool = False) -> Symbol:
        if not isinstance(other, (int, float, Symbol)):
            raise TracingError(f"combines a size with {other!r}")
        node = other.node if isinstance(other, Symbol) else Node(_check_number(other))
        return Symbol(_apply(operator, *((node, self.node) if is_right else (self.node, node))), self._cases)

    def __add__(self, other: Any) -> Symbol:
        return self._combine("+", other)

    def __radd__(self, other: Any) -> Symbol:
        # sum() begins with 0.
        return self if other == 0 else self._combine("+", other, is_right=True)

    def __sub__(self, other: Any) -> Symbol:
        return self._combine("-", other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._combine("-", other, is_right=True)

    def __mul__(self, other: Any) -> Symbol:
        return self._combine("*", other)

    def __rmul__(self, other: Any) -> Symbol:
        return self._combine("*", other, is_right=True)

    def __truediv__(self, other: Any) -> Symbol:
        return self._combine("/", other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._combine("/", other, is_right=True)

    def __floordiv__(self, other: Any) -> Symbol:
        return self._combine("//", other)

    def __rfloordiv__(self, other: Any) -> Symbol:
        return self._combine("//", other, is_right=True)

    def __mod__(self, other: Any) -> Symbol:
        return self._combine("-", self._combine("//", other)._combine("*", other))

    def __neg__(self) -> Symbol:
        value, operands = self.node.value, self.node.operands
        if value == "//" and operands[0].value == "-" and operands[0].operands[0] == Node(0.0):
            return Symbol(_apply("-//", operands[0].operands[1], operands[1]), self._cases)  # -(-a // b)
        return Symbol(_apply("-", Node(0.0), self.node), self._cases)

    def __pos__(self) -> Symbol:
        return self

    def __pow__(self, power: Any) -> Symbol:
        if type(power) is not int or not 1 <= power <= _MAX_POWER:
            raise TracingError(f"raises a size to the power {power!r}: whole numbers from 1 to {_MAX_POWER} are understood")
        found = self
        for _ in range(power - 1):
            found = found * self
        return found

    def __floor__(self) -> Symbol:
        return self // 1

    def __ceil__(self) -> Symbol:
        return Symbol(_apply("-//", self.node, Node(1.0)), self._cases)

    def _is_below(self, other: Any, *, is_right: bool = False) -> bool:
        return self._cases.decide(self._combine("<", other, is_right=is_right).node)

    def __lt__(self, other: Any) -> bool:
        return self._is_below(other)

    def __gt__(self, other: Any) -> bool:
        return self._is_below(other, is_right=True)

    def __le__(self, other: Any) -> bool:
        return not self._is_below(other, is_right=True)

    def __ge__(self, other: Any) -> bool:
        return not self._is_below(other)

    def __eq__(self, other: object) -> bool:
        return self <= other and self >= other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self != 0

    def __float__(self) -> float:
        raise TracingError("makes a plain number of a size, with float() or a function of math: leave float() out, Cost takes any number")

    def __int__(self) -> int:
        raise TracingError("makes a whole number of a size, with int(): write a division as // instead")

    def __index__(self) -> int:
        raise TracingError("counts to a size, with range() say, or indexes by it: write the sum as a formula")

    def __round__(self, digits: int | None = None) -> int:
        raise TracingError("rounds a size with round(): write // or -(-a // b) instead")


def _check_number(value: float) -> float:
    if not math.isfinite(value):
        raise TracingError(f"computes with {value!r}")
    return float(value)


class _Cases:
    """Outcomes of the comparisons that one call of the function asks for: the first are given, further ones are true."""

    def __init__(self, sizes: Mapping[str, Node], given: tuple[bool, ...]) -> None:
        self._sizes = set(sizes.values())
        self._given = given
        self.taken: dict[Node, bool] = {}

    def decide(self, comparison: Node) -> bool:
        """Return the outcome of ``a < b``."""
        if comparison.is_number:
            return comparison.value != 0.0
        left, right = comparison.operands
        # Sizes are at least 1.
        if left in self._sizes and right.is_number and float(right.value) <= 1.0:
            return False
        if right in self._sizes and left.is_number and float(left.value) < 1.0:
            return True
        if comparison not in self.taken:
            if len(self.taken) >= MAX_CASES:
                raise TracingError(f"compares sizes more than {MAX_CASES} times in one call")
            number = len(self.taken)
            self.taken[comparison] = self._given[number] if number < len(self._given) else True
        return self.taken[comparison]


def trace(function: Callable[[Mapping[str, Any]], Any], sizes: tuple[str, ...]) -> Node:
    """Return the formula that a function of sizes computes; raises :class:`TracingError` where it is none."""
    nodes = {name: Node(name) for name in sizes}
    num_calls = 0

    def explore(given: tuple[bool, ...]) -> Node:
        nonlocal num_calls
        num_calls += 1
        if num_calls > 2 * MAX_CASES:
            raise TracingError(f"tells more than {MAX_CASES} cases apart")
        cases = _Cases(nodes, given)
        value = function({name: Symbol(node, cases) for name, node in nodes.items()})
        if len(cases.taken) == len(given):
            if not isinstance(value, (int, float, Symbol)):
                raise TracingError(f"gives {value!r}, which is not a number")
            return value.node if isinstance(value, Symbol) else Node(_check_number(value))
        comparison = list(cases.taken)[len(given)]
        return _join(comparison, explore((*given, True)), explore((*given, False)))

    return explore(())


def _join(comparison: Node, then: Node, otherwise: Node) -> Node:
    """Return the formula that is ``then`` where a comparison holds, else ``otherwise``."""
    found = _find_extremum(comparison, then, otherwise)
    return Node("?:", (comparison, then, otherwise)) if found is None else found


def _find_extremum(comparison: Node, then: Node, otherwise: Node) -> Node | None:
    """Return both formulas as one where they differ in the lesser or the greater of what was compared alone, None where they do not."""
    left, right = comparison.operands
    if then == otherwise:
        return then
    if (then, otherwise) == (left, right):
        return _apply("min()", left, right)
    if (then, otherwise) == (right, left):
        return _apply("max()", left, right)
    if then.value != otherwise.value or not then.operands or len(then.operands) != len(otherwise.operands):
        return None
    operands = []
    for one, other in zip(then.operands, otherwise.operands, strict=True):
        found = _find_extremum(comparison, one, other)
        if found is None:
            return None
        operands.append(found)
    return Node(then.value, tuple(operands))
