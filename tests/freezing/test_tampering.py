"""What was changed by hand in the frozen set is found, and named."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.frozen_set import read_op
from contract.kernels import read_kernel
from contract.layout import (
    HISTORY,
    INDEX,
    KERNELS,
    TREE,
    dump_document,
    dump_line,
    find_frozen_dir,
    hash_bytes,
    hash_value,
    name_manifest,
    split,
)
from harness.errors import FrozenError
from harness.freezing.store.changes import change_index
from harness.freezing.store.history import name_event, read_history
from harness.freezing.store.index import list_frozen_ops, read_frozen_op
from harness.freezing.store.verify import check_op
from tests.freezing.frozen_sets import OP, REVISION, QuickDisk, make_manifest, make_median, make_rows, write_frozen_set, write_manifest

KERNEL = "plain__threads32__00000001"
OTHER = "plain__threads64__00000002"
MANIFEST = name_manifest(KERNEL)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_frozen_set(tmp_path_factory.mktemp("written"))


@pytest.fixture
def frozen_dir(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "frozen")
    return tmp_path / "frozen"


def list_leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, (dict, list)) or not value:
        yield path
    for key, each in items:
        yield from list_leaves(each, (*path, key))


def alter(document: Any, path: tuple[Any, ...]) -> Any:
    """Return the document with one value changed to another that is as valid, where there is one."""
    document = copy.deepcopy(document)
    place = document
    for key in path[:-1]:
        place = place[key]
    old = place[path[-1]]
    if isinstance(old, bool):
        place[path[-1]] = not old
    elif isinstance(old, str):
        place[path[-1]] = old[:-1] + ("0" if old[-1] != "0" else "1")
    elif isinstance(old, (int, float)):
        place[path[-1]] = old / 2 if isinstance(old, float) else old + 1
    else:
        place[path[-1]] = [1] if isinstance(old, list) else {"x": 1}
    return document


def find_paths(frozen_dir: Path) -> set[str]:
    return {f.path for f in check_op(frozen_dir, OP)}


def test_what_promote_wrote_agrees(frozen_dir: Path) -> None:
    assert check_op(frozen_dir, OP) == []
    frozen = read_frozen_op(frozen_dir, OP)
    assert frozen.kernels == [KERNEL, "plain__threads64__00000002"]
    assert len(frozen.entries) == len(frozen.medians) == 2
    assert read_kernel(frozen.folder, KERNEL).manifest["variant"] == "plain/threads32"


@pytest.mark.slow
def test_the_projects_own_set_agrees() -> None:
    findings = [f.describe() for op in list_frozen_ops(find_frozen_dir()) for f in check_op(find_frozen_dir(), op)]
    assert findings == []


@pytest.mark.parametrize("path", list(list_leaves(split(make_manifest(KERNEL))[0])), ids=lambda p: ".".join(map(str, p)))
def test_a_changed_field_of_a_manifest_is_found(frozen_dir: Path, path: tuple[Any, ...]) -> None:
    file = frozen_dir / OP / MANIFEST
    altered = alter(json.loads(file.read_text()), path)
    file.write_text(dump_document(altered))
    findings = check_op(frozen_dir, OP)
    assert MANIFEST in {f.path for f in findings}
    with pytest.raises(FrozenError):
        read_kernel(frozen_dir / OP, KERNEL)
    if path in (("seal",), ("revision",)):
        return
    # Sealing it anew helps nothing: the index names the old seal.
    write_manifest(frozen_dir, altered, KERNEL)
    assert MANIFEST in find_paths(frozen_dir)


def test_every_byte_of_every_source_counts(frozen_dir: Path) -> None:
    sources = sorted(p for p in (frozen_dir / OP / REVISION / "sources").rglob("*") if p.is_file())
    assert len(sources) == 3
    for path in sources:
        content = path.read_bytes()
        for i in range(len(content)):
            path.write_bytes(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :])
            assert [(f.kind, f.path) for f in check_op(frozen_dir, OP)] == [("changed", str(path.relative_to(frozen_dir / OP)))]
        path.write_bytes(content)


def test_a_deleted_file_is_named(frozen_dir: Path) -> None:
    for path in sorted(p for p in (frozen_dir / OP).rglob("*") if p.is_file()):
        content = path.read_bytes()
        path.unlink()
        name = str(path.relative_to(frozen_dir / OP))
        # The last of its events is missed where the history leads elsewhere without it, one before by those that follow.
        assert {name} & find_paths(frozen_dir) or (name.startswith(HISTORY) and INDEX in find_paths(frozen_dir)), name
        path.write_bytes(content)
    assert check_op(frozen_dir, OP) == []


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "kernels/extra.txt",
        "kernels/plain__threads32__00000009.json",
        "kernels/folder/extra.json",
        "revisions/notes.txt",
        "revisions/0123456789abcdef/tree.json",
        f"{REVISION}/extra.txt",
        f"{REVISION}/sources/common/more.cuh",
        "evidence/a.json",
        "another/manifest.json",
    ],
)
def test_an_added_file_is_named(frozen_dir: Path, name: str) -> None:
    path = frozen_dir / OP / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    findings = check_op(frozen_dir, OP)
    assert [f.kind for f in findings] == ["added"]
    assert name.startswith(findings[0].path)


def test_each_line_of_the_index_counts(frozen_dir: Path) -> None:
    index = frozen_dir / OP / INDEX
    lines = index.read_text().splitlines()
    for i, line in enumerate(lines):
        index.write_text("".join(each + "\n" for each in lines[:i] + lines[i + 1 :]))
        assert INDEX in find_paths(frozen_dir), "a line is gone"
        row = json.loads(line)
        for path in list_leaves(row):
            index.write_text("".join(each + "\n" for each in [*lines[:i], dump_line(alter(row, path)), *lines[i + 1 :]]))
            assert INDEX in find_paths(frozen_dir), path
    index.write_text("".join(each + "\n" for each in reversed(lines)))
    assert INDEX in find_paths(frozen_dir), "lines in another order"
    index.write_text("\n".join(lines) + "\n\n{]\n")
    with pytest.raises(FrozenError, match=r"tiny/index.jsonl: unreadable: line"):
        read_frozen_op(frozen_dir, OP)


def test_evidence_and_history_are_held_by_hashes(frozen_dir: Path) -> None:
    for folder in ("evidence", HISTORY):
        for path in sorted((frozen_dir / OP / folder).iterdir()):
            content = path.read_text()
            document = json.loads(content)
            key = "reason" if folder == "evidence" else "message"
            path.write_text(dump_document(document | {key: "another story"}))
            assert f"{folder}/{path.name}" in find_paths(frozen_dir)
            path.write_text(content)


def test_a_history_that_was_rewritten_with_its_name_does_not_lead_to_the_index(frozen_dir: Path) -> None:
    events, _ = read_history(frozen_dir / OP)
    name, event = events[-1]
    forged = copy.deepcopy(event)
    next(r for r in forged["added"] if r["kind"] == "median")["median_us"] = 0.5
    (frozen_dir / OP / HISTORY / name).unlink()
    (frozen_dir / OP / HISTORY / name_event(forged)).write_text(dump_document(forged))
    findings = check_op(frozen_dir, OP)
    assert [(f.path, f.kind) for f in findings] == [(INDEX, "changed")]
    assert "not what its history leads to" in findings[0].detail


def test_a_kernel_that_was_swapped_for_another_is_found(frozen_dir: Path) -> None:
    folder = frozen_dir / OP
    shutil.copyfile(folder / name_manifest(OTHER), folder / MANIFEST)
    details = [f.detail for f in check_op(frozen_dir, OP)]
    assert any("claims to be tiny/plain__threads64__00000002" in d for d in details)


@pytest.mark.parametrize("name", [INDEX, MANIFEST, f"{REVISION}/{TREE}"])
def test_another_version_of_the_format_is_named(frozen_dir: Path, name: str) -> None:
    path = frozen_dir / OP / name
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 7').replace('"schema":1', '"schema":7'))
    finding = next(f for f in check_op(frozen_dir, OP) if f.path == name)
    assert "is of format 7, and this version reads format 1" in finding.detail


def test_a_row_that_the_schema_forbids_is_named_with_its_line(frozen_dir: Path) -> None:
    index = frozen_dir / OP / INDEX
    lines = index.read_text().splitlines()
    row = json.loads(lines[1])
    index.write_text("\n".join([lines[0], dump_line(row | {"status": "excellent"}), *lines[2:]]) + "\n")
    with pytest.raises(FrozenError, match=r"line 2: status: 'excellent' is not one of \['measured', 'provisional'\]"):
        read_frozen_op(frozen_dir, OP)


def test_a_source_that_kernels_share_is_named_once_with_all_of_them(frozen_dir: Path) -> None:
    (frozen_dir / OP / REVISION / "sources" / "tiny" / "op.py").write_text("OP = 1\n")
    ((path, detail),) = [(f.path, f.detail) for f in check_op(frozen_dir, OP)]
    assert path == f"{REVISION}/sources/tiny/op.py" and f"{KERNEL}, {OTHER} are made of it" in detail


def test_a_tree_that_was_edited_is_found_however_much_is_put_right_with_it(frozen_dir: Path) -> None:
    """A source, then its tree, then the folder's name, then a manifest: the seal is what does not fit in the end."""
    folder, source = frozen_dir / OP, "sources/tiny/op.py"
    (folder / REVISION / source).write_text("OP = 1\n")
    tree = json.loads((folder / REVISION / TREE).read_text())
    tree["files"][source] = hash_bytes(b"OP = 1\n")
    (folder / REVISION / TREE).write_text(dump_document(tree))
    assert {f"{REVISION}/{TREE}", MANIFEST, name_manifest(OTHER)} == find_paths(frozen_dir)
    new = f"revisions/{hash_value(tree)[:16]}"
    (folder / REVISION).rename(folder / new)
    assert {new, MANIFEST, name_manifest(OTHER)} == find_paths(frozen_dir)
    for kernel in (KERNEL, OTHER):
        manifest = json.loads((folder / name_manifest(kernel)).read_text()) | {"revision": hash_value(tree)}
        (folder / name_manifest(kernel)).write_text(dump_document(manifest))
    assert {(f.path, f.detail) for f in check_op(frozen_dir, OP)} == {
        (name_manifest(k), "it was edited after it was sealed: its seal is of another content") for k in (KERNEL, OTHER)
    }
    for kernel in (KERNEL, OTHER):
        write_manifest(frozen_dir, json.loads((folder / name_manifest(kernel)).read_text()), kernel)
        assert (name_manifest(kernel), "its seal is not the one that the index names") in {
            (f.path, f.detail) for f in check_op(frozen_dir, OP)
        }
        with pytest.raises(FrozenError, match="already exists with different content"):
            rows, files = make_rows(kernel, "else")
            change_index(frozen_dir, OP, "promote", "", put=rows, files=files, disk=QuickDisk())


