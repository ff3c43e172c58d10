"""Promote, demote, rollback and recover cut short at every file operation: the next one works, or recover does, and verify is clean.

A child process is killed at the n-th operation on the frozen set, for each n: Python tells of them all (``sys.addaudithook``), also of
those that no seam of the code knows. The same for a disk that is full, or may not be written, from the n-th operation on.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.layout import INDEX, JOURNAL, KERNELS, LOCK_PREFIX, dump_line, hash_bytes
from harness.errors import FrozenError
from harness.freezing.store import changes, verify
from harness.freezing.store.changes import change_index, demote, prune, roll_back
from harness.freezing.store.history import read_history
from harness.freezing.store.index import list_frozen_ops, read_frozen_op
from harness.freezing.store.transaction import clear_up, recover
from harness.freezing.store.verify import check_op, check_set, require_sound
from harness.records.provenance import Commit
from tests.freezing.frozen_sets import (
    OP,
    REVISION,
    SOURCES,
    QuickDisk,
    make_bucket,
    make_median,
    make_rows,
    read_everything,
    write_frozen_set,
)

NEW = "plain__threads96__00000003"
LONG = "sm_90a/any/any/any/long"
_CHANGING = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
_MOST = 150


def promote(frozen_dir: Path) -> None:
    """As the verb does: the set is looked at first, then changed."""
    frozen = require_sound(frozen_dir, OP)
    rows, files = make_rows(NEW)
    change_index(frozen_dir, OP, "promote", "new", put=[*rows, make_median(NEW, 32, 1.5)], files=files, expect=frozen, disk=QuickDisk())


def demote_long(frozen_dir: Path) -> None:
    require_sound(frozen_dir, OP)
    demote(frozen_dir, OP, [LONG], "it was wrong")


def roll_back_to_first(frozen_dir: Path) -> None:
    require_sound(frozen_dir, OP)
    events, _ = read_history(frozen_dir / OP)
    roll_back(frozen_dir, OP, events[0][0], "back")


def prune_unnamed(frozen_dir: Path) -> None:
    require_sound(frozen_dir, OP)
    prune(frozen_dir, OP, "they are in the way")


def clear(frozen_dir: Path) -> None:
    clear_up(frozen_dir, OP)


def list_kernels(frozen_dir: Path) -> list[str]:
    return sorted(path.stem for path in (frozen_dir / OP / KERNELS).iterdir())


def fork(work: Callable[[], object]) -> int:
    """Run in a child process; return its wait status."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except FrozenError as error:
            print(error)
            code = 2
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitpid(child, 0)[1]


def at_operation(frozen_dir: Path, number: int, act: Callable[[str], None]) -> None:
    """Have ``act`` done before the n-th operation of this process by which the frozen set changes, and those after it."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (event in _CHANGING or writes) and str(arguments[0]).startswith(str(frozen_dir)):
            seen += 1
            if seen > number:
                act(event)

    sys.addaudithook(hook)


def kill(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(event: str) -> None:
    if event not in ("os.remove", "os.rmdir"):  # a full disk lets files go
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def cut_short(frozen_dir: Path, number: int, act: Callable[[str], None], work: Callable[[Path], object]) -> int:
    def run() -> None:
        at_operation(frozen_dir, number, act)
        work(frozen_dir)

    return fork(run)


def find_kernels(frozen_dir: Path) -> set[str]:
    return set(read_frozen_op(frozen_dir, OP).kernels)


@pytest.fixture(autouse=True)
def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred changes do not ask git each time where they were made."""
    monkeypatch.setattr(changes, "find_commit", lambda _: Commit("c" * 40, dirty=False))
    monkeypatch.setattr(verify, "list_committed_events", lambda _: [])


def try_again(work: Callable[[Path], object], frozen_dir: Path) -> str:
    """Return "" where it goes through, else the beginning of what it says."""
    try:
        work(frozen_dir)
    except FrozenError as error:
        return str(error).partition(";")[0]
    return ""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_frozen_set(tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="module")
