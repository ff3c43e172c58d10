"""Races that cannot change the result are notes with the reason, and their twins with a fault stay errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cuda_program import build_program, run_case
from .cuda_runtime import Runtime


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(Path(__file__).with_name("benign.cu"), tmp_path_factory.mktemp("benign"))


@pytest.mark.parametrize("schedule", ["default", "random"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        ("sum_global", {"global_race_benign"}),
        ("sum_shared", {"shared_race_benign"}),
        ("maximum", {"global_race_benign"}),
        ("early_exit", {"global_race_benign"}),
    ],
)
def test_the_first_read_of_a_loop_of_compare_and_swap_is_a_note(
    emulator: Runtime, program: Path, case: str, kinds: set[str], workers: int, schedule: str
) -> None:
    outcome = run_case(program, emulator.path, case, workers=workers, schedule=schedule)
    assert outcome.passed, outcome.output + outcome.errors
    assert set(outcome.kinds) == kinds
    for finding in outcome.findings:
        assert finding["severity"] == "note"
        assert "benign.cu:" in finding["text"] and "compare-and-swap at" in finding["text"] and "atomic_ref" in finding["text"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("case", "kind", "reason"),
    [
        ("discarded", "global_race_benign", "Nothing comes of the value that is read"),
        ("same_value", "global_race_same_value", "Both write the same value"),
    ],
)
def test_a_race_that_nothing_comes_of_is_a_note(emulator: Runtime, program: Path, case: str, kind: str, reason: str, workers: int) -> None:
    outcome = run_case(program, emulator.path, case, workers=workers)
    assert outcome.passed, outcome.output + outcome.errors
    assert [(each["kind"], each["severity"]) for each in outcome.findings] == [(kind, "note")]
    assert reason in outcome.findings[0]["text"]


@pytest.mark.parametrize("case", ["stored_first", "other_word", "lock", "not_discarded", "other_value"])
def test_a_racing_value_that_something_comes_of_stays_an_error(emulator: Runtime, program: Path, case: str) -> None:
    outcome = run_case(program, emulator.path, case)
    assert "global_race" in outcome.kinds, outcome.findings
    assert not set(outcome.kinds) & {"global_race_benign", "shared_race_benign"}
