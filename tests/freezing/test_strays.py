"""What is no part of the frozen set, and what is gone from it, is named: links, strays, events, ops, schemas."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from contract.layout import HISTORY, INDEX, SCHEMA, TREE, dump_document, find_frozen_dir, name_manifest
from harness.errors import FrozenError
from harness.freezing.seal.rebuild import check_frozen
from harness.freezing.store.changes import change_index, roll_back
from harness.freezing.store.history import name_event, read_history
from harness.freezing.store.index import list_frozen_ops, read_frozen_op
from harness.freezing.store.transaction import clear_up, lock_op
from harness.freezing.store.verify import check_op, check_set, require_sound
from tests.freezing.frozen_sets import OP, REVISION, QuickDisk, make_median, make_rows, write_frozen_set

KERNEL = "plain__threads32__00000001"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_frozen_set(tmp_path_factory.mktemp("written"))


@pytest.fixture
def frozen_dir(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "frozen")
    return tmp_path / "frozen"


def find_links(frozen_dir: Path) -> list[tuple[str, str]]:
    return [(f.kind, f.path) for f in check_op(frozen_dir, OP)]


@pytest.mark.parametrize(
    "name",
    [
        INDEX,
        name_manifest(KERNEL),
        "kernels",
        "revisions",
        REVISION,
        f"{REVISION}/{TREE}",
        f"{REVISION}/sources/tiny/op.py",
        f"{REVISION}/sources/common",
        HISTORY,
        "evidence",
    ],
)
def test_a_symbolic_link_is_named_though_what_it_leads_to_is_right(frozen_dir: Path, tmp_path: Path, name: str) -> None:
    path, elsewhere = frozen_dir / OP / name, tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert find_links(frozen_dir) == [("link", name)]


def test_an_op_or_a_set_that_is_a_link_is_named(frozen_dir: Path, tmp_path: Path) -> None:
    (frozen_dir / OP).rename(tmp_path / "elsewhere")
    (frozen_dir / OP).symlink_to(tmp_path / "elsewhere")
    assert [f.kind for f in check_op(frozen_dir, OP)] == ["link"]
    assert [(f.kind, f.path) for f in check_set(frozen_dir)] == [("link", OP)]
    frozen_dir.rename(tmp_path / "set")
    frozen_dir.symlink_to(tmp_path / "set")
    assert [(f.kind, f.path) for f in check_set(frozen_dir)] == [("link", "frozen")]
    with pytest.raises(FrozenError, match="is a symbolic link"), lock_op(frozen_dir, OP):
        pass


def test_a_pipe_is_named_and_not_read(frozen_dir: Path) -> None:
    path = frozen_dir / OP / REVISION / "sources" / "tiny" / "op.py"
    path.unlink()
    os.mkfifo(path)
    assert find_links(frozen_dir) == [("added", f"{REVISION}/sources/tiny/op.py")]
    index = frozen_dir / OP / INDEX
    index.unlink()
    os.mkfifo(index)
    with pytest.raises(FrozenError, match="not a plain file"):
        read_frozen_op(frozen_dir, OP)


@pytest.mark.parametrize(
    "name",
    [
        ".hidden",
        f"{REVISION}/.hidden",
        "kernels/.hidden",
        "revisions/.hidden",
        "evidence/.hidden",
        "history/.hidden.json",
        "evidence/deep/er.json",
    ],
)
def test_a_hidden_or_nested_file_is_named(frozen_dir: Path, name: str) -> None:
    path = frozen_dir / OP / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    assert [f.kind for f in check_op(frozen_dir, OP)] == ["added"]


@pytest.mark.parametrize("is_beside", [True, False])
def test_a_folder_with_a_kernels_manifest_and_sources_of_its_own_is_a_stray(frozen_dir: Path, *, is_beside: bool) -> None:
    """Kernels lay like that once; what is found of it now is named, is no kernel, and stays where it is."""
    folder = frozen_dir / OP
    shutil.copytree(folder / REVISION, folder / KERNEL)
    (folder / KERNEL / TREE).unlink()
    shutil.copyfile(folder / name_manifest(KERNEL), folder / KERNEL / "manifest.json")
    if not is_beside:
        (folder / name_manifest(KERNEL)).unlink()
    found = [] if is_beside else [("missing", name_manifest(KERNEL))]
    assert sorted(find_links(frozen_dir)) == sorted([("added", KERNEL), *found])
    with pytest.raises(FrozenError, match="nothing names it" if is_beside else "missing"):
        require_sound(frozen_dir, OP)
    assert (folder / KERNEL / "manifest.json").is_file()


@pytest.mark.parametrize(
    "name",
    ["empty", f"{REVISION}/empty", "kernels/empty", "revisions/empty", "evidence/empty", f"{REVISION}/sources/common/empty/er"],
)
def test_an_empty_folder_is_named_and_cleared_up(frozen_dir: Path, name: str) -> None:
    (frozen_dir / OP / name).mkdir(parents=True)
    assert ("added", name) in find_links(frozen_dir)
    clear_up(frozen_dir, OP)
    assert find_links(frozen_dir) == []


@pytest.mark.parametrize("name", ["notes.txt", "Another", "..stray", ".lock-other/x", "schema.json", "a-b/index.jsonl"])
def test_a_stray_beside_the_ops_is_named(frozen_dir: Path, name: str) -> None:
    assert check_set(frozen_dir) == []
    path = frozen_dir / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    assert [(f.kind, f.path) for f in check_set(frozen_dir)] == [("added", name.partition("/")[0])]


@pytest.mark.parametrize("name", ["another", "another/deep"])
def test_a_stray_folder_with_an_ops_name_is_named(frozen_dir: Path, name: str) -> None:
    (frozen_dir / name).mkdir(parents=True)
    assert list_frozen_ops(frozen_dir) == ["another", OP]
    assert check_op(frozen_dir, "another") != []
    (frozen_dir / "another" / "notes.txt").write_text("")
    assert (INDEX, "missing") in {(f.path, f.kind) for f in check_op(frozen_dir, "another")}


def test_an_index_that_is_gone_is_missed_also_after_everything_was_demoted(frozen_dir: Path) -> None:
    (frozen_dir / OP / INDEX).unlink()
    assert list_frozen_ops(frozen_dir) == [OP]
    assert ("missing", INDEX) in find_links(frozen_dir)
    with pytest.raises(FrozenError, match=r"index\.jsonl: missing"):
        read_frozen_op(frozen_dir, OP)
    with pytest.raises(FrozenError, match=r"index\.jsonl: missing"):
        require_sound(frozen_dir, OP)


def test_events_that_cancel_out_cannot_be_taken_away_unseen(frozen_dir: Path) -> None:
    """Without the chain nothing would tell: a promotion and its rollback lead to where the index was."""
    before, _ = read_history(frozen_dir / OP)
    rows, files = make_rows("plain__threads96__00000003")
    change_index(frozen_dir, OP, "promote", "a mistake", put=rows, files=files, disk=QuickDisk())
    roll_back(frozen_dir, OP, before[-1][0], "taken back")
    change_index(frozen_dir, OP, "measure", "more", put=[make_median(KERNEL, 8, 1.0)], disk=QuickDisk())
    assert check_op(frozen_dir, OP) == []
    events, _ = read_history(frozen_dir / OP)
    for name, event in events[len(before) : -1]:
        (frozen_dir / OP / HISTORY / name).unlink()
        for row in (r for r in event["added"] if r["kind"] == "entry" and event["what"] == "promote"):
            (frozen_dir / OP / name_manifest(row["kernel"])).unlink()
            (frozen_dir / OP / row["evidence"]["file"]).unlink()
    assert [(f.path, f.kind) for f in check_op(frozen_dir, OP)] == [(f"{HISTORY}/{events[-2][0]}", "missing")]


def test_the_first_event_that_names_what_it_follows_names_all_before_it(frozen_dir: Path) -> None:
    """Events of the time before that have no `after`."""
    folder = frozen_dir / OP / HISTORY
    for name, event in read_history(frozen_dir / OP)[0]:
        old = {k: v for k, v in event.items() if k != "after"}
        (folder / name).unlink()
        (folder / name_event(old)).write_text(dump_document(old))
    assert check_op(frozen_dir, OP) == []
    old_names = [name for name, _ in read_history(frozen_dir / OP)[0]]
    event = change_index(frozen_dir, OP, "measure", "", put=[make_median(KERNEL, 8, 1.0)], disk=QuickDisk())
    assert event["after"] == old_names
    event = change_index(frozen_dir, OP, "measure", "", put=[make_median(KERNEL, 9, 1.0)], disk=QuickDisk())
    assert len(event["after"]) == 1


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)


def test_an_older_state_of_everything_is_held_against_the_last_commit(frozen_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(frozen_dir, tmp_path / "older")
    change_index(frozen_dir, OP, "measure", "", put=[make_median(KERNEL, 8, 1.0)], disk=QuickDisk())
    last = read_history(frozen_dir / OP)[0][-1][0]
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "frozen")
    git(tmp_path, "commit", "-qm", "a set")
    assert check_op(frozen_dir, OP) == [] and check_set(frozen_dir) == []
    shutil.rmtree(frozen_dir)
    (tmp_path / "older").rename(frozen_dir)
    assert [(f.path, f.kind) for f in check_op(frozen_dir, OP)] == [(f"{HISTORY}/{last}", "missing")]
    shutil.rmtree(frozen_dir / OP)
    assert [(f.op, f.path, f.kind) for f in check_set(frozen_dir)] == [(OP, INDEX, "missing")]


def test_the_schemas_are_those_of_the_format(frozen_dir: Path) -> None:
    shutil.copytree(find_frozen_dir() / SCHEMA, frozen_dir / SCHEMA)
    assert check_set(frozen_dir) == [], "a schema was changed: its digest goes into contract/schemas.py"
    path = frozen_dir / SCHEMA / "index.schema.json"
    text = path.read_text()
    path.write_text(text.replace("^[a-z]", "^.*[a-z]"))
    assert [(f.path, f.kind) for f in check_set(frozen_dir)] == [(f"{SCHEMA}/index.schema.json", "changed")]
    path.unlink()
    assert [(f.path, f.kind) for f in check_set(frozen_dir)] == [(f"{SCHEMA}/index.schema.json", "missing")]
    path.write_text(text)
    (frozen_dir / SCHEMA / "more.json").write_text("{}")
    assert [(f.path, f.kind) for f in check_set(frozen_dir)] == [(f"{SCHEMA}/more.json", "added")]


def test_the_verb_checks_what_lies_beside_the_ops_too(frozen_dir: Path) -> None:
    (frozen_dir / "notes.txt").write_text("")
    findings, _ = check_frozen(frozen_dir, [OP], None)
    assert [f.describe() for f in findings] == ["notes.txt: added: it is not an op's folder, and nothing names it"]
