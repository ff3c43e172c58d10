"""Grids, blocks and restrictions of a loose kernel: formulas as text, or Python functions translated into them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.errors import SpecError
from harness.loose.functions import write_expression
from harness.spec.formulas import Formula

# A number, a formula, or a function of sizes and tunables by their names.
FormulaLike = int | str | Callable[..., Any]
_GRAMMAR = "use + - * //, %, brackets, whole numbers, min, max and ceil_div of two"


class Symbol:
    """Stands for a number while a function runs, and remembers what the function did with it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __add__(self, other: Any) -> Symbol:
        return _combine(self, "+", other)

    def __radd__(self, other: Any) -> Symbol:
        return _combine(other, "+", self)

    def __sub__(self, other: Any) -> Symbol:
        return _combine(self, "-", other)

    def __rsub__(self, other: Any) -> Symbol:
        return _combine(other, "-", self)

    def __mul__(self, other: Any) -> Symbol:
        return _combine(self, "*", other)

    def __rmul__(self, other: Any) -> Symbol:
        return _combine(other, "*", self)

    def __floordiv__(self, other: Any) -> Symbol:
        return _combine(self, "//", other)

    def __rfloordiv__(self, other: Any) -> Symbol:
        return _combine(other, "//", self)

    def __mod__(self, other: Any) -> Symbol:
        return _combine(self, "%", other)

    def __rmod__(self, other: Any) -> Symbol:
        return _combine(other, "%", self)

    def __neg__(self) -> Symbol:
        return Symbol(f"(-{self.text})")

    def __truediv__(self, other: Any) -> Ratio:
        return Ratio(self, other)

    def __rtruediv__(self, other: Any) -> Ratio:
        return Ratio(other, self)

    def __bool__(self) -> bool:
        raise SpecError("it decides by a size or a tunable, which a formula cannot: use min, max or ceil_div in a text")

    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: bool(self)


class Ratio:
    """A quotient that is to be rounded: ``math.ceil(n / threads)`` and ``math.floor`` of it."""

    def __init__(self, over: Any, under: Any) -> None:
        self._over, self._under = over, under

    def __ceil__(self) -> Symbol:
        return Symbol(f"ceil_div({_write(self._over)}, {_write(self._under)})")

    def __floor__(self) -> Symbol:
        return _combine(self._over, "//", self._under)


def _write(value: Any) -> str:
    if isinstance(value, Symbol):
        return value.text
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise SpecError(f"it comes to {value!r}, which is not a whole number; divide with //, or round with math.ceil")


def _combine(left: Any, sign: str, right: Any) -> Symbol:
    return Symbol(f"({_write(left)} {sign} {_write(right)})")


def ceil_div(over: Any, under: Any) -> Any:
    """Return ``over / under`` rounded up, of numbers or inside a function for a grid."""
    if isinstance(over, Symbol) or isinstance(under, Symbol):
        return Symbol(f"ceil_div({_write(over)}, {_write(under)})")
    return -(-over // under)


def read_formulas(what: str, given: FormulaLike | Sequence[FormulaLike], names: Iterable[str]) -> tuple[str, ...]:
    """Return one to three formulas as texts, of ``names`` alone; raises SpecError that names ``what`` and the remedy."""
    known = sorted(names)
    listed = _call(what, given, known) if callable(given) else given
    parts = tuple(listed) if isinstance(listed, Sequence) and not isinstance(listed, str) else (listed,)
    if not 1 <= len(parts) <= 3:
        raise SpecError(f"{what} has {len(parts)} parts: give x, (x, y) or (x, y, z)")
    return tuple(read_formula(what, part, known) for part in parts)


def read_formula(what: str, given: Any, names: Iterable[str]) -> str:
    """Return a formula as text, of ``names`` alone."""
    known = sorted(names)
    if callable(given):
        given = _call(what, given, known)
    text = given if isinstance(given, str) else _explain(what, _write, given)
    try:
        Formula(text)
    except SpecError as error:
        raise SpecError(f"{what} {text!r} is not a formula: {_GRAMMAR}") from error
    if unknown := sorted({n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)} - {*known, "min", "max", "ceil_div"}):
        raise SpecError(f"{what} {text!r} asks for {unknown[0]}, which is neither a size nor a tunable (there are: {', '.join(known)})")
    return text