def outlived(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set with two kernels that no entry names: one made of a tree that others have too, one of a tree of its own."""
    frozen_dir = tmp_path_factory.mktemp("outlived") / "frozen"
    shutil.copytree(written, frozen_dir)
    changed = SOURCES | {"sources/tiny/launcher.cu": b"// another\n"}
    for kernel, sources in (("plain__threads64__0000000b", changed), ("plain__threads64__0000000c", SOURCES)):
        rows, files = make_rows(kernel, "long", sources=sources)
        change_index(frozen_dir, OP, "promote", "", put=rows, files=files, disk=QuickDisk())
    rows, _ = make_rows("plain__threads64__00000002", "long")
    change_index(frozen_dir, OP, "promote", "", put=rows, files=make_rows("plain__threads64__00000002", "long")[1], disk=QuickDisk())
    return frozen_dir


@pytest.fixture
def start(request: pytest.FixtureRequest, work: Callable[[Path], object], is_first: bool) -> Path | None:
    """The set that a change is made to."""
    return None if is_first else request.getfixturevalue("outlived" if work is prune_unnamed else "written")


def prepare(written: Path | None, place: Path, *, is_first: bool = False) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if not is_first and written is not None:
        shutil.copytree(written, place / "frozen")
    return place / "frozen"


CHANGES = [
    (promote, True),
    (promote, False),
    (demote_long, False),
    (roll_back_to_first, False),
    (prune_unnamed, False),
]
NAMES = ["the first promote", "promote", "demote", "rollback", "prune"]


@pytest.mark.slow
@pytest.mark.parametrize(("work", "is_first"), CHANGES, ids=NAMES)
@pytest.mark.parametrize("then", ["the same again", "recover"])
def test_a_kill_at_any_operation_is_in_the_way_of_nothing(
    start: Path | None, tmp_path: Path, work: Callable[[Path], object], is_first: bool, then: str
) -> None:
    num_killed = 0
    for number in range(_MOST):
        frozen_dir = prepare(start, tmp_path / "place", is_first=is_first)
        status = cut_short(frozen_dir, number, kill, work)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        num_killed += 1
        if (frozen_dir / OP).exists():
            assert list_frozen_ops(frozen_dir) == [OP], "an op without an index is seen too"
        if then == "recover":
            for op in list_frozen_ops(frozen_dir):
                clear_up(frozen_dir, op)
        else:
            # Where it was done before it was killed, there is nothing left to do.
            assert try_again(work, frozen_dir) in (
                "",
                "nothing in the frozen set of tiny would change",
                f"tiny has no entry for bucket {LONG}",
            )
        assert check_op(frozen_dir, OP) == [] and check_set(frozen_dir) == []
        if then != "recover" and work is promote:
            assert NEW in find_kernels(frozen_dir)
        if then != "recover" and work is prune_unnamed:
            assert list_kernels(frozen_dir) == ["plain__threads32__00000001", "plain__threads64__00000002"]
            assert len(list((frozen_dir / OP / "revisions").iterdir())) == 1
    else:
        pytest.fail("the change never came to its end")
    assert num_killed >= (6 if work is not promote else 12)


@pytest.mark.slow
@pytest.mark.parametrize("work", [promote, prune_unnamed], ids=["promote", "prune"])
@pytest.mark.parametrize("is_first", [False], ids=[""])
def test_a_kill_while_clearing_up_is_cleared_up_too(start: Path, tmp_path: Path, work: Callable[[Path], object], is_first: bool) -> None:
    for at in range(1, _MOST, 3 if work is promote else 7):
        broken = prepare(start, tmp_path / "broken", is_first=is_first)
        if not os.WIFSIGNALED(cut_short(broken, at, kill, work)):
            return
        for number in range(_MOST):
            frozen_dir = tmp_path / "place"
            shutil.rmtree(frozen_dir, ignore_errors=True)
            shutil.copytree(broken, frozen_dir)
            was_killed = os.WIFSIGNALED(cut_short(frozen_dir, number, kill, clear))
            clear_up(frozen_dir, OP)
            assert check_op(frozen_dir, OP) == [] and check_set(frozen_dir) == []
            if not was_killed:
                break
    pytest.fail("the change never came to its end")


@pytest.mark.parametrize(("work", "is_first"), CHANGES, ids=NAMES)
def test_a_disk_that_is_full_is_an_error_and_leaves_what_there_was(
    start: Path | None, tmp_path: Path, work: Callable[[Path], object], is_first: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    num_refused = 0
    for number in range(_MOST):
        frozen_dir = prepare(start, tmp_path / "place", is_first=is_first)
        before = read_everything(frozen_dir)
        status = cut_short(frozen_dir, number, refuse, work)
        if os.WEXITSTATUS(status) == 0:
            break
        told = capfd.readouterr().out
        assert os.WEXITSTATUS(status) == 2 and "No space left on device" in told and "nothing was changed" in told, told
        after = {name: content for name, content in read_everything(frozen_dir).items() if not name.startswith(LOCK_PREFIX)}
        assert after == {name: content for name, content in before.items() if not name.startswith(LOCK_PREFIX)}
        assert check_op(frozen_dir, OP) == [] and check_set(frozen_dir) == []
        num_refused += 1
    else:
        pytest.fail("the change never came to its end")
    assert num_refused > 4


def test_a_file_that_gets_too_long_is_an_error_and_leaves_what_there_was(written: Path, tmp_path: Path) -> None:
    """A limit of the operating system: a write fails in its middle."""
    for limit in (0, 40, 400, 1000):
        frozen_dir = prepare(written, tmp_path / f"{limit}", is_first=False)

        def run(limit: int = limit, frozen_dir: Path = frozen_dir) -> None:
            rows, files = make_rows(NEW)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                change_index(frozen_dir, OP, "promote", "new", put=rows, files=files)
            except FrozenError:  # what this process prints goes to a file too
                os._exit(7)

        assert os.WEXITSTATUS(fork(run)) == 7
        assert check_op(frozen_dir, OP) == []
        assert NEW not in find_kernels(frozen_dir)


def test_an_interrupt_from_the_keyboard_leaves_what_there_was(written: Path, tmp_path: Path) -> None:
    class Interrupted(QuickDisk):
        def rename(self, source: Path, target: Path) -> None:
            if target.name == INDEX:
                raise KeyboardInterrupt
            super().rename(source, target)

    frozen_dir = prepare(written, tmp_path / "place", is_first=False)
    before = read_everything(frozen_dir / OP)
    rows, files = make_rows(NEW)
    with pytest.raises(KeyboardInterrupt):
        change_index(frozen_dir, OP, "promote", "", put=rows, files=files, disk=Interrupted())
    assert read_everything(frozen_dir / OP) == before


def plant(frozen_dir: Path, created: list[str], **changes: Any) -> None:
    index = hash_bytes((frozen_dir / OP / INDEX).read_bytes())
    journal = {"schema": 1, "created": created, "before": index, "after": "0" * 64} | changes
    (frozen_dir / OP / JOURNAL).write_text(dump_line(journal))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{outside}", "does not match|is not valid under any"),
        ("../../precious.txt", "does not match|is not valid under any"),
        ("revisions/0000000000000001/sources/../../../../precious.txt", "does not match|is not valid under any"),
        (f"../{OP}/index.jsonl", "does not match|is not valid under any"),
        (INDEX, "does not match|is not valid under any"),
        ("kernels/plain__threads32__00000001.json", "which the set has"),
        (f"{REVISION}/sources/tiny/op.py", "which the set has"),
        ("evidence", "does not match|is not valid under any"),
    ],
)
def test_a_planted_journal_removes_nothing(written: Path, tmp_path: Path, name: str, message: str) -> None:
    frozen_dir = prepare(written, tmp_path / "place", is_first=False)
    outside = tmp_path / "precious.txt"
    outside.write_text("precious")
    (tmp_path / "place" / "precious.txt").write_text("precious")
    plant(frozen_dir, [name.format(outside=outside)])
    before = read_everything(tmp_path)
    with pytest.raises(FrozenError, match=message):
        recover(frozen_dir / OP)
    with pytest.raises(FrozenError, match="remove it by hand"):
        require_sound(frozen_dir, OP)
    now = {n: c for n, c in read_everything(tmp_path).items() if LOCK_PREFIX not in n}
    assert now == {n: c for n, c in before.items() if LOCK_PREFIX not in n}
    assert [f.kind for f in check_op(frozen_dir, OP)] == ["interrupted"]


def test_a_planted_journal_does_not_remove_history_or_follow_links(written: Path, tmp_path: Path) -> None:
    frozen_dir = prepare(written, tmp_path / "place", is_first=False)
    events, _ = read_history(frozen_dir / OP)
    for name, _ in events:
        plant(frozen_dir, [f"history/{name}"])
        with pytest.raises(FrozenError, match="names events that led to the present index"):
            recover(frozen_dir / OP)
        assert (frozen_dir / OP / "history" / name).is_file()
    outside = tmp_path / "outside" / "sources"
    outside.mkdir(parents=True)
    (outside / "a.cu").write_text("precious")
    (frozen_dir / OP / "revisions" / "0000000000000009").symlink_to(outside.parent)
    plant(frozen_dir, ["revisions/0000000000000009/sources/a.cu"])
    with pytest.raises(FrozenError, match="is a symbolic link"):
        recover(frozen_dir / OP)
    assert (outside / "a.cu").read_text() == "precious"
    plant(frozen_dir, [], before="1" * 64)
    with pytest.raises(FrozenError, match="is neither what it was before nor what it was to become"):
        recover(frozen_dir / OP)


def plant_done(frozen_dir: Path, removed: list[str], created: list[str] | None = None) -> None:
    """Plant the journal of a change that is in place, and has files still to remove."""
    plant(frozen_dir, created or [], after=hash_bytes((frozen_dir / OP / INDEX).read_bytes()), removed=removed)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kernels/plain__threads32__00000001.json", "takes .* away, which the set needs"),
        ("kernels/plain__threads64__0000000b.json", "takes .* away, which the set needs"),
        (f"{REVISION}/tree.json", "takes .* away, which the set needs"),
        (f"{REVISION}/sources/tiny/op.py", "takes .* away, which the set needs"),
        ("plain__threads32__00000001/manifest.json", "takes .* away, which is no file of a kernel"),
        (INDEX, "does not match|is not valid under any"),
        ("evidence/a-0123456789abcdef.json", "does not match|is not valid under any"),
        ("history/20260101T000000.000000Z-prune-0123456789abcdef.json", "does not match|is not valid under any"),
        ("revisions/0000000000000001/sources/../../../index.jsonl", "does not match|is not valid under any"),
    ],
)
def test_a_planted_journal_takes_nothing_away_that_the_set_needs(outlived: Path, tmp_path: Path, name: str, message: str) -> None:
    """Also not a kernel that no entry names: until it is pruned, the history asks for it."""
    frozen_dir = prepare(outlived, tmp_path / "place")
    before = read_everything(frozen_dir / OP)
    if not (frozen_dir / OP / name).exists() and ".." not in name:
        (frozen_dir / OP / name).parent.mkdir(parents=True, exist_ok=True)
        (frozen_dir / OP / name).write_text("{}")
        before = read_everything(frozen_dir / OP)
    plant_done(frozen_dir, [name])
    with pytest.raises(FrozenError, match=message):
        recover(frozen_dir / OP)
    (frozen_dir / OP / JOURNAL).unlink()
    assert read_everything(frozen_dir / OP) == before


def test_a_planted_journal_removes_no_event_without_rows(outlived: Path, tmp_path: Path) -> None:
    frozen_dir = prepare(outlived, tmp_path / "place")
    prune_unnamed(frozen_dir)
    events, _ = read_history(frozen_dir / OP)
    for names in ([events[-1][0]], [name for name, _ in events[-2:]]):
        plant(frozen_dir, [f"history/{name}" for name in names])
        with pytest.raises(FrozenError, match="names events that led to the present index"):
            recover(frozen_dir / OP)
    (frozen_dir / OP / JOURNAL).unlink()
    assert check_op(frozen_dir, OP) == []


def test_a_lock_that_is_a_link_empties_nothing(written: Path, tmp_path: Path) -> None:
    frozen_dir = prepare(written, tmp_path / "place", is_first=False)
    (tmp_path / "precious.txt").write_text("precious")
    lock = frozen_dir / f"{LOCK_PREFIX}{OP}"
    lock.unlink(missing_ok=True)
    lock.symlink_to(tmp_path / "precious.txt")
    with pytest.raises(FrozenError, match="cannot be locked"):
        promote(frozen_dir)
    assert (tmp_path / "precious.txt").read_text() == "precious"


def test_a_promotion_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    frozen_dir = tmp_path / "frozen"
    rows, files = make_rows(NEW)
    rows[-1]["status"] = "excellent"
    with pytest.raises(FrozenError, match="refused to write"):
        change_index(frozen_dir, OP, "promote", "", put=rows, files=files)
    assert list_frozen_ops(frozen_dir) == [] and check_set(frozen_dir) == []
    assert make_bucket() in [r["bucket"] for r in rows if r["kind"] == "entry"]
