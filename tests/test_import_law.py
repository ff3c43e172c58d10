"""Who may import whom: the borders between the parts of the project, checked over the syntax tree."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from harness.discover import find_description

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("aicf", "contract", "deploy", "device", "frozen", "harness", "notebooks", "ops", "profiles", "scripts", "tests")
# What a part may import of the project's other parts.
ALLOWED: dict[str, frozenset[str]] = {
    "aicf": frozenset({"contract", "device"}),
    "contract": frozenset({"device"}),
    "deploy": frozenset({"contract"}),
    "device": frozenset(),
    "harness": frozenset({"contract", "device"}),
}
# What sealed builds need of the device's package; the rest of the contract needs nothing.
CONTRACT_MODULES = ("device.cubin", "device.interface", "device.native", "device.settings", "device.toolchain")
# An op is judged by file: peers and tests may use more than the description itself.
OP_MODULES = frozenset({"harness.spec", "numpy"})


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


def find_part_violations(part: str, source: str) -> list[str]:
    """Return the imports by which a file of ``part`` breaks the law."""
    return [f"line {line}: {part} imports {name}" for line, name in imported_modules(source) if _is_forbidden(part, name)]


def _is_forbidden(part: str, name: str) -> bool:
    owner = name.split(".")[0]
    if part == "contract" and owner == "device":
        return not name.startswith(tuple(f"{module}." for module in CONTRACT_MODULES))
    return owner in set(PARTS) - ALLOWED[part] - {part}


def find_op_violations(source: str) -> list[str]:
    """Return the imports by which an ``op.py`` breaks the law: harness.spec, NumPy and the standard library are all it may use."""
    return [f"line {line}: op.py imports {name}" for line, name in imported_modules(source) if not _is_op_module(name)]


def _is_op_module(name: str) -> bool:
    return name.split(".")[0] in sys.stdlib_module_names or any(name == m or name.startswith(m + ".") for m in OP_MODULES)


def _files(folder: str, pattern: str = "**/*.py") -> list[Path]:
    return [path for path in sorted((ROOT / folder).glob(pattern)) if "templates" not in path.parts]


@pytest.mark.parametrize("path", [p for part in ALLOWED for p in _files(part)], ids=lambda p: str(p.relative_to(ROOT)))
def test_part_keeps_the_law(path: Path) -> None:
    part = path.relative_to(ROOT).parts[0]
    assert find_part_violations(part, path.read_text()) == []


def _descriptions() -> list[Path]:
    return [path for folder in (ROOT / "ops").iterdir() if (folder / "op.py").is_file() for path in find_description(folder)]


@pytest.mark.parametrize("path", _descriptions(), ids=lambda p: str(p.relative_to(ROOT)))
def test_op_keeps_the_law(path: Path) -> None:
    assert find_op_violations(path.read_text()) == []


def test_the_law_has_files_to_judge() -> None:
    assert _files("device")
    assert _files("harness")
    assert _files("aicf")
    assert _files("ops", "*/op.py")


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("aicf", "import harness"),
        ("aicf", "from harness.spec import Op"),
        ("aicf", "def f():\n    from ops.softmax import op"),
        ("aicf", "import deploy.selection"),
        ("device", "from aicf.registry import select"),
        ("harness", "import aicf.ir"),
        ("harness", "import importlib\nimportlib.import_module('aicf')"),
        ("harness", "from ops.softmax.op import OP"),
        ("deploy", "from harness.freezing import reading"),
        ("deploy", "import device"),
        ("deploy", "from aicf.registry import select"),
        ("contract", "from harness.freezing import reading"),
        ("contract", "from device import open_device"),
        ("contract", "import aicf.errors"),
        ("device", "from contract.documents import parse_json"),
        ("device", "import harness.spec as spec"),
        ("device", "from aicf import tensor"),
        ("device", "if True:\n    import tests.conftest"),
    ],
)
def test_a_liar_is_caught(part: str, source: str) -> None:
    assert len(find_part_violations(part, source)) == 1


@pytest.mark.parametrize(
    "source", ["import torch", "from harness.build.builder import build", "import harness", "import device", "from ops import softmax"]
)
def test_a_lying_op_is_caught(source: str) -> None:
    assert len(find_op_violations(source)) == 1


@pytest.mark.parametrize("source", ["import numpy as np", "from harness.spec import Op", "import math", "from numpy.typing import NDArray"])
def test_an_honest_op_passes(source: str) -> None:
    assert find_op_violations(source) == []


def test_honest_parts_pass() -> None:
    assert find_part_violations("harness", "import device\nfrom device.settings import Settings\nimport numpy\nfrom . import spec") == []
    assert find_part_violations("aicf", "from device import open_device\nfrom contract.layout import INDEX\nimport aicf.ir") == []
    assert find_part_violations("contract", "from device.toolchain import find_toolchain\nfrom contract import layout") == []
    assert find_part_violations("deploy", "from contract.frozen_set import read_op") == []


def test_deploy_needs_the_standard_library_alone() -> None:
    """CMake may find a Python that has nothing installed; without ``site``, this one has not either."""
    command = [sys.executable, "-S", "-c", "import sys, deploy.__main__; assert not {'numpy', 'jsonschema', 'device'} & sys.modules.keys()"]
    done = subprocess.run(command, cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
