"""The project's Python sources and what each of them imports, read from the syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("aicf", "contract", "deploy", "device", "frozen", "harness", "notebooks", "ops", "profiles", "scripts", "tests")


def imported_modules(source: str) -> list[tuple[int, str]]:
    """Return (line, dotted name) of every absolute import, also those inside functions and by import_module with a literal."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__", "find_spec"):
            found += [(node.lineno, arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return found


def relative_modules(module: str, source: str) -> list[tuple[int, str]]:
    """Return (line, dotted name) of every relative import of a module that is no package."""
    found = []
    for node in ast.walk(ast.parse(source)):
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
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    # The innermost function of a line is the last one that begins before it and ends behind it.
    for line, name in imported_modules(source) + _relative_imports(tree):
        within = [f for f in functions if f.lineno <= line <= (f.end_lineno or f.lineno)]
        if within and name.split(".")[0] in ("", *PARTS):
            yield max(within, key=lambda f: f.lineno).name, name


def _relative_imports(tree: ast.Module) -> list[tuple[int, str]]:
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level]
    return [(n.lineno, "." * n.level + (n.module or "")) for n in nodes]
