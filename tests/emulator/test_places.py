"""Where a finding is: inlined helpers name callers, names are demangled, unrolled copies are one report, the launching line is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cuda_program import build_program, run_case
from .cuda_runtime import Runtime

SOURCE = Path(__file__).with_name("places.cu")
MOST_LINES = 12


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(SOURCE, tmp_path_factory.mktemp("places"), ["-Xcompiler", "-g1"])


def line_of(text: str) -> str:
    (number,) = [number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line]
    return f"places.cu:{number}"


def test_an_inlined_helper_names_its_callers(emulator: Runtime, program: Path) -> None:
    (finding,) = run_case(program, emulator.path, "inlined").findings
    callers = [line_of("// inner call"), line_of("// outer call")]
    assert (finding["kind"], finding["source"]) == ("out_of_bounds_read", line_of("// read"))
    assert finding["inlined_at"] == callers
    assert f"), called at {callers[0]}, called at {callers[1]}, kernel shop::inlined<float, 8>\n" in finding["text"]
    assert finding["kernel"].startswith("_Z") and finding["kernel_name"] == "void shop::inlined<float, 8>(float*, float const*, int)"
    assert len(finding["text"].splitlines()) <= MOST_LINES


def test_copies_of_an_unrolled_loop_are_one_report(emulator: Runtime, program: Path) -> None:
    (finding,) = run_case(program, emulator.path, "unrolled").findings
    assert finding["source"] == line_of("// each turn")
    assert len(finding["copies"]) == 7 and finding["count"] == 8 * 64
    assert "The same in 7 more copies of this place (an unrolled loop), PTX lines " in finding["text"]
    assert len(finding["text"].splitlines()) <= MOST_LINES


def test_two_accesses_of_one_line_stay_two_reports(emulator: Runtime, program: Path) -> None:
    findings = run_case(program, emulator.path, "two_arrays").findings
    assert [each["copies"] for each in findings] == [[], []]
    assert len({each["source"] for each in findings}) == 1


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_the_line_of_the_host_that_launched_is_named(emulator: Runtime, program: Path, mode: str) -> None:
    (finding,) = run_case(program, emulator.path, "inlined", mode=mode).findings
    assert finding["launched_at"] == f"main at {line_of('<<<1, kThreads>>>')}"
    assert f"    launched by {finding['launched_at']}\n" in finding["text"]


def test_without_debug_information_the_function_that_launched_is_named(emulator: Runtime, tmp_path: Path) -> None:
    (finding,) = run_case(build_program(SOURCE, tmp_path, ["-O0"]), emulator.path, "inlined").findings
    assert finding["launched_at"] == "main"  # a template's kernel is launched by way of two stubs
