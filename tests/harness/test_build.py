"""The build: what is compiled when, what a failure leaves, and that the cache never serves a wrong entry."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.build import BuildResult, Compiler, build_op
from harness.cubin import read_ptx
from harness.discover import LoadedOp, find_op
from harness.errors import BuildError
from harness.store import Store, full_disk_as_error
from harness.targets import find_target
from harness.toolchain import find_toolchain

sys.path.insert(0, str(Path(__file__).parent))
from tiny_op import write_tiny_op  # noqa: E402


class CountingCompiler(Compiler):
    """Counts the processes it starts."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[list[str]] = []

    def run(self, command: Sequence[str], folder: Path) -> tuple[int, str]:
        self.commands.append(list(command))
        return super().run(command, folder)


class Bench:
    """A tiny op, a cache, and a way to build."""

    def __init__(self, root: Path) -> None:
        self.ops = write_tiny_op(root)
        self.loaded: LoadedOp = find_op("tiny", self.ops)
        self.store = Store(root / "cache")

    def build(self, *names: str) -> tuple[list[BuildResult], int]:
        compiler = CountingCompiler()
        results = build_op(
            self.loaded,
            self.loaded.op.select_variants(names or ["plain/threads32"]),
            toolchain=find_toolchain(),
            target=find_target("h200"),
            jobs=2,
            store=self.store,
            compiler=compiler,
        )
        return results, len(compiler.commands)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_second_build_starts_no_compiler_and_a_comment_keeps_the_machine_code(bench: Bench) -> None:
    [first], started = bench.build()
    assert first.error is None and first.library is not None and started == 2
    assert first.resources is not None and first.resources.registers > 0
    assert ".entry" in read_ptx(first.library)
    [again], started = bench.build()
    assert again.cached and started == 0 and again.library == first.library

    edit(bench.ops / "other" / "kernels.cu", "another", "a different")
    assert bench.build()[1] == 0
    edit(bench.ops / "common" / "tiny.cuh", "__device__", "// a comment\n__device__")
    [changed], started = bench.build()
    assert started == 2 and changed.key != first.key and changed.code_hash == first.code_hash
    edit(bench.ops / "common" / "tiny.cuh", "x + x", "x * 3.0f")
    assert bench.build()[0][0].code_hash != first.code_hash
    edit(bench.ops / "common" / "tiny.cuh", "x * 3.0f", "x + x")
    [back], started = bench.build()
    assert started == 0 and back.key == changed.key, "an earlier state of the sources is served from the cache"


def test_a_compile_error_is_data_of_its_variant(bench: Bench) -> None:
    (good, bad), _ = bench.build("plain/threads64", "broken")
    assert good.error is None
    assert bad.library is None and bad.error is not None
    assert "undeclared_name" in bad.error and "launcher.cu:" in bad.error and "int mistake = undeclared_name;" in bad.error
    assert bench.build("broken")[1] == 1, "a failed build must not be cached"
    assert not list((bench.store.root / "tmp").iterdir())


@pytest.mark.parametrize("damage", ["change", "remove", "manifest"])
def test_a_corrupt_entry_is_said_and_built_again(bench: Bench, damage: str) -> None:
    [built], _ = bench.build()
    assert built.library is not None
    if damage == "change":
        built.library.write_bytes(built.library.read_bytes()[:-1] + b"?")
    elif damage == "remove":
        built.library.unlink()
    else:
        (built.library.parent / "manifest.json").write_text("{")
    [again], started = bench.build()
    assert started == 2 and again.library is not None and again.library.is_file()
    assert any("corrupt" in warning and "built again" in warning for warning in bench.store.warnings)


def test_a_full_disk_names_the_cache_and_the_remedy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(BuildError, match="is full; free space there, or point AICF_CACHE_DIR"):
        bench.build()
    monkeypatch.undo()
    assert not list((bench.store.root / "tmp").iterdir())
    assert bench.build()[0][0].error is None


def test_an_unwritable_cache_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="not writable; point AICF_CACHE_DIR"), full_disk_as_error(tmp_path):
        raise PermissionError(errno.EACCES, "denied")


def test_an_interrupt_kills_the_compilers_and_leaves_nothing(bench: Bench) -> None:
    class Interrupted(CountingCompiler):
        def run(self, command: Sequence[str], folder: Path) -> tuple[int, str]:
            (folder / "half").write_text("written")
            threading.Timer(0.2, self.stop).start()
            return super().run(["sleep", "60"], folder)

    results = build_op(
        bench.loaded,
        bench.loaded.op.select_variants(["plain"]),
        toolchain=find_toolchain(),
        target=find_target("h200"),
        jobs=2,
        store=bench.store,
        compiler=Interrupted(),
    )
    assert all(r.library is None for r in results)
    assert not list((bench.store.root / "tmp").iterdir())
    assert not (bench.store.root / "variants").exists()
