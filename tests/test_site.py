"""The documentation as a site: its commands are run by tests, its options exist, and its links lead somewhere."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer

from aicf.__main__ import build_app
from tests.installed.pages import DOCS, ROOT, Shape, find_shape, list_blocks, list_commands
from tests.installed.tour import BESIDE, ELSEWHERE, INSTALL, NEW_OP, PAGES

ALL_PAGES = sorted(DOCS.rglob("*.md"))
COMMANDS = [(page, command) for page in ALL_PAGES for command in list_commands(page)]


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> set[Shape]:
    pages = (*PAGES, NEW_OP.write(tmp_path_factory.mktemp("pages") / "new_op.md"))
    return {find_shape(c) for c in (*BESIDE, *(c for page in pages for c in list_commands(page)))}


def test_every_command_of_every_page_is_run_by_a_test(followed: set[Shape]) -> None:
    left = {str(shape): command for _, command in COMMANDS if (shape := find_shape(command)) not in followed}
    assert {shape: command for shape, command in left.items() if shape not in ELSEWHERE} == {}
    assert set(ELSEWHERE) == set(left), "a row of ELSEWHERE stands for a command that is on a page"
    assert {find_shape(c) for c in BESIDE} <= {find_shape(c) for _, c in COMMANDS}
    assert INSTALL in list_commands(PAGES[0])


@pytest.mark.parametrize("test", sorted(set(ELSEWHERE.values())))
def test_a_test_that_stands_for_a_command_is_there(test: str) -> None:
    path, name = test.split("::")
    assert f"\ndef {name}(" in (ROOT / path).read_text()


@cache
def list_options(verb: str) -> frozenset[str]:
    command = typer.main.get_command(build_app([verb])).commands[verb]  # type: ignore[attr-defined]
    return frozenset(name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts))


@pytest.mark.parametrize("shape", sorted({s for _, c in COMMANDS if (s := find_shape(c)).is_ours}, key=str), ids=str)
def test_the_options_of_a_command_exist(shape: Shape) -> None:
    assert shape.options <= list_options(shape.verb.split()[0])


@pytest.mark.parametrize(
    ("command", "shape"),
    [
        ("make op=softmax promote variant=naive/threads64 args='--dry-run --json'   # words", "promote --dry-run --json --variant"),
        ("A=b python -m harness frozen verify --quick > x.txt", "frozen verify --quick"),
        ("aicf verify my_op --variant=naive || test $? = 1", "verify --variant"),
        ("python -m aicf.device run --leak-check ./sum", "device run --leak-check"),
        ("git init --quiet", "git init --quiet"),
    ],
)
def test_a_command_has_the_shape_of_its_verb(command: str, shape: str) -> None:
    assert str(find_shape(command)) == shape


def test_links_out_of_the_pages_become_words() -> None:
    change = load_script("site_hooks").on_page_markdown
    page = SimpleNamespace(file=SimpleNamespace(src_uri="api/x.md"))
    text = "[a](../frozen.md#b) [decide.c](../../contract/decide.c) [notes](../../profiles/N.md#c) [u](https://u.org/../x) [s](#s)"
    told = "[a](../frozen.md#b) `contract/decide.c` notes (`profiles/N.md`) [u](https://u.org/../x) [s](#s)"
    assert change(text, page=page) == told


def test_roles_of_docstrings_become_code() -> None:
    pytest.importorskip("griffe", reason="the site's generator is not installed; make docs installs it")
    module = load_script("site_roles")
    thing: Any = SimpleNamespace(docstring=SimpleNamespace(value="See :func:`~aicf.grad` and :class:`X`."))
    module.Roles().on_object(obj=thing)
    assert thing.docstring.value == "See `aicf.grad` and `X`."


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_a_list_stands_apart_from_the_paragraph_before_it(page: Path) -> None:
    """GitHub does not need the empty line, and the site's generator does."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL).splitlines()
    items = re.compile(r"(- |\d+\. )")
    crowded = [b for a, b in itertools.pairwise(prose) if items.match(b) and a and not items.match(a) and not a.startswith("  ")]
    assert crowded == []


def test_programs_of_a_folder_are_found_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = (text for _, title, text in list_blocks(DOCS / "sanitizer.md") if title == "sum.cu")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "sum.cu").write_text(program)
    monkeypatch.setenv("AICF_CACHE_DIR", str(tmp_path / "cache"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "scripts" / "run_programs.py"), "programs", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    assert "sum" in run("--list").stdout
    done = run("--jobs", "2", "--timeout", "60", "--checks", "all", "--filter", "*sum*", "--json", "verdicts.json")
    assert done.returncode == 1, done.stdout + done.stderr
    (verdict,) = json.loads((tmp_path / "verdicts.json").read_text())
    assert verdict["status"] == "fail" and "sum.cu" in str(verdict["findings"])
