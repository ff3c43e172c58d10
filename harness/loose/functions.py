"""Python functions as self-contained text, so that an ``op.py`` can hold what a notebook defined.

What a function uses of its module or of an enclosing function comes with it: modules as imports, numbers and texts as constants, other
functions as text of their own.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from harness.errors import SpecError

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass
class Written:
    """What a text needs before it, each once: imports, constants, and other functions, in the order in which they were found."""

    imports: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    def add_function(self, what: str, function: Callable[..., Any], name: str) -> None:
        """Take a function in under a name; raises SpecError that names ``what``, the thing that cannot be written, and the remedy."""
        if not isinstance(function, FunctionType):
            self._add_import_of(what, function, name)
            return
        if name in self.functions:
            return
        self.functions[name] = ""  # it may call itself
        self._add_names(what, function)
        # What it calls comes before it.
        del self.functions[name]
        self.functions[name] = write_function(what, function, name)

    def _add_import_of(self, what: str, function: Callable[..., Any], name: str) -> None:
        module, place = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
        if not module or module == "builtins" or "." in place or "<" in place:
            raise SpecError(f"{what}: {function!r} has no source; wrap it in a function: def {name}(...): return ...")
        self.imports[name] = f"from {module} import {place}" + (f" as {name}" if place != name else "")

    def _add_names(self, what: str, function: FunctionType) -> None:
        found = inspect.getclosurevars(function)
        used = _list_names(function.__code__)
        for name, value in {**found.globals, **found.nonlocals}.items():
            if name in used or name in found.nonlocals:
                self._add_value(what, function, name, value)

    def _add_value(self, what: str, function: FunctionType, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            self.imports[name] = f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else "")
        elif _is_plain(value):
            self.constants[name] = f"{name} = {value!r}"
        elif isinstance(value, FunctionType) and not _is_installed(value):
            self.add_function(what, value, name)
        elif callable(value) and getattr(value, "__module__", None) not in (None, "__main__", "builtins"):
            self._add_import_of(what, value, name)
        else:
            raise SpecError(
                f"{what}: {function.__name__}() uses {name}, which is {type(value).__name__}: an op holds numbers, texts, tuples of them, "
                "modules and functions; pass it as an argument, or compute it inside"
            )


def write_function(what: str, function: FunctionType, name: str) -> str:
    """Return a function's own text under a name; a lambda becomes a function."""
    node = _find_node(what, function)
    if isinstance(node, ast.Lambda):
        return f"def {name}({ast.unparse(node.args)}):\n    return {ast.unparse(node.body)}"
    lines = _read_lines(what, function)[node.lineno - 1 : node.end_lineno]
    text = textwrap.dedent("\n".join(lines))
    return text.replace(f"def {node.name}(", f"def {name}(", 1)


def write_expression(what: str, function: Callable[..., Any]) -> tuple[str, ast.Lambda]:
    """Return a function of one expression as its text and as a lambda; raises SpecError for one of several statements."""
    if not isinstance(function, FunctionType):
        raise SpecError(f"{what}: {function!r} has no source; write it as a text or a lambda")
    node = _find_node(what, function)
    outside = inspect.getclosurevars(function)
    if names := [n for n, v in {**outside.globals, **outside.nonlocals}.items() if not _is_plain(v)]:
        raise SpecError(f"{what}: {function.__name__} uses {names[0]}: it may use only tunables, numbers and strings")
    if isinstance(node, ast.FunctionDef):
        body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
            raise SpecError(f"{what}: {function.__name__}() has several statements; write one return, or a text such as 'bm * bn <= 1024'")
        node = ast.Lambda(node.args, body[0].value)
    known: Mapping[str, Any] = {**outside.globals, **outside.nonlocals}
    found = _PutIn(known).visit(ast.parse(ast.unparse(node), mode="eval").body)
    return ast.unparse(found.body), found


class _PutIn(ast.NodeTransformer):
    """Puts the values of outer names in their place."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(repr(self._values[node.id]), mode="eval").body if node.id in self._values else node


def _find_node(what: str, function: FunctionType) -> ast.FunctionDef | ast.Lambda:
    """Return the syntax tree of a function by where its code begins; several lambdas of a line are told apart by their columns."""
    code = function.__code__
    lines = _read_lines(what, function)
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError as error:
        raise SpecError(f"{what}: the source of {function.__name__} cannot be read; define it in a file or a cell of Python") from error
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    if code.co_name == "<lambda>":
        starts = {(line, column) for line, _, column, _ in code.co_positions() if line is not None and column is not None}
        found: list[ast.FunctionDef | ast.Lambda] = [
            n for n in nodes if isinstance(n, ast.Lambda) and any((m.lineno, m.col_offset) in starts for m in _list_body(n))
        ]
        # Of nested ones the innermost that holds the code.
        found.sort(key=lambda n: (n.lineno, n.col_offset), reverse=True)
    else:
        found = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == code.co_name and _begins(n) == code.co_firstlineno]
    if not found:
        raise SpecError(f"{what}: the source of {function.__name__} cannot be found; define it in a file or a notebook cell")
    return found[0]


def _list_body(node: ast.Lambda) -> list[ast.expr]:
    return [n for n in ast.walk(node.body) if isinstance(n, ast.expr)]


def _begins(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _read_lines(what: str, function: FunctionType) -> list[str]:
    name = function.__code__.co_filename
    linecache.checkcache(name)
    lines = linecache.getlines(name, function.__globals__)
    if not lines:
        raise SpecError(f"{what}: the source of {function.__name__} cannot be found; define it in a file or a notebook cell")
    return [line.rstrip("\n") for line in lines]


def _list_names(code: CodeType) -> set[str]:
    """Return the names that code looks up outside of itself, also in the functions that it holds."""
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*(_list_names(c) for c in inner))


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(_is_plain(v) for v in value))


def _is_installed(function: FunctionType) -> bool:
    return "site-packages" in function.__code__.co_filename or function.__module__.split(".")[0] in ("numpy", "math", "harness")
