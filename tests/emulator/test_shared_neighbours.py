"""An access past the end of a shared variable is found although another variable follows; addresses and sizes stay what CUDA promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cuda_program import build_program, run_case
from .cuda_runtime import Runtime


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(Path(__file__).with_name("neighbours.cu"), tmp_path_factory.mktemp("neighbours"))


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("read_past", "out_of_bounds_read"),
        ("write_past", "out_of_bounds_write"),
        ("add_past", "out_of_bounds_write"),
        ("into_dynamic", "out_of_bounds_read"),
    ],
)
def test_an_overrun_into_the_next_variable_is_found(emulator: Runtime, program: Path, case: str, kind: str) -> None:
    outcome = run_case(program, emulator.path, case)
    assert kind in outcome.kinds, outcome.findings
    (finding,) = [each for each in outcome.findings if each["kind"] == kind]
    assert "this is 0 bytes past the end of '" in finding["text"] and "which has 256 bytes" in finding["text"]
    mended = run_case(program, emulator.path, case + "_mended")
    assert mended.passed, mended.output + mended.errors
    assert mended.findings == []


def test_alignment_total_and_attributes_are_the_programs_own(emulator: Runtime, program: Path) -> None:
    outcome = run_case(program, emulator.path, "legal_mended")
    assert outcome.passed, outcome.output + outcome.errors
    assert outcome.findings == []