@pytest.mark.parametrize("field", ["schema", "op", "files", "more"])
def test_every_field_of_a_tree_counts(frozen_dir: Path, field: str) -> None:
    path = frozen_dir / OP / REVISION / TREE
    tree = json.loads(path.read_text())
    values = {"schema": 2, "op": "other", "files": dict(list(tree["files"].items())[1:]), "more": 1}
    path.write_text(dump_document(tree | {field: values[field]}))
    assert f"{REVISION}/{TREE}" in find_paths(frozen_dir)
    with pytest.raises(FrozenError, match=r"tree\.json"):
        read_kernel(frozen_dir / OP, KERNEL)


def test_a_revision_that_is_gone_is_missed_by_every_kernel(frozen_dir: Path) -> None:
    shutil.rmtree(frozen_dir / OP / "revisions")
    assert [(f.path, f.kind) for f in check_op(frozen_dir, OP)] == [(name_manifest(k), "missing") for k in (KERNEL, OTHER)]
    shutil.rmtree(frozen_dir / OP / KERNELS)
    assert [(f.path, f.kind) for f in check_op(frozen_dir, OP)] == [(name_manifest(k), "missing") for k in (KERNEL, OTHER)]


def test_rows_that_do_not_fit_together_are_found_before_a_reader_meets_them(frozen_dir: Path) -> None:
    """Each is valid by its schema, and the history leads to them."""
    change_index(frozen_dir, OP, "measure", "", put=[make_median(KERNEL, 8, 1.0) | {"sizes": {"m": 8}}], disk=QuickDisk())
    ((path, kind, detail),) = [(f.path, f.kind, f.detail) for f in check_op(frozen_dir, OP)]
    assert (path, kind) == (INDEX, "changed") and detail == "median n8: its sizes and attributes are not the op's"
    with pytest.raises(FrozenError, match="are not the op's"):
        read_op(OP, frozen_dir)
