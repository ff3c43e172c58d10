"""``python -m device compile`` and ``run``: programs that never end, are told to, or rely on what CUDA does not promise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from device.loader import find_emulator_library
from device.settings import read_settings

from .command_line import call_device

Run = Callable[..., tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]]
SOURCE = Path(__file__).with_name("waits.cu")
DEVICE = [sys.executable, "-m", "device"]


def place_of(text: str, count: int = 1) -> str:
    """Where the text stands in the source for the ``count``-th time, as in findings."""
    lines = [number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line]
    return f"at waits.cu:{lines[count - 1]} "


def environment() -> dict[str, str]:
    return {**os.environ, "AICF_EMULATOR_LIBRARY": str(find_emulator_library(read_settings()))}


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run_waits") / "waits"
    command = [*DEVICE, "compile", str(SOURCE), "-std=c++17", "-gencode", "arch=compute_90a,code=compute_90a", "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def run(program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(case: str, *options: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
        report = tmp_path / "report.json"
        limit = () if "--max-seconds" in options else ("--max-seconds", "60")
        done = call_device(capfd, "run", *limit, *options, "--report", str(report), str(program), case)
        return done, json.loads(report.read_text())["findings"]

    return call


@pytest.mark.slow
def test_compile_links_the_runtime_and_the_driver_with_no_further_option(program: Path) -> None:
    done = subprocess.run([*DEVICE, "run", str(program), "driver"], capture_output=True, text=True, env=environment(), check=False)
    assert done.stdout == "1 devices\ncudaSuccess 0\n", done.stderr


def test_compile_refuses_another_runtime_and_passes_nvccs_exit_code_on(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.cu"
    wrong.write_text("int main() { return nothing; }\n")
    for arguments, code, said in (
        (["-cudart", "static", str(wrong)], 2, "needs the shared CUDA runtime"),
        (["-cudart=none", str(wrong)], 2, "needs the shared CUDA runtime"),
        ([str(wrong), "-ptx", "-o", str(tmp_path / "x")], None, "nothing"),
    ):
        done = subprocess.run([*DEVICE, "compile", *arguments], capture_output=True, text=True, env=environment(), check=False)
        assert done.returncode == code if code else done.returncode != 0
        assert said in done.stderr + done.stdout


def test_find_lists_each_source_with_a_main(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("#include <cuda_runtime.h>\nint main() { return cudaDeviceSynchronize(); }\n")
    (tmp_path / "helper.cuh").write_text("__device__ int f();\n")
    done = subprocess.run([*DEVICE, "find", str(tmp_path)], capture_output=True, text=True, env=environment(), check=False)
    assert done.stdout == f"{tmp_path / 'a.cu'}\n"


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("case", "mended", "said"),
    [
        (
            "grid_barrier_skipped",
            "grid_barrier",
            ["kernel grid_barrier\n", "reads again and again address 0x", "warp 0, threads 0x1: reads"],
        ),
        ("flag_unset", "flag", [place_of("while (ready[0]"), "threads 0xffffffff: reads again and again address 0x"]),
        ("counts_turns_unset", "counts_turns", [place_of("++turns"), "reads again and again address 0x"]),
        ("backs_off_unset", "backs_off", [place_of("__nanosleep(pause)"), "reads again and again address 0x"]),
        ("barrier_in_turn_unset", "barrier_in_turn", ["kernel barrier_in_turn\n", place_of("while (__syncthreads_or(ready[0])")]),
        ("two_words_unset", "two_words", [place_of("while (ready[0] == 0 && ready[1] == 0)"), "reads again and again address 0x"]),
        ("many_words_unset", "many_words", ["kernel many_words\n", "is at waits.cu:"]),
        ("read_once_unset", "read_once", [place_of("while (*ready == ")]),
    ],
)
def test_a_wait_for_what_nobody_writes_is_a_deadlock(run: Run, case: str, mended: str, said: list[str], workers: str) -> None:
    options = ("--option", f"workers={workers}", "--option", "warp_quantum=512")  # short turns: it is found after a few of them
    done, findings = run(case, *options)
    assert done.returncode == 1
    (finding,) = [each for each in findings if each["kind"] == "deadlock"]
    assert all(part in finding["text"] for part in said), finding["text"]
    done, findings = run(mended, "--option", f"workers={workers}")
    assert (done.returncode, [each for each in findings if each["severity"] == "error" and each["kind"] != "global_race"]) == (0, [])


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("case", ["gives_up", "gives_up_in_time", "gives_up_mbarrier", "ping_pong", "computes"])
def test_a_wait_that_ends_by_itself_is_no_deadlock(run: Run, case: str, workers: str) -> None:
    done, findings = run(case, "--option", f"workers={workers}")
    assert done.stdout.startswith("cudaSuccess"), done.stderr
    assert [each for each in findings if each["kind"] not in ("global_race", "global_race_same_value")] == []


def test_large_blocks_that_wait_for_nobody_are_not_all_set_aside(program: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [*DEVICE, "run", "--option", "workers=1", "--option", "warp_quantum=16", "--report", str(report)]  # many turns each
    # Started by a process of its own: what the kernel says of a process's memory counts what it had as a copy of its parent.
    done = subprocess.run(
        [*command, str(program), "large_blocks"], capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert json.loads(report.read_text())["findings"] == []
    assert int(done.stdout.split()[0]) < 700  # MB; a block takes 8, with its shadow


def test_two_barriers_that_meet_are_a_warning_and_copies_of_one_are_none(run: Run) -> None:
    _, findings = run("barriers_apart")
    (finding,) = [each for each in findings if each["kind"] == "barrier_places"]
    assert finding["severity"] == "warning"
    assert all(place_of("__syncthreads()", count) in finding["text"] for count in (1, 2))
    for mended in ("barriers", "unrolled"):
        assert [each for each in run(mended)[1] if each["kind"] == "barrier_places"] == []


def test_fresh_memory_is_zero_on_request_and_a_note_says_who_relies_on_it(run: Run) -> None:
    done, findings = run("fresh")
    assert [each["kind"] for each in findings] == ["uninitialized_read"] and done.stdout != "cudaSuccess 1\n"
    done, findings = run("fresh", "--zero-memory")
    assert [(each["kind"], each["severity"]) for each in findings] == [("fresh_memory_read", "note")]
    assert place_of("+= 1") in findings[0]["text"] and done.stdout == "cudaSuccess 1\n"
    assert run("cleared", "--zero-memory")[1] == []


def test_a_program_whose_time_is_up_is_ended_and_says_what_it_was_at(run: Run) -> None:
    done, findings = run("counts", "--max-seconds", "2")
    assert done.returncode == 124 and "ended after 2 s (--max-seconds)" in done.stderr
    (finding,) = [each for each in findings if each["kind"] == "interrupted"]
    assert "kernel counts\n" in finding["text"] and place_of("i != ~0u") in finding["text"]
    assert run("flag", "--max-seconds", "30")[0].returncode == 0


def read_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def find_child(parent: subprocess.Popen[str]) -> int:
    (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    return int(child)


@pytest.mark.parametrize(
    ("case", "said"), [("many_blocks", " of 2000000000 blocks begun"), ("many_launches", "add"), ("computes_for_ever", "kernel computes\n")]
)
def test_short_blocks_short_launches_and_turns_that_barriers_end_are_ended_and_named(
    program: Path, tmp_path: Path, case: str, said: str
) -> None:
    report = tmp_path / "report.json"
    command = [*DEVICE, "run", "--option", "workers=1", "--report", str(report), str(program), case]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "begins\n"
        # Until the kernel runs, however busy the machine is: by the program's own time, of which a launch takes little.
        child = find_child(parent)
        enough = read_cpu_seconds(child) + 0.5
        while read_cpu_seconds(child) < enough:
            time.sleep(0.02)
        parent.send_signal(signal.SIGTERM)  # which is passed on, as when the time of --max-seconds is up
        assert parent.wait(60) == 128 + signal.SIGTERM
    (finding,) = [each for each in json.loads(report.read_text())["findings"] if each["kind"] == "interrupted"]
    assert said in finding["text"]


def test_a_program_ends_with_the_process_that_runs_it(program: Path) -> None:
    with subprocess.Popen([*DEVICE, "run", str(program), "counts"], stdout=subprocess.PIPE, text=True, env=environment()) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "counting\n"
        child = find_child(parent)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    status = Path(f"/proc/{child}/stat")
    end = time.monotonic() + 20
    while time.monotonic() < end and status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.05)
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"
