"""Lay out what a wheel installs: everything below one name, ``aicf``, with imports renamed to fit.

In the repository the parts (``harness``, ``device``, ``contract``, ``deploy``) are packages of their own beside ``aicf``; in site-packages
such general names would be in the way of other people's. A wheel has them inside ``aicf``, each beside the others as here, so that
whatever lies beside a part (the frozen set, shared headers) is found in the same way. CMake runs this file when it installs into a wheel.
It needs the standard library alone.

    python scripts/lay_out_package.py ROOT DESTINATION
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

PACKAGE = "aicf"
PARTS = ("contract", "deploy", "device", "harness")
# Data that code finds beside the parts: what is copied, and which files of it.
DATA = {"frozen": "**/*", "ops/common": "**/*", "profiles": "*/drawn.json"}
SKIPPED = {"__pycache__", "emulator"}
# What a user types: in the repository a module, installed a console script.
_COMMANDS = (("python -m harness ", "aicf "), ("python -m aicf ", "aicf "), ("python -m device ", "python -m aicf.device "))


class UnclearNameError(ValueError):
    """A source names a part in a way that cannot be renamed."""


def rename(source: str, modules: frozenset[str]) -> str:
    """Return a module's source as it stands below :data:`PACKAGE`; lines keep their numbers.

    Imports of the parts are renamed, strings that are the dotted name of one of ``modules``, and commands in texts. Raises
    :class:`UnclearNameError` with the line of an import that binds a part's bare name along a dotted path (``import harness.spec``).
    """
    lines = source.splitlines(keepends=True)
    edits: dict[tuple[int, int], tuple[str, str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and _is_part(node.module):
            edits[node.lineno, node.col_offset] = (f"from {node.module} ", f"from {PACKAGE}.{node.module} ")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_part(alias.name):
                    edits[node.lineno, node.col_offset] = _rename_import(node, alias)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in modules:
            edits[node.lineno, node.col_offset] = (node.value, f"{PACKAGE}.{node.value}")
    for (number, column), (old, new) in edits.items():
        # Columns count bytes.
        head, tail = (part.decode() for part in (lines[number - 1].encode()[:column], lines[number - 1].encode()[column:]))
        if old not in tail:
            raise UnclearNameError(f"line {number}: {old.strip()!r} does not stand on one line as it is written; write it so")
        lines[number - 1] = head + tail.replace(old, new, 1)
    text = "".join(lines)
    for old, new in _COMMANDS:
        text = text.replace(old, new)
    return text


def _is_part(name: str) -> bool:
    return name.split(".")[0] in PARTS


def _rename_import(node: ast.Import, alias: ast.alias) -> tuple[str, str]:
    if len(node.names) > 1:
        raise UnclearNameError(f"line {node.lineno}: import {alias.name} stands with others; give it a line of its own")
    if alias.asname:
        return f"import {alias.name} as ", f"import {PACKAGE}.{alias.name} as "
    if "." in alias.name:
        raise UnclearNameError(
            f"line {node.lineno}: import {alias.name} binds {alias.name.split('.')[0]}: write from {alias.name} import ..."
        )
    return f"import {alias.name}", f"from {PACKAGE} import {alias.name}"


def list_files(root: Path) -> Iterator[tuple[Path, Path]]:
    """Return every file that is installed, with its place below the package's folder."""
    for part in (PACKAGE, *PARTS):
        for path in sorted((root / part).rglob("*")):
            inside = path.relative_to(root / part)
            if path.is_file() and not SKIPPED & set(inside.parts):
                yield path, inside if part == PACKAGE else part / inside
    for folder, pattern in DATA.items():
        for path in sorted((root / folder).glob(pattern)):
            if path.is_file() and not any(p.startswith(".") or p in SKIPPED for p in path.relative_to(root).parts):
                yield path, path.relative_to(root)


def list_modules(root: Path) -> frozenset[str]:
    """Return the dotted names of the parts' modules and packages."""
    paths = [p.relative_to(root) for part in PARTS for p in (root / part).rglob("*.py")]
    names = {".".join(p.with_suffix("").parts).removesuffix(".__init__") for p in paths}
    return frozenset(name for name in names | {n.rpartition(".")[0] for n in names} if "." in name)


def lay_out(root: Path, destination: Path) -> None:
    """Write the package to ``destination/aicf``; raises :class:`UnclearNameError` naming file and line of what cannot be renamed."""
    modules = list_modules(root)
    for path, place in list_files(root):
        target = destination / PACKAGE / place
        target.parent.mkdir(parents=True, exist_ok=True)
        is_code = path.suffix == ".py" and place.parts[0] not in DATA and "templates" not in place.parts
        if not is_code:
            shutil.copyfile(path, target)
            continue
        try:
            target.write_text(rename(path.read_text(encoding="utf-8"), modules), encoding="utf-8")
        except UnclearNameError as error:
            raise UnclearNameError(f"{path}: {error}") from None
    (destination / PACKAGE / "py.typed").touch()
    (destination / PACKAGE / "built.json").write_text(json.dumps(describe_build(root)) + "\n")


def describe_build(root: Path) -> dict[str, str]:
    """Return the commit that is built ("" where git knows none) and when."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        inside = subprocess.run(["git", "-C", str(root), "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False)
    except OSError:
        return {"commit": "", "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    is_own = inside.returncode == 0 and Path(inside.stdout.strip()).resolve() == root.resolve()
    commit = done.stdout.strip() if is_own and re.fullmatch(r"[0-9a-f]{12,40}(-dirty)?", done.stdout.strip()) else ""
    return {"commit": commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"}


if __name__ == "__main__":
    try:
        lay_out(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
    except UnclearNameError as error:
        sys.exit(str(error))
