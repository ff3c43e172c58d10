"""`frozen verify` says which kernel no longer comes out of its sources, was sealed by another compiler, or is wrong."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from device.settings import find_project_root
from harness.discover import load_op
from harness.errors import BuildError, FrozenError
from harness.freezing.seal import rebuild
from harness.freezing.seal.rebuild import RebuildSetup, check_frozen, check_kernel
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.verify import require_sound
from tests.freezing.frozen_sets import OP, REVISION, write_frozen_set

KERNEL = "plain__threads32__00000001"
BENCH = RebuildSetup(SimpleNamespace(nvcc_version="13.0.88"), "emulated", "h200", 1)  # type: ignore[arg-type]


@pytest.fixture
def frozen_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set whose kernels compile, come out as they were sealed, and are right, unless a test says otherwise."""
    monkeypatch.setattr(rebuild, "compile_kernel", lambda kernel, toolchain, scratch: scratch / "kernel.so")
    monkeypatch.setattr(rebuild, "find_other_code", lambda kernel, library: "")
    monkeypatch.setattr(rebuild, "_verify", lambda kernel, library, bench: "")
    return write_frozen_set(tmp_path)


def check(frozen_dir: Path, **changes: Any) -> list[tuple[str, str]]:
    bench = RebuildSetup(**(vars(BENCH) | changes))
    return [(f.kind, f.detail) for f in check_kernel(read_frozen_op(frozen_dir, OP), KERNEL, bench)]


def test_a_sound_set_is_rebuilt_and_passes(frozen_dir: Path) -> None:
    assert check_frozen(frozen_dir, [OP], BENCH) == ([], 2)
    assert check_frozen(frozen_dir, [OP], BENCH, [KERNEL]) == ([], 1)
    assert check_frozen(frozen_dir, [OP], None) == ([], 0)


def test_another_compiler_is_skew_and_not_another_kernel(frozen_dir: Path) -> None:
    ((kind, detail),) = check(frozen_dir, toolchain=SimpleNamespace(nvcc_version="13.1.1"))
    assert kind == "skew" and "sealed with nvcc 13.0.88, this is nvcc 13.1.1" in detail and "nvidia-cuda-nvcc==13.0.88" in detail


def test_another_machine_code_is_named(frozen_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "find_other_code", lambda kernel, library: "the machine code is a..., the manifest pins 0...")
    assert check(frozen_dir) == [("rebuild", "the machine code is a..., the manifest pins 0...")]


def test_sources_that_do_not_compile_are_named(frozen_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Path:
        raise BuildError("plain does not compile from its sealed sources")

    monkeypatch.setattr(rebuild, "compile_kernel", fail)
    assert check(frozen_dir) == [("rebuild", "plain does not compile from its sealed sources")]


def test_a_kernel_that_is_wrong_is_named(frozen_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "_verify", lambda *_: "race: two threads write y[0]")
    assert check(frozen_dir) == [("reference", "race: two threads write y[0]")]


def test_what_was_edited_is_not_rebuilt_and_nothing_is_changed_on_it(frozen_dir: Path) -> None:
    source = frozen_dir / OP / REVISION / "sources" / "tiny" / "launcher.cu"
    source.write_text("// better\n")
    findings, num_rebuilt = check_frozen(frozen_dir, [OP], BENCH)
    assert [f.kind for f in findings] == ["changed"] and num_rebuilt == 0
    with pytest.raises(FrozenError, match=r"it is not the source that was sealed; .* are made of it; nothing was changed"):
        require_sound(frozen_dir, OP)


def test_loading_sealed_sources_leaves_nothing_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Python writes caches, as it does by itself: what nobody sealed would be found, and be in the way of the next change."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    sealed = next(path.parent for path in sorted((find_project_root() / "frozen" / "gemm_bias_act").glob("revisions/*/sources/*/op.py")))
    folder = tmp_path / sealed.name
    shutil.copytree(sealed, folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = sorted(folder.rglob("*"))
    assert load_op(folder).name == "gemm_bias_act"
    assert sorted(folder.rglob("*")) == before and not sys.dont_write_bytecode
