"""The drawings of docs/architecture.md beside the tree: every room is drawn, no room imports one on a higher floor, and no circles."""

from __future__ import annotations

import graphlib
import itertools
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.source_tree import ROOT, imported_modules, list_files, name_module, relative_modules

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
# Parts that are drawn as floors, from the roof to the ground; and folders whose drawing only names what lies in them.
FLOORED = ("aicf", "contract", "deploy", "device", "harness")
LISTED = ("examples", "frozen", "notebooks", "ops", "profiles", "scripts", "tests")
# Stands in a drawing for every op: a new op changes no drawing.
ANY_OP = "<op>"


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


def find_circle(sources: Mapping[str, str]) -> list[str]:
    """Return modules each of which imports the next, and the last the first; none where there is no circle. Imports in functions count."""
    edges = {}
    for module, source in sources.items():
        named = [_resolve(name, sources) for _, name in [*imported_modules(source), *relative_modules(module, source)]]
        edges[module] = {there for there in named if there is not None and there != module}
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def _resolve(name: str, modules: Mapping[str, str]) -> str | None:
    """Return the module that an imported name is, or lies in."""
    return name if name in modules else next((m for m in (name.rpartition(".")[0],) if m in modules), None)


def list_rooms(tracked: Iterable[str], part: str, ops: Iterable[str]) -> set[str]:
    """Return what lies right in a part: modules by their names, other files and folders as they are, ops as one."""
    names = {path.split("/")[1] for path in tracked if path.startswith(f"{part}/")} - {"__init__.py"}
    rooms = {name.removesuffix(".py") for name in names}
    return rooms if part in FLOORED or not rooms & set(ops) else rooms - set(ops) | {ANY_OP}


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Paths of all files of the repository."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in listed if (ROOT / name).is_file()]


@pytest.mark.parametrize("part", [*FLOORED, *LISTED])
def test_the_drawing_of_a_part_names_what_lies_in_it(part: str, tracked: list[str]) -> None:
    ops = {path.parent.name for path in (ROOT / "ops").glob("*/op.py")}
    assert set(read_floors(ARCHITECTURE, part)) == list_rooms(tracked, part, ops)


def test_a_room_that_is_not_drawn_is_found() -> None:
    paths = ["device/__init__.py", "device/elf.py", "device/emulator/a.cpp", "device/run.c", "ops/gemm/op.py", "ops/common/a.h"]
    assert list_rooms(paths, "device", ["gemm"]) == {"elf", "emulator", "run.c"}
    assert list_rooms(paths, "ops", ["gemm"]) == {ANY_OP, "common"}
    assert list_rooms([*paths, "ops/new/notes.md"], "ops", ["gemm"]) == {ANY_OP, "common", "new"}


@pytest.mark.parametrize("path", [p for part in FLOORED for p in list_files(part)], ids=lambda p: str(p.relative_to(ROOT)))
def test_no_room_imports_one_on_a_higher_floor(path: Path) -> None:
    floors = read_floors(ARCHITECTURE, path.relative_to(ROOT).parts[0])
    assert find_floor_violations(floors, name_module(path), path.read_text()) == []


@pytest.mark.parametrize("part", [*FLOORED, "ops", "profiles", "scripts", "tests"])
def test_no_modules_import_each_other_in_a_circle(part: str) -> None:
    assert find_circle({name_module(path): path.read_text() for path in list_files(part)}) == []


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
    for line in ("from p.c import g", "from .c import g"):
        assert set(find_circle(honest | {"p.b": f"def f():\n    {line}"})) == {"p.a", "p.b", "p.c"}


def test_a_drawing_is_read_from_the_roof_to_the_ground() -> None:
    text = "words\n```\nharness/\n  report        pictures\n  a b           words of it\n  errors        more\n```\n"
    assert read_floors(text, "harness") == {"report": 2, "a": 1, "b": 1, "errors": 0}
    assert read_floors(text, "aicf") == {}


def test_the_face_of_a_part_may_show_every_room() -> None:
    assert find_floor_violations(FLOORS, "harness", "from harness.report import page") == []
