"""`frozen prune`: what goes goes by a recorded event, and all else stays bit for bit; and the sources that kernels share."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from contract.building import compile_kernel, find_other_code
from contract.kernels import read_kernel
from contract.layout import HISTORY, INDEX, find_frozen_dir, name_manifest
from device.toolchain import find_toolchain
from harness.errors import FrozenError
from harness.freezing.store.changes import change_index, demote, list_prunable, prune, roll_back
from harness.freezing.store.history import read_history
from harness.freezing.store.index import list_frozen_ops, read_frozen_op
from harness.freezing.store.verify import check_op, require_sound
from tests.freezing.frozen_sets import OP, REVISION, SOURCES, QuickDisk, make_bucket, make_rows, read_everything, write_frozen_set

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
