"""Who may import whom: the borders between the parts of the project, checked over the syntax tree."""

from __future__ import annotations

import ast
import graphlib
import itertools
import subprocess
import sys
from collections.abc import Mapping
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
# A module that shows users another part under this one's name, and no more: it imports that part's face when it is asked for something.
DOORS = {"aicf/workbench.py": ("aicf", "harness.workbench")}
# What sealed builds need of the device's package; the rest of the contract needs nothing.
CONTRACT_MODULES = ("device.cubin", "device.interface", "device.native", "device.settings", "device.toolchain")
# Rooms within a room, from the lowest to the highest: none imports one that comes after it, not even inside a function.
LADDERS: tuple[tuple[str, ...], ...] = (
    ("harness.freezing.store", "harness.freezing.seal", "harness.freezing.gates", "harness.freezing.decide"),
)
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


def find_ladder_violations(module: str, source: str) -> list[str]:
    """Return the imports by which a module, by its dotted name, reaches up to a room above its own."""
    found = []
    for ladder in LADDERS:
        floor = next((i for i, room in enumerate(ladder) if _is_within(module, room)), len(ladder))
        above = ladder[floor + 1 :]
        found += [f"line {line}: {name}" for line, name in imported_modules(source) if any(_is_within(name, room) for room in above)]
    return found


