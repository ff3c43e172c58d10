"""`frozen migrate` and `frozen prune`: what goes goes by a recorded event, and all else stays bit for bit."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contract.building import compile_kernel, find_other_code
from contract.kernels import read_kernel
from contract.layout import EVIDENCE, HISTORY, INDEX, dump_document, find_frozen_dir, list_old_kernels, name_manifest
from deploy.selection import select
from device.toolchain import find_toolchain
from harness.errors import FrozenError
from harness.freezing.store.changes import change_index, demote, list_prunable, prune, roll_back
from harness.freezing.store.history import read_history
from harness.freezing.store.index import list_frozen_ops, read_frozen_op
from harness.freezing.store.migrate import migrate
from harness.freezing.store.verify import check_op, require_sound
from tests.freezing.frozen_sets import OP, REVISION, SOURCES, QuickDisk, make_bucket, make_old, make_rows, read_everything, write_frozen_set

KERNEL, OTHER, NEW = "plain__threads32__00000001", "plain__threads64__00000002", "plain__threads96__00000003"
LONG = "sm_90a/any/any/any/long"
CHANGED = SOURCES | {"sources/tiny/launcher.cu": b"// another\n"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_frozen_set(tmp_path_factory.mktemp("written"))


@pytest.fixture
def frozen_dir(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "frozen")
    return tmp_path / "frozen"


def promote_new(frozen_dir: Path, region: str = "long", sources: dict[str, bytes] | None = None) -> None:
    rows, files = make_rows(NEW, region, sources=sources)
    change_index(frozen_dir, OP, "promote", "a faster one", put=rows, files=files, disk=QuickDisk())


def list_kernels(frozen_dir: Path) -> list[str]:
    return sorted(path.stem for path in (frozen_dir / OP / "kernels").iterdir())


def test_a_migrated_set_is_the_set_that_is_written_today(frozen_dir: Path) -> None:
    before = read_everything(frozen_dir / OP)
    make_old(frozen_dir)
    assert len(list_old_kernels(frozen_dir / OP)) == 2
    event = migrate(frozen_dir, OP)
    assert event is not None and event["removed"] == event["added"] == []
    assert event["message"] == "2 kernels share 1 trees of sources"
    after = read_everything(frozen_dir / OP)
    (new,) = after.keys() - before.keys()
    assert new.startswith(f"{HISTORY}/") and "-migrate-" in new
    assert {name: content for name, content in after.items() if name != new} == before
    assert check_op(frozen_dir, OP) == []
    assert migrate(frozen_dir, OP) is None
    assert read_everything(frozen_dir / OP) == after


def test_rollbacks_go_on_to_events_of_the_earlier_layout(frozen_dir: Path) -> None:
    first = read_frozen_op(frozen_dir, OP).rows
    demote(frozen_dir, OP, [LONG], "")
    make_old(frozen_dir)
    migrate(frozen_dir, OP)
    events, _ = read_history(frozen_dir / OP)
    roll_back(frozen_dir, OP, events[1][0], "back")
    assert read_frozen_op(frozen_dir, OP).rows == first and check_op(frozen_dir, OP) == []


def test_what_a_branch_promoted_in_the_earlier_layout_is_taken_up_later(frozen_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(frozen_dir, tmp_path / "branch")
    make_old(frozen_dir)
    migrate(frozen_dir, OP)
    promote_new(tmp_path / "branch", "elsewhere", CHANGED)
    make_old(tmp_path / "branch")
    # As git merges them: the files of both, and the index's lines of both.
    shutil.copytree(tmp_path / "branch" / OP / NEW, frozen_dir / OP / NEW)
    for folder in (EVIDENCE, HISTORY):
        shutil.copytree(tmp_path / "branch" / OP / folder, frozen_dir / OP / folder, dirs_exist_ok=True)
    shutil.copyfile(tmp_path / "branch" / OP / INDEX, frozen_dir / OP / INDEX)
    (finding,) = check_op(frozen_dir, OP)
    assert finding.kind == "skew" and "1 kernels have the layout of an earlier version" in finding.detail
    assert migrate(frozen_dir, OP) is not None
    assert check_op(frozen_dir, OP) == [] and list_kernels(frozen_dir) == [KERNEL, OTHER, NEW]


def edit(path: Path, **changes: Any) -> None:
    path.write_text(dump_document(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("source", "sources/tiny/op.py: it is not the source that was sealed"),
        ("gone", "sources/tiny/op.py is not there"),
        ("stray", "sources/stray.cu was added"),
        ("manifest", "it was edited after it was sealed"),
        ("other", "it claims to be tiny/plain__threads64__00000002"),
        ("no manifest", "is not a manifest of the earlier layout"),
        ("index", "index.jsonl: (changed|unreadable)"),
        ("event", "history/.*: changed: its name does not hold its hash"),
        ("link", "link: it is a symbolic link"),
        ("unnamed", "plain__threads32__0000000f"),
    ],
)
def test_a_set_that_does_not_agree_is_not_migrated(frozen_dir: Path, what: str, message: str) -> None:
    make_old(frozen_dir)
    folder = frozen_dir / OP
    source, manifest = folder / KERNEL / "sources" / "tiny" / "op.py", folder / KERNEL / "manifest.json"
    match what:
        case "source":
            source.write_text("OP = 1\n")
        case "gone":
            source.unlink()
        case "stray":
            (folder / KERNEL / "sources" / "stray.cu").write_text("")
        case "manifest":
            edit(manifest, deterministic=False)
        case "other":
            shutil.copyfile(folder / OTHER / "manifest.json", manifest)
        case "no manifest":
            manifest.write_text("[]")
        case "index":
            (folder / INDEX).write_text((folder / INDEX).read_text().replace("2.5", "1.5"))
        case "event":
            edit(next((folder / HISTORY).iterdir()), message="another story")
        case "link":
            source.unlink()
            source.symlink_to(folder / OTHER / "sources" / "tiny" / "op.py")
        case "unnamed":
            stray = folder / "plain__threads32__0000000f"
            shutil.copytree(folder / KERNEL, stray)
            text = (stray / "manifest.json").read_text()
            (stray / "manifest.json").write_text(text.replace(KERNEL, stray.name))
    before = read_everything(folder)
    with pytest.raises(FrozenError, match=message):
        migrate(frozen_dir, OP)
    assert read_everything(folder) == before


def test_readers_say_what_to_do_with_a_set_of_an_earlier_version(frozen_dir: Path) -> None:
    make_old(frozen_dir)
    remedy = f"the layout of an earlier version: `python -m harness frozen migrate {OP}`"
    with pytest.raises(FrozenError, match=remedy):
        require_sound(frozen_dir, OP)
    with pytest.raises(FrozenError, match=remedy):
        read_kernel(frozen_dir / OP, KERNEL)
    with pytest.raises(FrozenError, match=remedy):
        select(frozen_dir)


def test_two_promotions_of_one_revision_write_one_tree(frozen_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(frozen_dir, other)
    promote_new(frozen_dir, sources=CHANGED)
    rows, files = make_rows("plain__threads128__00000004", "else", sources=CHANGED)
    change_index(other, OP, "promote", "", put=rows, files=files, disk=QuickDisk())
    here, there = ({n: c for n, c in read_everything(d / OP).items() if n.startswith("revisions/")} for d in (frozen_dir, other))
    assert here == there and len({name.split("/")[1] for name in here}) == 2


def test_prune_takes_what_no_entry_names_and_notes_what_it_was(frozen_dir: Path) -> None:
    assert prune(frozen_dir, OP, "") is None
    promote_new(frozen_dir, sources=CHANGED)
    demote(frozen_dir, OP, [LONG], "it was wrong")
    before = read_everything(frozen_dir / OP)
    seal = json.loads(before[name_manifest(NEW)])["seal"]
    pruned, removed = list_prunable(require_sound(frozen_dir, OP))
    assert [note["kernel"] for note in pruned] == [OTHER, NEW]
    event = prune(frozen_dir, OP, "in the way")
    assert event is not None and event["what"] == "prune" and event["removed"] == event["added"] == []
    assert event["pruned"][1] == {"kernel": NEW, "seal": seal, "commit": "c" * 40}
    after = read_everything(frozen_dir / OP)
    assert before.keys() - after.keys() == set(removed) and len(after.keys() - before.keys()) == 1
    assert {name: before[name] for name in before.keys() & after.keys()} == {n: after[n] for n in before.keys() & after.keys()}
    assert list_kernels(frozen_dir) == [KERNEL] and sorted(p.name for p in (frozen_dir / OP / "revisions").iterdir()) == [REVISION[10:]]
    assert check_op(frozen_dir, OP) == [] and prune(frozen_dir, OP, "") is None


def test_a_pruned_kernel_that_comes_back_by_hand_is_found(frozen_dir: Path) -> None:
    demote(frozen_dir, OP, [LONG], "")
    content = (frozen_dir / OP / name_manifest(OTHER)).read_bytes()
    prune(frozen_dir, OP, "")
    (frozen_dir / OP / name_manifest(OTHER)).write_bytes(content)
    assert [(f.kind, f.path) for f in check_op(frozen_dir, OP)] == [("added", name_manifest(OTHER))]


def test_a_rollback_to_a_pruned_kernel_names_the_event_and_the_commit(frozen_dir: Path) -> None:
    events, _ = read_history(frozen_dir / OP)
    demote(frozen_dir, OP, [LONG], "")
    prune(frozen_dir, OP, "")
    with pytest.raises(FrozenError, match=rf"{OTHER} was pruned by .*-prune-.*promote it again .*--at {'c' * 12}"):
        roll_back(frozen_dir, OP, events[1][0], "back")
    rows, files = make_rows(OTHER, "long")
    change_index(frozen_dir, OP, "promote", "again", put=rows, files=files, disk=QuickDisk())
    roll_back(frozen_dir, OP, events[1][0], "back")
    winner = read_frozen_op(frozen_dir, OP).find_winner(make_bucket("long"))
    assert winner is not None and winner["kernel"] == OTHER and check_op(frozen_dir, OP) == []


def test_a_rollback_to_a_kernel_that_was_sealed_anew_is_refused(frozen_dir: Path) -> None:
    events, _ = read_history(frozen_dir / OP)
    demote(frozen_dir, OP, [LONG], "")
    prune(frozen_dir, OP, "")
    rows, files = make_rows(OTHER, "long", sources=CHANGED)
    change_index(frozen_dir, OP, "promote", "again", put=rows, files=files, disk=QuickDisk())
    assert check_op(frozen_dir, OP) == []
    with pytest.raises(FrozenError, match=f"{OTHER} was pruned and has been sealed again since"):
        roll_back(frozen_dir, OP, events[1][0], "back")


def test_a_kernel_that_a_merge_pruned_and_the_index_names_is_missed(frozen_dir: Path, tmp_path: Path) -> None:
    """One branch prunes it while the other gives it a bucket again, earlier by the clock."""
    demote(frozen_dir, OP, [LONG], "")
    shutil.copytree(frozen_dir, tmp_path / "branch")
    rows, files = make_rows(OTHER, "long")
    change_index(tmp_path / "branch", OP, "promote", "", put=rows, files=files, disk=QuickDisk())
    prune(frozen_dir, OP, "")
    shutil.copytree(tmp_path / "branch" / OP / HISTORY, frozen_dir / OP / HISTORY, dirs_exist_ok=True)
    shutil.copyfile(tmp_path / "branch" / OP / INDEX, frozen_dir / OP / INDEX)
    assert [(f.kind, f.path) for f in check_op(frozen_dir, OP)] == [("missing", name_manifest(OTHER))]


def test_what_another_process_promotes_meanwhile_is_not_pruned(frozen_dir: Path) -> None:
    promote_new(frozen_dir)
    pruned, _ = list_prunable(require_sound(frozen_dir, OP))
    assert [note["kernel"] for note in pruned] == [OTHER]
    rows, files = make_rows(OTHER, "long")
    change_index(frozen_dir, OP, "promote", "back", put=rows, files=files, disk=QuickDisk())
    event = prune(frozen_dir, OP, "")
    assert event is not None and [note["kernel"] for note in event["pruned"]] == [NEW]


def test_the_projects_own_set_shares_its_sources() -> None:
    frozen_dir = find_frozen_dir()
    for op in list_frozen_ops(frozen_dir):
        folder = frozen_dir / op
        assert list_old_kernels(folder) == []
        assert len(list((folder / "revisions").iterdir())) <= len(list((folder / "kernels").iterdir()))
        paths = [p.relative_to(frozen_dir.parent) for p in folder.rglob("tree.json")]
        listed = subprocess.run(
            ["git", "ls-files", "--", *map(str, paths)], cwd=frozen_dir.parent, capture_output=True, text=True, check=False
        )
        assert listed.returncode != 0 or len(listed.stdout.splitlines()) == len(paths), "git ignores what the set needs"


@pytest.mark.parametrize(("op", "family"), [("softmax", "naive__"), pytest.param("gemm_backward", "streamed__", marks=pytest.mark.slow)])
def test_a_kernel_comes_out_of_its_revision_as_it_was_sealed(op: str, family: str, tmp_path: Path) -> None:
    frozen = read_frozen_op(find_frozen_dir(), op)
    kernel = read_kernel(frozen.folder, next(k for k in frozen.kernels if k.startswith(family)))
    library = compile_kernel(kernel, find_toolchain(), tmp_path)
    assert find_other_code(kernel, library) == ""
