"""What a wheel holds: everything below one name, with imports that fit, and little that is imported before it is needed."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Modules that are imported beside those of Python's own start: as many again would be seen in the time that a start takes (32 and 115 when
# these were set, 0.02 and 0.15 s).
MOST_IMPORTED, MOST_FOR_HELP = 60, 170
HEAVY = {"numpy", "sqlalchemy", "pandas", "matplotlib", "optuna", "torch", "pyarrow", "alembic", "jinja2"}


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lay_out_package", ROOT / "scripts" / "lay_out_package.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like site-packages, which holds the package as a wheel installs it."""
    folder = tmp_path_factory.mktemp("site")
    SCRIPT.lay_out(ROOT, folder)
    return folder


def run_installed(site: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python on the laid out package: the editable finder of this environment would lead to the checkout."""
    hidden = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != 'ScikitBuildRedirectingFinder']\n"
    code = hidden + f"sys.path[:0] = [{str(site)!r}]\n" + "\n".join(words)
    return subprocess.run([sys.executable, "-P", "-c", code], cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


def list_imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
    return found


@pytest.mark.slow
def test_nothing_of_the_package_asks_for_a_general_name(site: Path) -> None:
    assert [p.name for p in site.iterdir()] == ["aicf"]
    sources = [p for p in (site / "aicf").rglob("*.py") if not {"frozen", "templates"} & set(p.parts)]
    assert len(sources) > 300
    assert {str(p): names for p in sources if (names := list_imports(p) & set(SCRIPT.PARTS))} == {}


def test_no_part_is_in_the_way_of_a_module_of_the_framework() -> None:
    assert not [part for part in SCRIPT.PARTS if (ROOT / "aicf" / part).exists() or (ROOT / "aicf" / f"{part}.py").exists()]


MODULES = frozenset({"harness.spec", "harness.commands"})


@pytest.mark.parametrize(
    ("source", "renamed"),
    [
        ("from harness.spec import Op", "from aicf.harness.spec import Op"),
        ("import device", "from aicf import device"),
        ("import harness.spec as s", "import aicf.harness.spec as s"),
        ("def f():\n    from device import open_device", "def f():\n    from aicf.device import open_device"),
        ("x = import_module('harness.commands')", "x = import_module('aicf.harness.commands')"),
        ("raise E('run `python -m harness list`')", "raise E('run `aicf list`')"),
        ("from harnessed import x", "from harnessed import x"),
        ("x = 'harness'", "x = 'harness'"),
        ("from .device import x", "from .device import x"),
    ],
)
def test_names_of_the_parts_are_renamed_and_no_others(source: str, renamed: str) -> None:
    assert SCRIPT.rename(source, MODULES) == renamed


@pytest.mark.parametrize("source", ["import harness.spec", "import os, device"])
def test_what_cannot_be_renamed_is_refused_by_its_line(source: str) -> None:
    with pytest.raises(SCRIPT.UnclearNameError, match=r"^line 2: import"):
        SCRIPT.rename(f"'doc'\n{source}\n", MODULES)


def test_importing_the_framework_imports_none_of_what_it_may_need(site: Path, tmp_path: Path) -> None:
    done = run_installed(site, "before = set(sys.modules)", "import aicf", "print(*(set(sys.modules) - before))", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert not (HEAVY | {"typer", "ctypes"}) & imported and "aicf" in imported
    assert len(imported) <= MOST_IMPORTED


def test_help_lists_all_verbs_and_imports_none(site: Path, tmp_path: Path) -> None:
    lines = (
        "before = set(sys.modules)",
        "import runpy; sys.argv = ['aicf', '--help']",
        "try:\n    runpy.run_module('aicf', run_name='__main__')",
        "except SystemExit: print('\\n#', *(set(sys.modules) - before))",
    )
    done = run_installed(site, *lines, cwd=tmp_path)
    listed, _, modules = done.stdout.partition("\n#")
    assert done.returncode == 0, done.stderr
    verbs = {p.stem for room in ("aicf", "harness") for p in (ROOT / room / "commands").glob("*.py")} - {"__init__", "options"}
    assert verbs <= set(listed.split())
    assert not HEAVY & set(modules.split()) and "aicf.harness.errors" not in modules.split()
    assert len(modules.split()) <= MOST_FOR_HELP


def test_outside_of_a_project_a_verb_says_what_makes_one(site: Path, tmp_path: Path) -> None:
    lines = ("import runpy; sys.argv = ['aicf', 'list']", "runpy.run_module('aicf', run_name='__main__')")
    done = run_installed(site, *lines, cwd=tmp_path)
    assert done.returncode == 2 and "no project here" in done.stderr and "run `aicf init`" in done.stderr, done.stderr


def test_what_was_built_says_the_commit(site: Path, tmp_path: Path) -> None:
    done = run_installed(site, "from aicf.version import find_commit", "print(find_commit())", cwd=tmp_path)
    known = (ROOT / ".git").exists() and os.access(ROOT, os.R_OK)
    assert done.stdout.startswith("commit " if known else "of no known commit"), done.stderr
