"""Who may import whom: the borders between the parts of the project, checked over the syntax tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.discover import find_description
from tests.source_tree import PARTS, ROOT, imported_modules, list_files, list_hidden_imports

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
# Functions that import the project, by file, and why that import is not at the top. A circle is no reason: it is broken where it begins.
_HELP = "`aicf --help` answers without importing a verb, NumPy or the device"
_STARTUP = "the processes that measure start while their parent imports this, which takes seconds"
_MATPLOTLIB = "matplotlib takes a second to import, and few calls draw"
_TUNERS = "whole processes are timed, each with the imports of one tuner"
HIDDEN_IMPORTS: dict[tuple[str, str], str] = {
    ("aicf/__main__.py", "_take_options"): _HELP,
    ("aicf/__main__.py", "report_errors"): _HELP,
    ("aicf/__main__.py", "main"): _HELP,
    ("aicf/ops/functions.py", "_open_torch_ops"): "imports PyTorch, which only those have who use it",
    ("aicf/workbench.py", "_open"): "the door to the workbench, which opens when a user asks for it",
    ("contract/layout.py", "_find_project"): "deploy runs on a Python without NumPy, which the device's package needs",
    ("harness/doctor.py", "_look_at_records"): "doctor says that SQLAlchemy is missing, and so runs without it",
    ("harness/records/__init__.py", "load"): "pandas takes a second to import, and every verb imports the records",
    ("harness/sweep/startup.py", "prepare_process"): _STARTUP,
    ("harness/sweep/startup.py", "_build_binding"): _STARTUP,
    ("harness/sweep/startup.py", "_build_instruments"): _STARTUP,
    ("harness/verbs/sweep.py", "sweep"): _STARTUP,
    ("harness/verbs/compare.py", "_draw_goals"): _MATPLOTLIB,
    ("harness/verbs/compare.py", "_draw"): _MATPLOTLIB,
    ("harness/verbs/report.py", "write_report"): _MATPLOTLIB,
    ("ops/gemm_bias_act/peers.py", "__init__"): "needs Triton, which only this peer needs",
    ("ops/gemm_bias_act/peers.py", "_open_cutlass"): "needs CUTLASS, which only this peer needs",
    ("profiles/tuning/tuners.py", "tune_with_kernel_tuner"): _TUNERS,
    ("profiles/tuning/tuners.py", "tune_with_sweep"): _TUNERS,
    ("profiles/tuning/tuners.py", "compare_winners"): _TUNERS,
    ("scripts/compile_imports.py", "main"): "imports what it compiles",
    ("tests/emulator/counters/compare_counters.py", "find_toolchain"): "`profile` runs on machines that do not have the project",
    ("tests/emulator/counters/compare_counters.py", "open_emulated"): "`profile` runs on machines that do not have the project",
}
# An op is judged by file: peers and tests may use more than the description itself.
OP_MODULES = frozenset({"harness.spec", "numpy"})


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


@pytest.mark.parametrize("path", [p for part in ALLOWED for p in list_files(part)], ids=lambda p: str(p.relative_to(ROOT)))
def test_part_keeps_the_law(path: Path) -> None:
    part, place = path.relative_to(ROOT).parts[0], str(path.relative_to(ROOT))
    assert find_part_violations(part, path.read_text()) == [] or place in DOORS


@pytest.mark.parametrize("place", DOORS)
def test_a_door_leads_to_one_face_which_nothing_inside_uses(place: str) -> None:
    part, face = DOORS[place]
    found = [name for _, name in imported_modules((ROOT / place).read_text()) if _is_forbidden(part, name)]
    assert found and all(_is_within(name, face) for name in found)
    door = place.removesuffix(".py").replace("/", ".")
    users = [p for p in list_files(part) if p.name != "__init__.py" and str(p.relative_to(ROOT)) != place]
    assert [p for p in users for _, name in imported_modules(p.read_text()) if _is_within(name, door)] == []


def test_what_uses_the_framework_does_not_open_the_door() -> None:
    """``import aicf`` needs nothing of the workbench, whose rooms import what takes long."""
    command = [sys.executable, "-c", "import sys, aicf; assert not [m for m in sys.modules if m.split('.')[0] == 'harness']"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("room", [room for ladder in LADDERS for room in ladder])
def test_a_room_reaches_for_none_above_it(room: str) -> None:
    files = list_files(room.replace(".", "/"))
    assert files
    found = {str(path.relative_to(ROOT)): find_ladder_violations(room, path.read_text()) for path in files}
    assert {path: faults for path, faults in found.items() if faults} == {}


def _descriptions() -> list[Path]:
    return [path for folder in (ROOT / "ops").iterdir() if (folder / "op.py").is_file() for path in find_description(folder)]


@pytest.mark.parametrize("path", _descriptions(), ids=lambda p: str(p.relative_to(ROOT)))
def test_op_keeps_the_law(path: Path) -> None:
    assert find_op_violations(path.read_text()) == []


def test_the_law_has_files_to_judge() -> None:
    assert list_files("device")
    assert list_files("harness")
    assert list_files("aicf")
    assert list_files("ops", "*/op.py")


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


@pytest.mark.parametrize("part", [part for part in PARTS if part != "frozen"])
def test_only_functions_with_a_reason_import_the_project(part: str) -> None:
    found = {(str(path.relative_to(ROOT)), function) for path in list_files(part) for function, _ in list_hidden_imports(path.read_text())}
    assert found == {place for place in HIDDEN_IMPORTS if place[0].startswith(f"{part}/")}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from harness.spec import Op", "harness.spec.Op"),
        ("import device.settings", "device.settings"),
        ("from ..timing import timer", "..timing"),
        ("importlib.import_module('aicf.ops')", "aicf.ops"),
    ],
)
def test_a_hidden_import_is_found_with_its_innermost_function(line: str, name: str) -> None:
    source = f"import aicf\nclass C:\n    def f(self):\n        import math\n        def g():\n            {line}\n        return g\n"
    assert list(list_hidden_imports(source)) == [("g", name)]
