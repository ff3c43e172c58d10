"""The page of public programs: generated from the recorded runs, which have a reason each where they did not pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from device.programs.page import Run, Source, fill_page, read_runs, render_page

ROOT = Path(__file__).resolve().parents[2]
SOURCE = {"name": "them/collection", "commit": "0123456789abcdef", "how": "drawn by seed 1"}
RUN = {"source": "them/collection", "program": "scan", "category": "math", "outcome": "pass", "seconds": 1.5}


def write(path: Path, *runs: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"sources": [SOURCE], "runs": runs}))
    return path


def test_counts_are_by_category_and_reasons_are_listed() -> None:
    sources = [Source("them/collection", "0123456789abcdef", "drawn by seed 1")]
    runs = [
        Run("them/collection", "scan", "math", "pass", 1.5, smaller=True),
        Run("them/collection", "sort", "math", "finding", 2.0, ("64", "1"), why="reads past its input: sort.cu:12."),
        Run("them/collection", "spmv", "graph", "ran", 0.1),
        Run("them/collection", "gemm", "graph", "not built", 0.0, why="needs cuBLAS"),
    ]
    lines = render_page(sources, runs).splitlines()
    assert lines[0] == "3 programs ran: 1 pass, 1 ran, 1 finding. 1 others were drawn but could not be built."
    assert "| them/collection | `0123456789ab` | drawn by seed 1 |" in lines
    assert "| them/collection | graph | 1 | 0 | 1 | 0 | 0 | 0 | 0 | 1 |" in lines
    assert "| them/collection | math | 2 | 1 | 0 | 1 | 0 | 0 | 0 | 0 |" in lines
    assert "| all |  | 3 | 1 | 1 | 1 | 0 | 0 | 0 | 1 |" in lines
    assert "- sort `64 1`: reads past its input: sort.cu:12." in lines
    assert "- gemm: needs cuBLAS." in lines
    assert "scan ≤, spmv." in lines


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"outcome": "finding"}, "finding without a reason"),
        ({"outcome": "not built"}, "not built without a reason"),
        ({"outcome": "fine"}, "'fine' is not one of pass"),
        ({"source": "nobody"}, "the source is not one of them/collection"),
    ],
)
def test_a_run_without_its_reason_is_refused(tmp_path: Path, change: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_runs(write(tmp_path / "runs.json", {**RUN, **change}))


def test_a_program_counts_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="recorded twice"):
        read_runs(write(tmp_path / "runs.json", RUN, RUN))


def test_a_page_is_filled_between_its_markers() -> None:
    page = "before\n<!-- generated:programs -->\nold\n<!-- /generated:programs -->\nafter\n"
    assert fill_page(page, "new\n") == "before\n<!-- generated:programs -->\nnew\n<!-- /generated:programs -->\nafter\n"
    with pytest.raises(ValueError, match="no generated:programs markers"):
        fill_page("before\n", "new\n")


def test_the_page_says_what_was_recorded() -> None:
    text = (ROOT / "docs/programs.md").read_text()
    assert text == fill_page(text, render_page(*read_runs(ROOT / "profiles/emulator/programs.json")))
