"""The Markdown page of recorded timings: units by what bounds the problem, shares of the fastest peer, and refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.discover import find_op
from harness.errors import RecordError
from harness.report.markdown import make_markdown

OP = find_op("gemm_bias_act").op
CUBE, SKINNY = (next(p.name for p in OP.problems if p.name.startswith(start)) for start in ("M4096_N4096_K4096", "M1_N4096_K4096"))
NAIVE = OP.variants[0].name


def result(variant: str, problem: str, median_us: float, commit: str = "c0ffee", status: str = "passed") -> Any:
    environment = SimpleNamespace(device_name="GPU", device_uuid="u", toolchain="nvcc 13.0", target="h200")
    run = SimpleNamespace(environment=environment, commit=commit, dirty=False, started_at="2026-01-01T00:00:00")
    return SimpleNamespace(
        kind="bench", variant=variant, problem=problem, status=status, figures={"mode": "cold", "median_us": median_us}, run=run
    )


def test_rates_shares_and_winners() -> None:
    page = make_markdown(OP, [result("lib", CUBE, 1000.0), result(NAIVE, CUBE, 4000.0), result(NAIVE, SKINNY, 100.0)])
    assert f"{CUBE} (TFLOP/s)" in page and f"{SKINNY} (GB/s)" in page
    assert f"| lib (peer) | {2 * 4096**3 / 1000 * 1e-6:.2f} (100.0 %) |  |" in page
    assert f"| {NAIVE} | {2 * 4096**3 / 4000 * 1e-6:.2f} (25.0 %) |" in page
    assert f"- {CUBE}: {NAIVE}, 4000.00 us, 25.0 % of the fastest peer" in page
    assert f"- {SKINNY}: {NAIVE}, 100.00 us\n" in page


def test_a_failed_timing_has_no_rate() -> None:
    page = make_markdown(OP, [result(NAIVE, CUBE, 1.0, status="failed")])
    assert f"| {NAIVE} |  |" in page


def test_runs_of_different_commits_and_runs_without_timings_are_refused() -> None:
    with pytest.raises(RecordError, match="different devices or commits"):
        make_markdown(OP, [result(NAIVE, CUBE, 1.0), result(NAIVE, CUBE, 1.0, commit="beef")])
    with pytest.raises(RecordError, match="no cold timings"):
        make_markdown(OP, [])