def _is_within(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def find_op_violations(source: str) -> list[str]:
    """Return the imports by which an ``op.py`` breaks the law: harness.spec, NumPy and the standard library are all it may use."""
    return [f"line {line}: op.py imports {name}" for line, name in imported_modules(source) if not _is_op_module(name)]


def _is_op_module(name: str) -> bool:
    return name.split(".")[0] in sys.stdlib_module_names or any(name == m or name.startswith(m + ".") for m in OP_MODULES)


def _files(folder: str, pattern: str = "**/*.py") -> list[Path]:
    return [path for path in sorted((ROOT / folder).glob(pattern)) if "templates" not in path.parts]


@pytest.mark.parametrize("path", [p for part in ALLOWED for p in _files(part)], ids=lambda p: str(p.relative_to(ROOT)))
def test_part_keeps_the_law(path: Path) -> None:
    part, place = path.relative_to(ROOT).parts[0], str(path.relative_to(ROOT))
    assert find_part_violations(part, path.read_text()) == [] or place in DOORS


@pytest.mark.parametrize("place", DOORS)
def test_a_door_leads_to_one_face_which_nothing_inside_uses(place: str) -> None:
    part, face = DOORS[place]
    found = [name for _, name in imported_modules((ROOT / place).read_text()) if _is_forbidden(part, name)]
    assert found and all(_is_within(name, face) for name in found)
    door = place.removesuffix(".py").replace("/", ".")
    users = [p for p in _files(part) if p.name != "__init__.py" and str(p.relative_to(ROOT)) != place]
    assert [p for p in users for _, name in imported_modules(p.read_text()) if _is_within(name, door)] == []


def test_what_uses_the_framework_does_not_open_the_door() -> None:
    """``import aicf`` needs nothing of the workbench, whose rooms import what takes long."""
    command = [sys.executable, "-c", "import sys, aicf; assert not [m for m in sys.modules if m.split('.')[0] == 'harness']"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("room", [room for ladder in LADDERS for room in ladder])
def test_a_room_reaches_for_none_above_it(room: str) -> None:
    files = _files(room.replace(".", "/"))
    assert files
    found = {str(path.relative_to(ROOT)): find_ladder_violations(room, path.read_text()) for path in files}
    assert {path: faults for path, faults in found.items() if faults} == {}


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
        ("deploy", "from harness.freezing.store import index"),
        ("deploy", "import device"),
        ("deploy", "from aicf.registry import select"),
        ("contract", "from harness.freezing.store import index"),
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
    ("module", "source"),
    [
        ("harness.freezing.store.index", "from harness.freezing.decide import promote"),
        ("harness.freezing.seal.manifest", "def f():\n    import harness.freezing.gates.checks"),
        ("harness.freezing.gates.checks", "from harness.freezing.decide.buckets import find_bucket"),
    ],
)
def test_a_room_that_reaches_up_is_caught(module: str, source: str) -> None:
    assert len(find_ladder_violations(module, source)) == 1
    assert find_ladder_violations("harness.commands.frozen", source) == []


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


# ---- the floors of a part: docs/architecture.md draws them, from the roof to the ground


def read_floors(text: str, part: str) -> dict[str, int]:
    """Return the floor of each room (a module or package right in the part), the ground being 0, from the drawing that begins ``part/``."""
    lines = iter(text.splitlines())
    if not any(line == f"{part}/" for line in lines):
        return {}
    drawn = list(itertools.takewhile(lambda line: line.startswith("  "), lines))
    rows = [line[2:].split("  ")[0].split() for line in drawn]
    return {room: floor for floor, rooms in enumerate(reversed(rows)) for room in rooms}


def find_floor_violations(floors: Mapping[str, int], module: str, source: str) -> list[str]:
    """Return the imports by which a module of a part climbs: to a room on a higher floor, or to another one on its own.

    A part's own ``__init__`` is its face, and shows whatever it likes.
    """
    part, here = [*module.split("."), "__init__"][:2]
    found: list[str] = []
    if here == "__init__":
        return found
    for line, name in [*imported_modules(source), *relative_modules(module, source)]:
        owner, there = [*name.split("."), "__init__"][:2]
        if owner == part and there != here and there in floors and floors[there] >= floors.get(here, -1):
            found.append(f"line {line}: {part}.{here} imports {name}, which is no lower")
    return found


def relative_modules(module: str, source: str) -> list[tuple[int, str]]:
    """Return (line, dotted name) of every relative import of a module that is no package."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*module.split(".")[: -node.level], *([node.module] if node.module else [])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def find_circle(sources: Mapping[str, str]) -> list[str]:
    """Return modules each of which imports the next, and the last the first; none where there is no circle. Imports in functions count."""
    edges = {
        module: {there for _, name in imported_modules(source) if (there := _resolve(name, sources)) is not None and there != module}
        for module, source in sources.items()
    }
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def _resolve(name: str, modules: Mapping[str, str]) -> str | None:
    """Return the module that an imported name is, or lies in."""
    return name if name in modules else next((m for m in (name.rpartition(".")[0],) if m in modules), None)


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
DRAWN_PARTS = ("aicf", "harness")


@pytest.mark.parametrize("part", DRAWN_PARTS)
def test_the_drawing_of_a_part_names_what_lies_in_it(part: str) -> None:
    lying = {p.stem for p in (ROOT / part).iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert set(read_floors(ARCHITECTURE, part)) == lying - {"__init__"}


@pytest.mark.parametrize("path", [p for part in DRAWN_PARTS for p in _files(part)], ids=lambda p: str(p.relative_to(ROOT)))
def test_no_room_imports_one_on_a_higher_floor(path: Path) -> None:
    floors = read_floors(ARCHITECTURE, path.relative_to(ROOT).parts[0])
    assert find_floor_violations(floors, _module_name(path), path.read_text()) == []


@pytest.mark.parametrize("part", ALLOWED)
def test_no_modules_import_each_other_in_a_circle(part: str) -> None:
    assert find_circle({_module_name(path): path.read_text() for path in _files(part)}) == []


FLOORS = {"report": 3, "sweep": 2, "compare": 2, "timing": 1, "errors": 0}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("harness.timing.timer", "from harness.compare.variants import Side"),
        ("harness.timing.timer", "def f():\n    from harness.report import page"),
        ("harness.timing.timer", "if TYPE_CHECKING:\n    from harness import sweep"),
        ("harness.timing.timer", "import importlib\nimportlib.import_module('harness.report.page')"),
        ("harness.timing.timer", "from ..compare import variants"),
        ("harness.compare.goals", "from harness.sweep.points import Point"),  # its own floor, another room
        ("harness.errors", "import harness.timing.stats"),
        ("harness.unknown", "import harness.errors"),  # a room that is not drawn has no floor
    ],
)
def test_a_climbing_liar_is_caught(module: str, source: str) -> None:
    assert len(find_floor_violations(FLOORS, module, source)) == 1


@pytest.mark.parametrize("source", ["from harness.errors import E", "import harness.timing.stats", "from . import goals", "import device"])
def test_an_honest_room_passes(source: str) -> None:
    assert find_floor_violations(FLOORS, "harness.compare.variants", source) == []


def test_a_circle_is_caught_also_inside_a_function() -> None:
    honest = {"p.a": "from p.b import f", "p.b": "import math", "p.c": "from p import a"}
    assert find_circle(honest) == []
    assert set(find_circle(honest | {"p.b": "def f():\n    from p.c import g"})) == {"p.a", "p.b", "p.c"}


def test_a_drawing_is_read_from_the_roof_to_the_ground() -> None:
    text = "words\n```\nharness/\n  report        pictures\n  a b           words of it\n  errors        more\n```\n"
    assert read_floors(text, "harness") == {"report": 2, "a": 1, "b": 1, "errors": 0}
    assert read_floors(text, "aicf") == {}


def test_the_face_of_a_part_may_show_every_room() -> None:
    assert find_floor_violations(FLOORS, "harness", "from harness.report import page") == []
