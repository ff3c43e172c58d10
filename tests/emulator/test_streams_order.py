"""Work of different streams, and of the host, on the same bytes with nothing that orders it; mended twins are clean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .cuda_program import Outcome, build_program, run_case
from .cuda_runtime import Runtime

BUGS = {
    "kernel_kernel": "stream_race",
    "kernel_copy": "stream_race",
    "copy_copy": "stream_race",
    "memset_kernel": "stream_race",
    "rows": "stream_race",
    "per_thread": "stream_race",
    "free_async": "stream_race",
    "early_event_stream": "stream_race",
    "graph_upload": "stream_race",
    "graph_branches": "stream_race",
    "early_event": "host_read_in_flight",
    "host_read": "host_read_in_flight",
    "host_part": "host_read_in_flight",
    "host_copies": "host_read_in_flight",
    "managed_read": "host_read_in_flight",
    "host_write": "host_write_in_flight",
    "managed_write": "host_write_in_flight",
    "graph_source": "host_write_in_flight",
}
RIGHT = ("disjoint", "atomics", "legacy", "pageable", "callback", "pipeline", "other_part")
# In deferred mode a kernel that has not run yet has touched nothing: what the host does meanwhile shows in the result alone.
EAGER_ONLY = {"managed_read", "managed_write"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(Path(__file__).with_name("streams.cu"), tmp_path_factory.mktemp("streams"), ["-Xcompiler", "-g1"])


def run_streams(emulator: Runtime, program: Path, case: str, variant: str, **options: object) -> Outcome:
    return run_case(program, emulator.path, case, variant, **{"host_accesses": 1, **options})


@pytest.mark.parametrize("case", BUGS)
def test_unordered_work_is_found_once_with_both_calls(emulator: Runtime, program: Path, case: str) -> None:
    outcome = run_streams(emulator, program, case, "bug")
    assert outcome.kinds == [BUGS[case]], outcome.errors
    (finding,) = outcome.findings
    assert finding["severity"] == "error"
    assert re.search(r"(cuda\w+|kernel launch) \(call \d+\) in .*(stream|graph).*", finding["text"])
    lines = re.findall(r"streams\.cu:(\d+)", finding["text"])
    assert len(lines) >= 2, finding["text"]


@pytest.mark.parametrize("case", [*BUGS, *RIGHT])
@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"mode": "deferred", "seed": 3}], ids=["eager", "workers", "deferred"])
def test_ordered_work_is_clean(emulator: Runtime, program: Path, case: str, options: dict[str, object]) -> None:
    outcome = run_streams(emulator, program, case, "mended", **options)
    assert outcome.passed, outcome.output + outcome.errors
    assert outcome.findings == [], outcome.errors


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("case", sorted(BUGS.keys() - EAGER_ONLY))
def test_the_order_in_which_work_ran_does_not_matter(emulator: Runtime, program: Path, case: str, seed: int) -> None:
    kinds = run_streams(emulator, program, case, "bug", mode="deferred", seed=seed).kinds
    assert BUGS[case] in kinds
    assert set(kinds) <= {BUGS[case], "free_unordered", "use_after_free"}


@pytest.mark.parametrize("case", ["early_event", "early_event_stream"])
def test_an_event_that_was_recorded_too_early_is_named(emulator: Runtime, program: Path, case: str) -> None:
    (finding,) = run_streams(emulator, program, case, "bug").findings
    assert "recorded too early" in finding["text"]


def test_the_report_says_what_where_and_how_much(emulator: Runtime, program: Path) -> None:
    (finding,) = run_streams(emulator, program, "kernel_kernel", "bug").findings
    text = finding["text"]
    assert text.startswith("unordered work on the same memory: kernel fill writes, kernel add reads\n16384 bytes, the first at 0x")
    assert "one:   kernel fill, kernel launch (call " in text
    assert "in stream #1 (non-blocking)" in text
    assert "in stream #2 (non-blocking)" in text


def test_host_accesses_are_watched_where_that_is_asked_for(emulator: Runtime, program: Path) -> None:
    assert run_streams(emulator, program, "host_read", "bug", host_accesses=0).findings == []


def test_without_the_check_nothing_is_ordered(emulator: Runtime, program: Path) -> None:
    for case in ("kernel_kernel", "host_read"):
        outcome = run_streams(emulator, program, case, "bug", checks="memcheck,initcheck,synccheck,racecheck")
        assert outcome.passed
        assert outcome.findings == []
