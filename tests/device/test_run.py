"""``python -m device run``: programs that know nothing of the emulator run on it, and are told what is wrong with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from device.elf import read_executable
from device.loader import find_emulator_library
from device.programs.process import find_program
from device.settings import read_settings
from device.toolchain import find_toolchain

from .command_line import Run, call_device

SOURCE = Path(__file__).with_name("run_program.cu")


def _compile(folder: Path, name: str, runtime: str) -> Path:
    toolchain = find_toolchain()
    libraries = folder / "lib"
    if not libraries.is_dir():
        libraries.mkdir()
        (libraries / "libcudart.so").symlink_to(toolchain.cudart_library)  # the wheels have no libcudart.so
        for archive in toolchain.cudart_library.parent.glob("*.a"):
            (libraries / archive.name).symlink_to(archive)
    command = [str(toolchain.nvcc), "-cudart", runtime, "-gencode", "arch=compute_90a,code=compute_90a", "-lineinfo", f"-L{libraries}"]
    done = subprocess.run([*command, str(SOURCE), "-o", str(folder / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / name


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compile(tmp_path_factory.mktemp("run_shared"), "program", "shared")


@pytest.fixture
def run(program: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object, on: Path | str = program, stdin: str = "") -> subprocess.CompletedProcess[str]:
        options = [str(word) for word in words if str(word).startswith("-") or "=" in str(word)]
        rest = [str(word) for word in words if str(word) not in options]
        if not stdin:
            return call_device(capfd, "run", "--max-seconds", "60", *options, str(on), *rest)
        command = [sys.executable, "-m", "device", "run", *options, str(on), *rest]
        environment = {**os.environ, "AICF_EMULATOR_LIBRARY": str(find_emulator_library(read_settings()))}
        return subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=60, env=environment, check=False)

    return call


def test_a_clean_program_runs_and_is_told_so(run: Run) -> None:
    done = run("--leak-check", "clean", "one", "two")
    assert (done.returncode, done.stdout) == (0, "last 262, args 4\n")
    assert done.stderr == "========= ERROR SUMMARY: 0 errors\n"
    assert run("-q", "clean").stderr == ""


@pytest.mark.parametrize(("what", "code"), [("seven", 7), ("host_only", 5), ("abort", 134), ("deref", 139)])
def test_the_exit_code_is_the_programs_own(run: Run, what: str, code: int) -> None:
    done = run(what)
    assert done.returncode == code
    assert ("ended by SIG" in done.stderr) == (code > 128)


def test_streams_are_passed_through(run: Run) -> None:
    assert run("stdin", stdin="a line\n").stdout == "last 262, args 2\nread a line\n"
    assert run("hello").stdout.startswith("hello from thread 0\nhello from thread 1\n")


def test_findings_are_printed_once_counted_and_turned_into_an_exit_code(run: Run) -> None:
    done = run("overrun")
    assert done.returncode == 1  # the program's own: its cudaDeviceSynchronize fails
    assert done.stderr.count("Invalid write of size 4 bytes in global memory") == 1
    assert "at run_program.cu:10" in done.stderr
    assert "ERROR SUMMARY: 1 error\n" in done.stderr
    assert run("--error-exitcode=9", "overrun").returncode == 9
    assert run("--error-exitcode=9", "clean").returncode == 0
    assert run("--error-exitcode=9", "free_twice").returncode == 9


def test_work_is_deferred_and_devices_are_many_on_request(run: Run) -> None:
    assert run("early").stdout.endswith("early 262\n")
    done = run("--mode=deferred", "--seed=3", "early")
    assert done.stdout.endswith("early 0\n"), done.stdout
    assert run("--mode=deferred", "clean").stdout == run("clean").stdout
    assert (run("devices").stdout, run("--devices=3", "devices").stdout) == ("1 devices\n", "3 devices\n")


def test_leaks_are_listed_on_request(run: Run) -> None:
    assert "ERROR SUMMARY: 0 errors" in run("leak").stderr
    assert "Leaked 1024 bytes at 0x" in run("--leak-check", "leak").stderr


@pytest.mark.parametrize("option", ["--report", "--json"])
def test_the_report_holds_findings_counters_and_the_end(run: Run, tmp_path: Path, option: str) -> None:
    path = tmp_path / "report.json"
    run(f"{option}={path}", "--counters", "overrun")
    report = json.loads(path.read_text())
    assert (report["exit_code"], report["signal"], report["errors"], report["finished"]) == (1, None, 1, True)
    assert report["findings"][0]["kind"] == "out_of_bounds_write"
    assert report["counters"][0]["launches"] == 3
    assert report["counters"][0]["counts"]["global_stores"] > 0
    run(f"--report={path}", "abort")
    assert json.loads(path.read_text())["signal"] == "SIGABRT"


def test_checks_can_be_left_out(run: Run) -> None:
    assert "ERROR SUMMARY: 1 error" in run("--checks=none", "overrun").stderr  # memory safety is kept whatever is switched off


def test_an_option_that_cannot_be_obeyed_is_refused(run: Run) -> None:
    done = run("--checks=rubbish", "clean")
    assert done.returncode != 0
    assert done.stderr.startswith('aicf emulator: AICF_EMULATED_CHECKS=rubbish: option checks: "rubbish" is not one of memcheck')


def test_a_statically_linked_program_is_refused_with_the_remedy(run: Run, tmp_path: Path) -> None:
    done = run("clean", on=_compile(tmp_path, "static", "static"))
    assert done.returncode == 3
    assert "nvcc -cudart shared" in done.stderr


def test_another_runtime_is_refused(run: Run, program: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_bytes(program.read_bytes().replace(b"libcudart.so.13\0", b"libcudart.so.12\0"))
    old.chmod(0o755)
    done = run("clean", on=old)
    assert done.returncode == 3
    assert "libcudart.so.12" in done.stderr
    assert "nvcc 13" in done.stderr


def test_what_is_no_cuda_program_runs_as_it_is(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexit 3\n")
    script.chmod(0o755)
    assert run(on=script).returncode == 3
    assert read_executable(script) is None
    missing = run(on="no-such-program")
    assert (missing.returncode, "no such program" in missing.stderr) == (3, True)


def test_executables_are_read(program: Path, tmp_path: Path) -> None:
    found = read_executable(program)
    assert found is not None
    assert (found.cudart, found.has_device_code, found.has_static_runtime) == ("libcudart.so.13", True, False)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(program.read_bytes()[:200])
    assert read_executable(damaged) is None


def test_info_lists_the_options() -> None:
    environment = {**os.environ, "AICF_EMULATOR_LIBRARY": str(find_emulator_library(read_settings()))}
    command = [sys.executable, "-m", "device", "info"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert {"checks", "schedule", "error_exitcode"} <= {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


def test_a_program_here_goes_before_one_of_its_name_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sum").write_text("#!/bin/sh\n")
    (tmp_path / "sum").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert find_program("./sum") == tmp_path / "sum"
    assert find_program("sum") != tmp_path / "sum" and find_program("sum").is_absolute()
