"""The verb ``frozen``: an op's name is a name, what was cut short is found by folder and cleared up, and what is gone is missed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import harness.doctor
from contract.kernels import read_kernel
from contract.layout import HISTORY, INDEX, JOURNAL, dump_document, find_frozen_dir
from device import choose_device
from device.settings import find_project_root
from device.toolchain import NVCC_VERSION, find_toolchain, name_remedy
from harness.__main__ import main
from harness.doctor import examine
from harness.freezing.store.history import name_event, read_history
from harness.freezing.store.index import list_frozen_ops, read_frozen_op
from tests.freezing.frozen_sets import OP, write_frozen_set


@pytest.fixture
def frozen_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    frozen_dir = write_frozen_set(tmp_path)
    monkeypatch.setattr("harness.commands.frozen.find_frozen_dir", lambda: frozen_dir)
    return frozen_dir


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["frozen", *words])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out + told.err


@pytest.mark.parametrize("name", ["../ops", ".", "..", "/etc", "tiny/", "../../x", "schema", "a b", "", "Tiny", "tiny\n", ".lock-tiny"])
@pytest.mark.parametrize("action", ["list", "verify", "history", "demote", "rollback", "recover"])
def test_an_ops_name_is_no_path(frozen_dir: Path, capsys: pytest.CaptureFixture[str], action: str, name: str) -> None:
    before = sorted(frozen_dir.parent.rglob("*"))
    code, told = run(capsys, action, name)
    assert code == 2 and "is not an op's name" in told
    assert sorted(frozen_dir.parent.rglob("*")) == before


@pytest.mark.parametrize("words", [("promote", "../softmax"), ("verify", "./softmax"), ("build", "softmax/")])
def test_no_other_verb_takes_a_path_either(capsys: pytest.CaptureFixture[str], words: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2 and "unknown op" in capsys.readouterr().err


def test_an_op_without_an_index_is_seen_by_verify_and_recover(frozen_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = frozen_dir / OP / INDEX
    content = index.read_bytes()
    index.unlink()
    code, told = run(capsys, "verify", "--quick")
    assert code == 1 and f"{OP}/{INDEX}: missing" in told
    index.write_bytes(content)
    other = frozen_dir / "other" / "revisions" / "000000000000000a" / "sources"
    other.mkdir(parents=True)
    (other / ".new-op.py").write_text("half")
    code, told = run(capsys, "verify", "--quick")
    assert code == 1 and "other/revisions/000000000000000a/sources/.new-op.py: interrupted" in told
    code, told = run(capsys, "recover")
    assert code == 0 and "other: cleared up after a change that was cut short" in told
    assert f"{OP}: nothing is left of a change" in told
    assert run(capsys, "verify", "--quick") == (0, f"{OP}: hashes, schemas and history: agree\n1 op, 0 kernels rebuilt, 0 findings\n")


def test_an_event_of_an_action_that_is_gone_stays_in_the_history(frozen_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last, event = read_history(frozen_dir / OP)[0][-1]
    event = event | {"what": "migrate", "at": "99990101T000000.000000Z", "after": [last], "removed": [], "added": []}
    (frozen_dir / OP / HISTORY / name_event(event)).write_text(dump_document(event))
    assert run(capsys, "verify", "--quick", OP)[0] == 0
    code, told = run(capsys, "history", OP)
    assert code == 0 and told.count("-promote-") == 2 and name_event(event) in told
    code, told = run(capsys, "migrate", OP)
    assert code == 2 and "migrate" in told


def test_a_journal_that_is_no_journal_is_an_error_with_a_remedy(frozen_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (frozen_dir / OP / JOURNAL).write_text("[" * 100000)
    code, told = run(capsys, "recover", OP)
    assert code == 1 and "is nested too deeply, in more than 200 levels; nothing was removed: look at it, and remove it by hand" in told


def test_the_compiler_of_the_project_is_the_one_that_the_frozen_set_was_made_with() -> None:
    frozen_dir = find_frozen_dir()
    sealed_with = {
        read_kernel(frozen.folder, kernel).manifest["build"]["toolchain"]["nvcc"]
        for frozen in (read_frozen_op(frozen_dir, op) for op in list_frozen_ops(frozen_dir))
        for kernel in frozen.kernels
    }
    assert sealed_with == {NVCC_VERSION}
    required = tomllib.loads((find_project_root() / "pyproject.toml").read_text())["project"]["optional-dependencies"]["workbench"]
    for part in ("cuda-nvcc", "nvvm", "cuda-crt"):
        assert f"nvidia-{part}=={NVCC_VERSION}" in required
        assert f"nvidia-{part}=={NVCC_VERSION}" in name_remedy()


def test_doctor_says_that_another_compiler_does_not_build_what_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = SimpleNamespace(**(vars(find_toolchain()) | {"nvcc_version": "13.0.99"}))
    monkeypatch.setattr(harness.doctor, "find_toolchain", lambda: tools)
    found = next(f for f in examine(choose_device().name) if f.subject == "nvcc")
    assert found.status == "optional" and re.search(rf"13\.0\.99 .*made with {re.escape(NVCC_VERSION)}", found.detail)
    assert found.remedy == name_remedy()
