"""The build: what is compiled when, what a failure leaves, and that the cache never serves a wrong entry."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from contract.files import write_atomically
from device.cubin import read_ptx
from device.settings import find_project_root
from device.toolchain import find_toolchain
from harness.build.binding import build_binding
from harness.build.builder import BuildResult, build_op
from harness.build.compiler import Compiler
from harness.build.store import Store, full_disk_as_error
from harness.discover import LoadedOp, find_op
from harness.errors import BuildError
from harness.scaffold import create_op
from harness.targets import find_target

sys.path.insert(0, str(Path(__file__).parent))
from tiny_op import write_tiny_op


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

    def build(self, *names: str, compiler: CountingCompiler | None = None) -> tuple[list[BuildResult], int]:
        compiler = compiler or CountingCompiler()
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
    assert bench.build("broken")[1] == 2, "a failed build must not be cached; it failed with all of <cmath>, too"
    assert not list((bench.store.root / "tmp").iterdir())


def test_sources_that_want_special_functions_get_them_and_others_are_compiled_without(bench: Bench) -> None:
    compiler = CountingCompiler()
    [plain], _ = bench.build(compiler=compiler)
    assert any("SPECFUN" in word for word in compiler.commands[0]) and "SPECFUN" not in plain.flags
    edit(
        bench.ops / "common" / "tiny.cuh",
        "__device__",
        "#include <cmath>\ninline double zeta() { return std::riemann_zeta(2.0); }\n__device__",
    )
    compiler = CountingCompiler()
    [special], started = bench.build(compiler=compiler)
    assert special.error is None and started == 3 and special.code_hash == plain.code_hash
    assert not any("SPECFUN" in word for word in compiler.commands[1])


def test_sources_that_want_algorithms_on_ranges_get_them(bench: Bench) -> None:
    use = "#include <algorithm>\ninline void sort(int (&values)[2]) { std::ranges::sort(values); }\n__device__"
    edit(bench.ops / "common" / "tiny.cuh", "__device__", use)
    compiler = CountingCompiler()
    [built], started = bench.build(compiler=compiler)
    assert built.error is None and started == 3
    assert any("RANGES_ALGO" in word for word in compiler.commands[0]) and not any("RANGES_ALGO" in w for w in compiler.commands[1])


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


class EditingCompiler(CountingCompiler):
    """Edits a header after each of the first ``num_edits`` compilations, as a person may while the compiler still runs."""

    def __init__(self, header: Path, num_edits: int) -> None:
        super().__init__()
        self.header, self.num_edits = header, num_edits

    def run(self, command: Sequence[str], folder: Path) -> tuple[int, str]:
        result = super().run(command, folder)
        if "-c" in command and self.num_edits:
            self.num_edits -= 1
            self.header.write_text(self.header.read_text().replace("x + x", "x * 3.0f") + "\n")
        return result


def test_an_edit_while_the_compiler_runs_never_puts_old_code_under_the_new_sources(bench: Bench) -> None:
    [before], _ = bench.build()
    [built], started = bench.build("plain/threads64", compiler=EditingCompiler(bench.ops / "common" / "tiny.cuh", 1))
    assert started == 4, "what was compiled from the sources of before is made again"
    assert built.code_hash != before.code_hash
    [again], started = bench.build("plain/threads64")
    assert started == 0 and again.code_hash == built.code_hash


@pytest.mark.slow
def test_sources_that_never_hold_still_are_said_and_not_cached(bench: Bench) -> None:
    [built], _ = bench.build(compiler=EditingCompiler(bench.ops / "common" / "tiny.cuh", 99))
    assert built.library is None and built.error is not None and "when they are still" in built.error
    assert bench.build()[1] == 2


def test_a_source_line_in_another_encoding_is_shown_as_far_as_it_can_be(bench: Bench) -> None:
    source = bench.ops / "tiny" / "launcher.cu"
    source.write_bytes(source.read_bytes().replace(b"undeclared_name;", b"undeclared_name; // \xe9t\xe9"))
    [broken], _ = bench.build("broken")
    assert broken.error is not None and "int mistake = undeclared_name; // \ufffdt\ufffd" in broken.error


def test_an_interrupt_ends_the_child_that_the_main_thread_waits_for(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    compiler = Compiler()
    # A shell that starts the tests in the background has them ignore interrupts.
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler)))
    pid = tmp_path / "pid"

    def interrupt() -> None:
        while not (pid.is_file() and pid.read_text().endswith("\n")):
            time.sleep(0.01)
        # A real signal to the main thread: only that ends its wait, as Ctrl-C does.
        signal.pthread_kill(main_thread, signal.SIGINT)

    main_thread = threading.main_thread().ident
    assert main_thread is not None
    timer = threading.Thread(target=interrupt)
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compiler.run(["sh", "-c", "echo $$ > pid; sleep 60; :"], tmp_path)
    timer.join()
    assert time.monotonic() - started < 20
    assert not Path("/proc", pid.read_text().strip()).exists()


def test_a_corrupt_entry_is_told_as_it_is_found(tmp_path: Path) -> None:
    told: list[str] = []
    store = Store(tmp_path, on_warning=told.append)
    with store.scratch() as scratch:
        made = scratch / "made"
        made.mkdir()
        (made / "file").write_text("whole")
        entry = store.add("things", "request", made, {}, {})
    assert store.find("things", "request") is not None and not told
    (entry.folder / "file").write_text("broken")
    assert store.find("things", "request") is None
    assert len(told) == 1 and "file changed since it was built" in told[0]


@pytest.mark.slow
def test_a_new_op_compiles(tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "common").symlink_to(find_project_root() / "ops" / "common")
    create_op("fused_scale", ops_dir=tmp_path / "ops")
    loaded, store = find_op("fused_scale", tmp_path / "ops"), Store(tmp_path / "cache")
    variants = loaded.op.select_variants(["scalar/threads128", "vector/threads128"])
    results = build_op(loaded, variants, toolchain=find_toolchain(), target=find_target("h200"), jobs=2, store=store)
    assert [r.error for r in results] == [None, None]
    assert all(r.resources is not None and r.resources.spill_bytes == 0 for r in results)
    assert build_binding(loaded, find_toolchain(), store=store).is_file()


def test_what_a_killed_build_left_is_removed_a_day_later(bench: Bench) -> None:
    old, young = (bench.store.root / "tmp" / name for name in ("old", "young"))
    for folder in (old, young):
        folder.mkdir(parents=True)
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    with bench.store.scratch():
        assert not old.exists() and young.exists()


def test_what_a_process_left_that_is_gone_is_removed_at_once_and_what_is_in_use_is_not(bench: Bench) -> None:
    words = "import os, sys; from pathlib import Path; from harness.build.store import Store\n"
    words += "with Store(Path(sys.argv[1])).scratch() as place: print(place.name, flush=True); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", words, str(bench.store.root)], capture_output=True, text=True, check=False)
    left = bench.store.root / "tmp" / done.stdout.strip()
    assert left.is_dir() and left.name
    with bench.store.scratch() as held:
        assert left.exists(), "it may be so young that its owner does not hold it yet"
        past = time.time() - 300
        for folder in (left, held):
            os.utime(folder, (past, past))
        with bench.store.scratch():
            assert not left.exists() and held.exists()


def test_files_and_entries_have_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "page.html", "text")
        store = Store(tmp_path / "cache")
        with store.scratch() as scratch:
            (scratch / "file").write_text("content")
            entry = store.add("things", "request", scratch, {}, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o640
    assert stat.S_IMODE(entry.folder.stat().st_mode) == 0o750
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["page.html"]


def test_compilers_can_give_way_to_others(tmp_path: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    wait = "while os.getpriority(0, 0) == {} and time.time() < end: time.sleep(0.01)"
    lines = ["import os, time", "end = time.time() + 10", wait.format(own), "print(os.getpriority(0, 0))"]
    assert Compiler().run([sys.executable, "-c", lines[0] + "; " + lines[3]], tmp_path) == (0, f"{own}\n")
    assert Compiler(niceness=3).run([sys.executable, "-c", "\n".join(lines)], tmp_path) == (0, f"{min(19, own + 3)}\n")