def _call(what: str, function: Callable[..., Any], known: Sequence[str]) -> Any:
    """Return what a function comes to with symbols for its parameters."""
    parameters = list(inspect.signature(function).parameters)
    if unknown := [p for p in parameters if p not in known]:
        raise SpecError(f"{what}: its function has parameter {unknown[0]}, neither a size nor a tunable (there are: {', '.join(known)})")
    return _explain(what, function, *(Symbol(p) for p in parameters))


def _explain(what: str, function: Callable[..., Any], *values: Any) -> Any:
    try:
        return function(*values)
    except (SpecError, TypeError) as error:
        raise SpecError(f"{what} cannot be made a formula: {error}; write it as text ({_GRAMMAR})") from error


# ---- restrictions


_COMPARABLE = (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Name, ast.Constant, ast.Load, ast.boolop, ast.unaryop, ast.operator)


def read_restriction(given: str | Callable[..., Any], tunables: Mapping[str, str]) -> tuple[str, str]:
    """Return what a restriction says, and the Python expression of ``t`` (values by the tunables' own names) that decides it.

    ``tunables`` are names by what the user calls them. A function takes tunables by their names, or all of them as one dict.
    """
    what = "restrictions"
    if callable(given):
        said, expression = write_expression(what, given)
        tree: ast.expr = expression.body
        parameters = [a.arg for a in expression.args.args]
        if len(parameters) == 1 and parameters[0] not in tunables:
            return said, ast.unparse(_RenameKeys(parameters[0], tunables).visit(tree))
    else:
        said = str(given)
        try:
            tree = ast.parse(said, mode="eval").body
        except SyntaxError as error:
            raise SpecError(f"{what}: {said!r} is not an expression ({error.msg}); write e.g. 'bm * bn <= 1024'") from error
        parameters = sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)})
        if odd := [n for n in ast.walk(tree) if not isinstance(n, (*_COMPARABLE, ast.cmpop))]:
            raise SpecError(f"{what}: {said!r} has {type(odd[0]).__name__}: use numbers, tunables, + - * // %, comparisons, and, or, not")
    if unknown := [p for p in parameters if p not in tunables]:
        raise SpecError(f"{what}: {said!r} asks for {unknown[0]}, which is not a tunable (there are: {', '.join(tunables)})")
    return said, ast.unparse(RenameNames(tunables).visit(tree))


class RenameNames(ast.NodeTransformer):
    """Makes ``bm`` into ``t["bm"]``."""

    def __init__(self, tunables: Mapping[str, str]) -> None:
        self._tunables = tunables

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a name."""
        if node.id not in self._tunables:
            return node
        return ast.Subscript(ast.Name("t", ast.Load()), ast.Constant(self._tunables[node.id]), ast.Load())


class _RenameKeys(ast.NodeTransformer):
    """Makes ``p["block_size_x"]`` into ``t["blocksizex"]``."""

    def __init__(self, parameter: str, tunables: Mapping[str, str]) -> None:
        self._parameter, self._tunables = parameter, tunables

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Constant) and isinstance(node.value, ast.Name) and node.value.id == "t":
            if node.slice.value not in self._tunables:
                raise SpecError(f"restrictions: there is no tunable {node.slice.value!r} (there are: {', '.join(self._tunables)})")
            return ast.Subscript(node.value, ast.Constant(self._tunables[str(node.slice.value)]), ast.Load())
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("t", ast.Load()) if node.id == self._parameter else node
