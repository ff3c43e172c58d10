"""Which programs a folder holds, and what is made of how one ended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from device.programs import BuildOptions, Program, RunOptions, build_program, find_programs, judge
from device.programs.verdicts import execute
from device.toolchain import Toolchain

MAIN = "int main() { return 0; }\n"


def make(root: Path, files: dict[str, str]) -> list[Program]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return find_programs(root)


def test_each_source_with_a_main_is_a_program_of_its_own(tmp_path: Path) -> None:
    found = make(tmp_path, {"a.cu": MAIN, "b.cu": "// comment\n" + MAIN, "shared.cu": "__global__ void f() {}\n"})
    assert [(p.name, p.helpers) for p in found] == [("a.cu", ()), ("b.cu", ())]


@pytest.mark.parametrize("kind", ["int", "int32_t", "std::int32_t", "auto", "int\n"])
def test_a_main_may_be_written_so(tmp_path: Path, kind: str) -> None:
    assert len(make(tmp_path, {"a.cu": f"{kind} main({kind.strip()} count, char* words[]) {{}}\n"})) == 1


def test_a_folder_with_one_main_is_one_program_of_all_its_sources(tmp_path: Path) -> None:
    found = make(tmp_path, {"x/main.cpp": MAIN, "x/kernel.cu": "__global__ void f() {}\n", "x/gold.cpp": "void gold() {}\n"})
    assert [(p.name, [h.name for h in p.helpers]) for p in found] == [("x/main.cpp", ["gold.cpp", "kernel.cu"])]


def test_what_another_source_includes_is_no_source_of_its_own(tmp_path: Path) -> None:
    found = make(tmp_path, {"main.cu": '#include "kernel.cu"\n' + MAIN, "kernel.cu": "__global__ void f() {}\n" + MAIN})
    assert [(p.name, p.helpers) for p in found] == [("main.cu", ())]


def test_a_program_that_has_nothing_of_cuda_is_left_out(tmp_path: Path) -> None:
    assert make(tmp_path, {"tool.cpp": MAIN, "talk.cu": "// int main() is described here\n"}) == []


def test_headers_are_looked_for_beside_and_above_the_program(tmp_path: Path) -> None:
    (tmp_path / "Common").mkdir()
    (tmp_path / "x" / "inc").mkdir(parents=True)
    (program,) = make(tmp_path, {"x/main.cu": MAIN})
    names = [str(folder.relative_to(tmp_path)) for folder in program.includes if folder.is_relative_to(tmp_path)]
    assert names == ["x", "x/inc", ".", "Common"]


REPORT = {"kind": "shared_race", "severity": "error", "text": "Race in shared memory\n  write at line 3\n"}
NOTE = {"kind": "shared_race_same_value", "severity": "note", "text": "harmless"}
MISSING = {"kind": "load_error", "severity": "error", "text": "unknown instruction foo.bar"}


@pytest.mark.parametrize(
    ("status", "text", "reports", "expected"),
    [
        (0, "Test PASSED\n", [], "pass"),
        (0, "Test PASSED\n", [NOTE], "pass"),
        (0, "sum = 3\n", [], "ran"),
        (0, "sum = 3\nResult = FAIL\n", [], "fail"),
        (0, "Results do not match at 3\n", [], "fail"),
        (0, "Results don't match!\n", [], "fail"),
        (0, "12 passed, 0 FAILED\n", [], "pass"),
        (0, "Test PASSED\n", [REPORT], "fail"),
        (1, "", [], "fail"),
        (-11, "Test PASSED\n", [], "fail"),
        (1, "", [MISSING], "unsupported"),
        (0, "sum = 3\n", [MISSING], "unsupported"),
        (0, "Test PASSED\n", [MISSING], "pass"),  # it asked, was told no, and did without
        (2, "waived: needs two devices\n", [], "waived"),
        (None, "", [], "timeout"),
    ],
)
def test_a_verdict_follows_from_status_output_and_reports(
    status: int | None, text: str, reports: list[dict[str, str]], expected: str
) -> None:
    assert judge("x", status, text, reports, 1.0).status == expected


def test_a_time_out_says_what_was_running() -> None:
    interrupted = {"kind": "interrupted", "severity": "error", "text": "Interrupted in kernel spin\n  block (0,0,0) at spin.cu:7\nmore\n"}
    assert judge("x", None, "", [interrupted], 60.2).reason == "more than 60 s; Interrupted in kernel spin block (0,0,0) at spin.cu:7"
    assert judge("x", None, "", [interrupted], 60.2).findings == ()
    assert judge("x", None, "", [], 60.2).reason == "more than 60 s; nothing reported of a launch"
    assert judge("x", None, "", [REPORT, interrupted], 60.2).reason == "more than 60 s; Race in shared memory write at line 3"


def test_a_program_past_its_time_may_say_what_it_is_at(tmp_path: Path) -> None:
    script = tmp_path / "slow"
    script.write_text("#!/bin/sh\ntrap 'echo told to end; exit 0' TERM\nwhile :; do sleep 0.05; done\n")
    script.chmod(0o755)
    runtime = tmp_path / "libcudart.so.13"
    runtime.touch()
    (program,) = make(tmp_path, {"slow.cu": MAIN})
    verdict = execute(program, script, (), RunOptions(runtime, tmp_path, timeout_s=0.5))
    assert (verdict.status, verdict.output) == ("timeout", "told to end\n")


def test_a_limit_in_processor_time_counts_what_a_program_uses_not_what_it_waits(tmp_path: Path) -> None:
    runtime = tmp_path / "libcudart.so.13"
    runtime.touch()
    (program,) = make(tmp_path, {"busy.cu": MAIN})
    verdicts = {}
    for name, work in (("busy", "while :; do :; done"), ("idle", "sleep 1; echo PASSED")):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{work}\n")
        script.chmod(0o755)
        verdicts[name] = execute(program, script, (), RunOptions(runtime, tmp_path, timeout_s=100, core_s=0.3)).status
    assert verdicts == {"busy": "timeout", "idle": "pass"}


def test_a_compiler_out_of_time_ends_with_what_it_started(tmp_path: Path) -> None:
    (tmp_path / "nvcc").write_text("#!/bin/sh\nsleep 300 &\necho $! > child\nwait\n")
    (tmp_path / "nvcc").chmod(0o755)
    (program,) = make(tmp_path, {"slow.cu": MAIN})
    runtime = tmp_path / "libcudart.so.13"
    toolchain = Toolchain(tmp_path / "nvcc", "13", tmp_path / "g++", "12", tmp_path, runtime, None, None)
    built = build_program(program, BuildOptions(toolchain, runtime, tmp_path / "cache", timeout_s=2.0))
    assert built.reason == "the compiler took more than 2 s"
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(child)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


_RUN_AND_WAIT = """
import sys
from pathlib import Path
from device.programs import Program, RunOptions
from device.programs.verdicts import execute
folder = Path(sys.argv[1])
program = Program("a", folder / "a.cu", (), ())
execute(program, folder / "program", (), RunOptions(folder, folder))
"""


def test_a_program_ends_with_whoever_runs_it(tmp_path: Path) -> None:
    """Killed without a word, the runner leaves nothing behind that goes on using processor time."""
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho $$ > "{tmp_path}/pid"\nexec sleep 60\n')
    program.chmod(0o755)
    runner = subprocess.Popen([sys.executable, "-c", _RUN_AND_WAIT, str(tmp_path)])
    pid_file = tmp_path / "pid"
    _wait_for(lambda: pid_file.is_file() and pid_file.read_text().endswith("\n"))
    pid = int(pid_file.read_text())
    assert _is_running(pid)
    runner.kill()
    runner.wait()
    _wait_for(lambda: not _is_running(pid))


def _is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
