"""What a report advises fits what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cuda_program import build_program, run_case
from .cuda_runtime import Runtime

BARRIER = "__syncthreads() between the two orders them"
WAIT = "__pipeline_wait_prior"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(Path(__file__).with_name("hints.cu"), tmp_path_factory.mktemp("hints"))


def test_a_copy_that_is_not_waited_for_is_not_a_missing_barrier(emulator: Runtime, program: Path) -> None:
    races = [finding["text"] for finding in run_case(program, emulator.path, "copied").findings if finding["kind"] == "shared_race"]
    assert len(races) == 2  # the copy is made late, and read before and after
    assert all(WAIT in text and BARRIER not in text for text in races), races


def test_a_barrier_that_is_missing_is_named(emulator: Runtime, program: Path) -> None:
    races = [finding["text"] for finding in run_case(program, emulator.path, "stored").findings if finding["kind"] == "shared_race"]
    assert races and all(BARRIER in text and WAIT not in text for text in races), races


@pytest.mark.parametrize("case", ["copied_mended", "stored_mended"])
def test_the_mended_twins_are_clean(emulator: Runtime, program: Path, case: str) -> None:
    outcome = run_case(program, emulator.path, case)
    assert outcome.passed and outcome.findings == []
