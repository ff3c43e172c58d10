"""Managed and registered memory, as whole programs see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cuda_program import build_program, run_case


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(Path(__file__).with_name("runtime_program.cu"), tmp_path_factory.mktemp("runtime"))


@pytest.mark.parametrize("case", ["managed", "registered"])
def test_memory_of_host_and_device(program: Path, emulator_library: Path, case: str) -> None:
    outcome = run_case(program, emulator_library, case, leak_check=1)
    assert outcome.passed and outcome.findings == [], outcome.output + outcome.errors


@pytest.mark.parametrize("case", ["managed_out_of_bounds", "registered_out_of_bounds", "unregistered"])
def test_beyond_memory_of_host_and_device(program: Path, emulator_library: Path, case: str) -> None:
    outcome = run_case(program, emulator_library, case)
    assert outcome.exit_code == 1 and "illegal memory access" in outcome.output
    assert set(outcome.kinds) == {"out_of_bounds_read", "out_of_bounds_write"}, outcome.errors
    if case != "unregistered":
        assert "0 bytes past the end of the " in outcome.findings[0]["text"], outcome.findings[0]["text"]
