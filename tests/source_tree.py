"""The project's Python sources and what each of them imports, read from the syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("aicf", "contract", "deploy", "device", "frozen", "harness", "notebooks", "ops", "profiles", "scripts", "tests")


@cache
def _list_nodes(source: str) -> tuple[ast.AST, ...]:
    """Return the nodes of a source that an import may be or lie in; several laws are about each file."""
    kinds = (ast.Import, ast.ImportFrom, ast.Call, ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))


def _name_called(function: ast.expr) -> str:
    """Return the last part of what is called, "" where that is no name."""
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def imported_modules(source: str) -> list[tuple[int, str]]:
    """Return (line, dotted name) of every absolute import, also those inside functions and by import_module with a literal."""
    found: list[tuple[int, str]] = []
    for node in _list_nodes(source):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and _name_called(node.func) in ("import_module", "__import__", "find_spec"):
            found += [(node.lineno, arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return found


def relative_modules(module: str, source: str) -> list[tuple[int, str]]:
    """Return (line, dotted name) of every relative import of a module that is no package."""
    found = []
    for node in _list_nodes(source):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*module.split(".")[: -node.level], *([node.module] if node.module else [])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def list_files(folder: str, pattern: str = "**/*.py") -> list[Path]:
    """Return a folder's sources; templates are not sources yet."""
    return [path for path in sorted((ROOT / folder).glob(pattern)) if "templates" not in path.parts]


def name_module(path: Path) -> str:
    """Return the dotted name of a source."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def list_hidden_imports(source: str) -> Iterator[tuple[str, str]]:
    """Yield (function, dotted name) of every import of the project inside a function, also by import_module with a literal."""
    functions = [n for n in _list_nodes(source) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    # The innermost function of a line is the last one that begins before it and ends behind it.
    for line, name in imported_modules(source) + _relative_imports(source):
        if name.split(".")[0] not in ("", *PARTS):
            continue
        within = [f for f in functions if f.lineno <= line <= (f.end_lineno or f.lineno)]
        if within:
            yield max(within, key=lambda f: f.lineno).name, name


def _relative_imports(source: str) -> list[tuple[int, str]]:
    nodes = [n for n in _list_nodes(source) if isinstance(n, ast.ImportFrom) and n.level]
    return [(n.lineno, "." * n.level + (n.module or "")) for n in nodes]
