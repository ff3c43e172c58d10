"""Changes of the frozen set happen whole or not at all: cut short at any write, taken back, and by one process at a time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.kernels import read_kernel
from contract.layout import INDEX
from harness.errors import FrozenError
from harness.freezing.store.changes import change_index, demote, roll_back
from harness.freezing.store.history import read_history
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.transaction import Disk, lock_op, recover
from harness.freezing.store.verify import check_op
from tests.freezing.frozen_sets import OP, REVISION, QuickDisk, make_bucket, make_median, make_rows, read_everything, write_frozen_set

NEW = "plain__threads96__00000003"


class FailingDisk(QuickDisk):
    """Loses power at the n-th step: before it, or, of a write, in its middle."""

    def __init__(self, steps: int, *, half: bool) -> None:
        self.left = steps
        self.half = half

    def _step(self) -> bool:
        self.left -= 1
        return self.left < 0

    def write(self, path: Path, content: bytes) -> None:
        if self._step():
            if self.half:
                path.write_bytes(content[: len(content) // 2])
            die()
        super().write(path, content)

    def rename(self, source: Path, target: Path) -> None:
        if self._step():
            if self.half:
                source.replace(target)
            die()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        if self._step():
            die()
        super().remove(path)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_until_killed(work: Callable[[], object]) -> bool:
    """Run in a child process; return whether it was killed on the way."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def promote_new(frozen_dir: Path, disk: Disk | None = None, region: str = "short") -> None:
    rows, files = make_rows(NEW, region)
    rows.append(make_median(NEW, 32, 1.5))
    change_index(frozen_dir, OP, "promote", "a faster one", put=rows, files=files, disk=disk or QuickDisk())


def strip_times(files: dict[str, bytes]) -> set[str]:
    return {name for name in files if not name.startswith(("history", "."))}


@pytest.mark.parametrize("half", [False, True])
def test_a_kill_at_any_write_leaves_the_old_or_the_new_set(tmp_path: Path, half: bool) -> None:
    frozen_dir = write_frozen_set(tmp_path)
    before = read_everything(frozen_dir / OP)
    whole = tmp_path / "whole"
    shutil.copytree(frozen_dir, whole)
    promote_new(whole)
    after = read_everything(whole / OP)
    outcomes = []
    for step in range(100):
        place = tmp_path / f"{step}"
        shutil.copytree(frozen_dir, place)
        killed = run_until_killed(lambda place=place, step=step: promote_new(place, FailingDisk(step, half=half)))
        # A reader sees the old or the new set at once, without clearing up.
        rows = read_frozen_op(place, OP).rows
        is_new = any(r.get("kernel") == NEW for r in rows)
        assert {r.get("kernel") for r in rows} == {r.get("kernel") for r in read_frozen_op(whole if is_new else frozen_dir, OP).rows}
        for entry in read_frozen_op(place, OP).entries:
            assert read_kernel(place / OP, entry["kernel"]).manifest["seal"] == entry["seal"]
        with lock_op(place, OP):
            pass
        assert check_op(place, OP) == []
        now = read_everything(place / OP)
        if is_new:
            assert strip_times(now) == strip_times(after)
        else:
            assert now == before
        outcomes.append(is_new)
        shutil.rmtree(place)
        if not killed:
            break
    else:
        pytest.fail("the change never came to its end")
    assert outcomes[0] is False and outcomes[-1] is True and outcomes == sorted(outcomes), "there is one moment of change"
    assert len(outcomes) > 10


def test_an_interrupted_change_is_reported_until_it_is_cleared_up(tmp_path: Path) -> None:
    frozen_dir = write_frozen_set(tmp_path)
    assert run_until_killed(lambda: promote_new(frozen_dir, FailingDisk(5, half=True)))
    assert [f.kind for f in check_op(frozen_dir, OP) if f.kind != "added"] == ["interrupted"]
    promote_new(frozen_dir)
    assert check_op(frozen_dir, OP) == []


def test_a_kill_while_clearing_up_is_cleared_up_too(tmp_path: Path) -> None:
    frozen_dir = write_frozen_set(tmp_path)
    before = read_everything(frozen_dir / OP)
    assert run_until_killed(lambda: promote_new(frozen_dir, FailingDisk(9, half=False)))
    broken = tmp_path / "broken"
    shutil.copytree(frozen_dir, broken)
    for step in range(20):
        shutil.rmtree(frozen_dir)
        shutil.copytree(broken, frozen_dir)
        killed = run_until_killed(lambda step=step: recover(frozen_dir / OP, FailingDisk(step, half=False)))
        recover(frozen_dir / OP)
        assert read_everything(frozen_dir / OP) == before
        if not killed:
            return
    pytest.fail("clearing up never came to its end")


def test_two_promotions_at_once_are_refused(tmp_path: Path) -> None:
    frozen_dir = write_frozen_set(tmp_path)
    with lock_op(frozen_dir, OP), pytest.raises(FrozenError, match="another process is changing the frozen set of tiny"):
        promote_new(frozen_dir)
    promote_new(frozen_dir)


def test_a_decision_on_an_outdated_set_is_refused(tmp_path: Path) -> None:
    frozen_dir = write_frozen_set(tmp_path)
    seen = read_frozen_op(frozen_dir, OP)
    promote_new(frozen_dir)
    rows, files = make_rows("plain__threads128__00000004")
    with pytest.raises(FrozenError, match="changed by another process meanwhile"):
        change_index(frozen_dir, OP, "promote", "", put=rows, files=files, expect=seen)
    assert check_op(frozen_dir, OP) == []


