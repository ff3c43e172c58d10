"""The repository as a whole: its commands, its documents, and the rule that settings are read in one place."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from device.settings import PREFIX, VARIABLES

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
DOCUMENTS = (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("ops/*/README.md"), *ROOT.glob("device/**/README.md"))
SETTINGS = ROOT / "device" / "settings.py"
SOURCES = [path for part in ("aicf", "device", "harness") for path in sorted((ROOT / part).rglob("*.py")) if path != SETTINGS]


def run_make(*args: str) -> subprocess.CompletedProcess[str]:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    # What an outer make was given on its command line is not for this one.
    environ = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "op")}
    return subprocess.run([make, *args], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)


def test_help_lists_every_public_target_with_what_it_does() -> None:
    done = run_make("help")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    phony = {
        target for line in re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE) for target in line.split() if not target.startswith("$")
    }
    phony |= set(re.findall(r"^OP_VERBS := (.+)$", MAKEFILE, re.MULTILINE)[0].split())
    listed = {line.split()[0] for line in done.stdout.splitlines() if re.match(r"  [a-z]+ +\S", line)}
    assert listed == phony


@pytest.mark.parametrize("verb", ["bench", "build", "new", "verify"])
def test_a_verb_without_an_op_is_wrong_use_with_a_hint(verb: str) -> None:
    done = run_make(verb)
    assert done.returncode == 2
    assert f"make op=NAME {verb}" in done.stderr


def test_a_verb_hands_its_words_to_the_harness() -> None:
    done = run_make("--dry-run", "op=softmax", "verify", "variant=naive warp", "problem=R3_C5", "args=--json")
    assert done.returncode == 0
    assert "-m harness verify softmax --variant 'naive' --variant 'warp' --problem 'R3_C5' --json" in done.stdout


def test_a_given_interpreter_installs_nothing() -> None:
    done = run_make("--dry-run", "python=/opt/python", "op=softmax", "bench")
    assert done.stdout.strip().startswith("/opt/python -m harness bench softmax")
    assert "install" not in done.stdout


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose)
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert missing == []


def test_the_map_in_the_readme_names_every_folder() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    folders = {name.split("/")[0] for name in listed if "/" in name and not name.startswith(".")}
    rows = (ROOT / "README.md").read_text().partition("## Where things are")[2]
    assert set(re.findall(r"^\| \[(\w+)/\]\(\1/\) \|", rows, re.MULTILINE)) == folders


# Parts of the project whose files and modules documents name, and words that stand for a name.
_NAMED = r"aicf|contract|deploy|device|docs|examples|frozen|harness|notebooks|ops|profiles|scripts|tests"
_PLACEHOLDERS = {"my_op", "scale_shift", "OP", "NAME"}


def find_missing_paths(text: str) -> list[str]:
    """Return the paths of the project that a document names in code (`harness/build/store.py`) and that do not exist."""
    named = [path for path in re.findall(rf"`((?:{_NAMED})/[\w./-]*)`", text) if not _PLACEHOLDERS & set(path.split("/"))]
    return [path for path in named if not (ROOT / path).exists()]


def find_missing_names(text: str) -> list[str]:
    """Return the modules and what is in them (`harness.records.load`) that a document names in code and that do not exist."""
    return [name for name in re.findall(rf"`((?:{_NAMED})(?:\.\w+)+)(?:`|\()", text) if not _is_there(name)]


def _is_there(name: str) -> bool:
    # Installed, the parts lie inside the framework's package.
    parts = re.sub(r"^aicf\.(?=(contract|deploy|device|harness)\b)", "", name).split(".")
    if len(parts) == 1:
        return (ROOT / parts[0]).is_dir()
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:count])
        source = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
        if source.is_file():
            return all(re.search(rf"\b{rest}\b", source.read_text()) for rest in parts[count : count + 1])
    return False


@pytest.mark.parametrize("path", [p for p in DOCUMENTS if p.name != "CHANGELOG.md"], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_modules_that_documents_name_are_there(path: Path) -> None:
    assert find_missing_paths(path.read_text()) + find_missing_names(path.read_text()) == []


def test_a_name_of_what_is_gone_is_found() -> None:
    paths = "`harness/gone/run.py`, `harness/build/store.py`, `ops/my_op/op.py`"
    text = f"{paths}, `harness.gone`, `harness.records.load(OP)`, `device.open_device`"
    assert find_missing_paths(text) == ["harness/gone/run.py"]
    assert find_missing_names(text) == ["harness.gone"]


def test_the_documented_variables_are_those_that_are_read() -> None:
    documented = re.findall(r"^\| `(AICF_[\w*]+)` \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    assert documented == [variable.name for variable in VARIABLES]


def find_environment_reads(source: str) -> list[str]:
    """Return the names of the project's variables that a source reads from the environment by itself."""
    names: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.getenv", "os.environ.get", "environ.get", "getenv"):
            names += node.args[:1]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("os.environ", "environ") and isinstance(node.ctx, ast.Load):
            names.append(node.slice)
    literals = [name.value for name in names if isinstance(name, ast.Constant)]
    return [str(name) for name in literals if str(name).startswith(PREFIX)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_our_variables_are_read_in_the_settings_alone(path: Path) -> None:
    assert find_environment_reads(path.read_text()) == []


def test_a_read_of_the_environment_is_noticed() -> None:
    source = "import os\na = os.environ['AICF_X']\nb = os.getenv('AICF_Y')\nos.environ['AICF_Z'] = os.environ['HOME']"
    assert find_environment_reads(source) == ["AICF_X", "AICF_Y"]


def test_requirements_are_listed_by_part() -> None:
    def list_parts(*parts: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "scripts" / "list_requirements.py"), *parts]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    base = list_parts("base").stdout.split()
    assert "nvidia-cuda-nvcc==13.0.88" in base
    assert list_parts("base", "cuda").stdout.split() == [*base, "cupy-cuda13x>=14,<15", "nvidia-cuda-runtime==13.0.*"]
    assert any(line.startswith("scikit-build-core") for line in list_parts("build").stdout.split())
    assert list_parts("nothing").returncode != 0


def test_what_verbs_import_can_be_compiled_when_the_environment_is_made() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "compile_imports.py")], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_fresh_bench_without_a_gpu_builds_what_bench_takes() -> None:
    def read_options(*args: str) -> str:
        done = run_make("--dry-run", "--eval=FIRST: ; @echo $(FIRST_LOOK)", "FIRST", "op=gemm_bias_act", "GPU=", *args)
        return done.stdout.strip().removeprefix("echo").strip()

    assert read_options("bench").startswith("--first-look")
    assert not read_options("bench", "args=--all").startswith("--first-look")
