"""What the contract defines, nobody else does: writers and readers of the frozen set share it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USERS = ("aicf", "deploy", "device", "harness")
# Words that mean something else there: an op's own problem and interface (harness.spec), a verdict's status, a picture's table, IR ops, a
# call in an imported network, a tensor that is split.
OTHER_MEANINGS = frozenset({"Call", "Interface", "Problem", "Status", "describe", "list_ops", "make_table", "split"})
# What a copy of the format would have to say.
FORMAT_WORDS = ("index.jsonl", "tree.json", "_tree.json", "manifest.json", ".schema.json", "c_char * 248")


def list_definitions(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node.name


def test_no_other_part_defines_what_the_contract_does() -> None:
    own = {name for path in (ROOT / "contract").glob("*.py") for name in list_definitions(path)}
    assert {"FrozenOp", "FrozenKernel", "Status", "make_params", "hash_value", "parse_json", "read_op", "build_kernel"} <= own
    files = [path for user in USERS for path in (ROOT / user).rglob("*.py") if "templates" not in path.parts]
    assert len(files) > 100
    copies = {f"{p.relative_to(ROOT)}: {n}" for p in files for n in list_definitions(p) if n in own - OTHER_MEANINGS}
    assert copies == set()


def test_no_other_part_spells_the_format() -> None:
    """Names of files, and the layout of the status that entry points return."""
    files = [path for user in USERS for path in (ROOT / user).rglob("*.py") if "templates" not in path.parts]
    spelt = {f"{p.relative_to(ROOT)}: {s}" for p in files for s in list_strings(p) if s in FORMAT_WORDS}
    assert spelt == {"harness/build/store.py: manifest.json"}  # that of the cache of builds


def test_the_page_names_every_module() -> None:
    page = (ROOT / "docs" / "frozen.md").read_text()
    table = page[page.index("## Reading it") : page.index("## The compiler")]
    modules = [p.stem for p in (ROOT / "contract").glob("*.py") if p.stem != "__init__"]
    assert len(modules) > 15
    assert [m for m in modules if f"`{m}`" not in table and f"`{m.removeprefix('decision')}`" not in table] == []


def list_strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_a_definition_and_a_string_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "copy.py"
    path.write_text('def hash_value(value): ...\n\n\nINDEX = "index.jsonl"\n')
    assert list(list_definitions(path)) == ["hash_value"]
    assert "index.jsonl" in list(list_strings(path))