def test_a_kernel_of_the_same_name_with_another_content_is_refused(tmp_path: Path) -> None:
    frozen_dir = write_frozen_set(tmp_path)
    before = read_everything(frozen_dir / OP)
    rows, files = make_rows("plain__threads64__00000002", "short", reason="again")
    files[f"{REVISION}/sources/tiny/op.py"] = b"OP = 1\n"
    with pytest.raises(FrozenError, match="already exists with different content"):
        change_index(frozen_dir, OP, "promote", "", put=rows, files=files)
    assert read_everything(frozen_dir / OP) == before


def test_a_row_that_is_not_valid_is_not_written(tmp_path: Path) -> None:
    frozen_dir = write_frozen_set(tmp_path)
    before = read_everything(frozen_dir / OP)
    with pytest.raises(FrozenError, match="refused to write the frozen set of tiny: median_us"):
        change_index(frozen_dir, OP, "measure", "", put=[make_median("plain__threads64__00000002", 8, -1.0)])
    assert read_everything(frozen_dir / OP) == before


def test_demote_and_rollback(tmp_path: Path) -> None:
    frozen_dir = write_frozen_set(tmp_path)
    first = read_frozen_op(frozen_dir, OP)
    promote_new(frozen_dir)
    assert read_frozen_op(frozen_dir, OP).find_winner(make_bucket("short"))["kernel"] == NEW  # type: ignore[index]
    demote(frozen_dir, OP, ["sm_90a/any/any/any/short"], "it was wrong")
    left = read_frozen_op(frozen_dir, OP)
    assert left.kernels == ["plain__threads64__00000002"]
    assert [m["kernel"] for m in left.medians] == left.kernels, "times of a kernel that nobody names go with it"
    events, _ = read_history(frozen_dir / OP)
    assert [e["what"] for _, e in events] == ["promote", "promote", "promote", "demote"]
    roll_back(frozen_dir, OP, events[1][0][:22], "back to before")
    assert read_frozen_op(frozen_dir, OP).rows == first.rows
    assert check_op(frozen_dir, OP) == []
    roll_back(frozen_dir, OP, "", "to the beginning")
    assert read_frozen_op(frozen_dir, OP).rows == ()
    assert (frozen_dir / OP / INDEX).read_text() == ""
    roll_back(frozen_dir, OP, events[2][0], "all of it again")
    assert read_frozen_op(frozen_dir, OP).find_winner(make_bucket("short"))["kernel"] == NEW  # type: ignore[index]
    assert check_op(frozen_dir, OP) == []
    with pytest.raises(FrozenError, match="has no entry for bucket nowhere; it has: sm_90a/any/any/any/long"):
        demote(frozen_dir, OP, ["nowhere"], "")
    with pytest.raises(FrozenError, match="7 events of tiny begin with '2'; there are"):
        roll_back(frozen_dir, OP, "2", "")


def test_one_fallback_of_several_is_demoted(tmp_path: Path) -> None:
    frozen_dir = write_frozen_set(tmp_path)
    rows, files = make_rows("plain__threads256__00000005", "any")
    rows[-1]["role"] = "fallback"
    change_index(frozen_dir, OP, "promote", "", put=rows, files=files)
    rows, files = make_rows(NEW, "any")
    rows[-1]["role"] = "fallback"
    change_index(frozen_dir, OP, "promote", "", put=rows, files=files)
    before = {e["kernel"] for e in read_frozen_op(frozen_dir, OP).entries}
    with pytest.raises(FrozenError, match="tiny has no entry of kernel plain__threads32__00000001 there; there are: plain__threads256"):
        demote(frozen_dir, OP, ["sm_90a/any/any/any/any"], "", ["plain__threads32__00000001"])
    demote(frozen_dir, OP, ["sm_90a/any/any/any/any"], "superseded", ["plain__threads256__00000005"])
    assert before - {e["kernel"] for e in read_frozen_op(frozen_dir, OP).entries} == {"plain__threads256__00000005"}


def test_promotions_of_different_ops_merge_without_conflict(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text("/frozen/**/.*\n")
    frozen_dir = write_frozen_set(tmp_path)
    git("add", "-A")
    git("commit", "-qm", "first")
    git("checkout", "-qb", "other")
    demote(frozen_dir, OP, ["sm_90a/any/any/any/long"], "")
    git("add", "-A")
    git("commit", "-qm", "one op")
    git("checkout", "-q", "main")
    shutil.copytree(frozen_dir / OP, frozen_dir / "another")
    git("add", "-A")
    git("commit", "-qm", "another op")
    git("merge", "-q", "--no-edit", "other")
    assert git("status", "--porcelain") == ""
    assert check_op(frozen_dir, OP) == []


def test_promotions_of_different_buckets_of_an_op_merge_to_one_history(tmp_path: Path) -> None:
    """The files that two events bring have different names; of the index git keeps both lines, or asks."""
    frozen_dir = write_frozen_set(tmp_path)
    other = tmp_path / "other"
    shutil.copytree(frozen_dir, other)
    promote_new(frozen_dir, region="short")
    rows, files = make_rows("plain__threads128__00000004", "long")
    change_index(other, OP, "promote", "", put=rows, files=files)
    here, there = read_everything(frozen_dir / OP), read_everything(other / OP)
    assert {n for n in here if n in there and here[n] != there[n]} == {INDEX}
