"""The floors inside of ``aicf``: a room imports those below it alone, also inside functions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "aicf"
# From the ground up. A file of a room imports its own room and those before it.
FLOORS = (
    "errors",
    "kernels",
    "registry",
    "opset",
    "ops",
    "ir",
    "backends",
    "modes",
    "autograd",
    "operators",
    "tensor",
    "random",
    "functional",
    "nn",
    "optim",
    "data",
    "state",
    "frontends",
    "passes",
    "plan",
    "runtime",
    "train",
    "version",
    "commands",
    "__main__",
    "workbench",
)
# What is data or pure knows no device.
PURE = ("opset", "ir", "passes", "plan", "modes", "autograd", "nn", "optim", "frontends", "data", "state")
# The public face names everything; it imports a module when one of its names is first used.
FACE = "__init__"


def find_room(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def find_imports(source: str) -> list[tuple[int, str]]:
    """Return (line, dotted name) of each import that is made when the code runs: what is there for type checkers alone is not."""
    tree = ast.parse(source)
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def find_violations(room: str, source: str) -> list[str]:
    below = FLOORS[: FLOORS.index(room) + 1]
    wrong = []
    for line, name in find_imports(source):
        parts = name.split(".")
        if parts[0] == "aicf" and len(parts) > 1 and parts[1] in FLOORS and parts[1] not in below:
            wrong.append(f"line {line}: {room} imports {name}, which is above it")
        if parts[0] == "device" and room in PURE:
            wrong.append(f"line {line}: {room} knows no device, and imports {name}")
    return wrong


FILES = [path for path in sorted(ROOT.rglob("*.py")) if find_room(path) != FACE]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_what_is_below_it(path: Path) -> None:
    assert find_violations(find_room(path), path.read_text()) == []


def test_every_room_has_a_floor() -> None:
    assert {find_room(path) for path in FILES} == set(FLOORS)


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("ir", "from aicf.passes import PASSES"),
        ("opset", "import aicf.tensor"),
        ("plan", "def f():\n    from aicf.runtime import make_executor"),
        ("passes", "from device import open_device"),
        ("autograd", "from aicf.tensor import Tensor"),
    ],
)
def test_a_liar_is_caught(room: str, source: str) -> None:
    assert len(find_violations(room, source)) == 1


def test_types_alone_may_come_from_above() -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from aicf.tensor import Tensor\n"
    assert find_violations("autograd", source) == []
