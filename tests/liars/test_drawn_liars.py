"""Liars that no listed problem finds: each is refused where problems are drawn, large ones are sampled, and launches are many.

They are those of a softmax, of a transpose and of a matrix product; their honest twins pass the same proof.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from device import Device, read_settings
from device.toolchain import find_toolchain
from harness.benchmark.workers import Job, WorkerSetup, share_cores, verify_variants
from harness.build.binding import build_binding
from harness.build.builder import build_op
from harness.discover import find_op
from harness.records.provenance import find_device_kind
from harness.testing import find_test_target
from harness.verify.findings import VerifyResult
from harness.verify.plan import THOROUGH, Effort

pytestmark = pytest.mark.slow  # the larger proof of three ops with 50 liars
OPS = Path(__file__).parent / "ops"
# For each liar: the keyword it must be refused for, and the check that must have found it.
WRONG_IN_PART = ("mismatch", "sampled")
WRONG_WHERE_DRAWN = ("mismatch", "result")
REASONS = {
    "row_softmax": {
        "long_rows": WRONG_IN_PART,
        "many_rows": WRONG_IN_PART,
        "late_rows": WRONG_IN_PART,
        "large_grid": WRONG_IN_PART,
        "round_columns": WRONG_IN_PART,
        "power_of_two_rows": WRONG_IN_PART,
        "large_both_ways": WRONG_IN_PART,
        "signed_index": ("out_of_bounds_read", "sampled"),
        "unsigned_index": ("guard_overwritten", "sampled"),
        "many_elements": WRONG_IN_PART,
        "wide_stride": WRONG_WHERE_DRAWN,
        "very_wide_stride": WRONG_WHERE_DRAWN,
        "power_of_two_stride": WRONG_WHERE_DRAWN,
        "unequal_strides": WRONG_WHERE_DRAWN,
        "unaligned_input": WRONG_WHERE_DRAWN,
        "unaligned_output": WRONG_WHERE_DRAWN,
        "odd_sectors": WRONG_WHERE_DRAWN,
        "line_offset": WRONG_WHERE_DRAWN,
        "squares": WRONG_WHERE_DRAWN,
        "misses_first": ("nan", "result"),
        "misses_last": ("nan", "result"),
        "misses_lane": ("nan", "result"),
        "misses_middle": ("nan", "result"),
        "starts_at_zero": WRONG_WHERE_DRAWN,
        "one_differs": WRONG_WHERE_DRAWN,
        "counts_launches": ("launch_dependent", "launches"),
        "counts_on_host": ("launch_dependent", "launches"),
        "slips_now_and_then": ("launch_dependent", "launches"),
        "restores_input": ("input_written", "sanitizer"),
        "biased": ("biased", "bias"),
    },
    "turn": {
        "large_grid": WRONG_IN_PART,
        "late_rows": WRONG_IN_PART,
        "wide_stride": WRONG_WHERE_DRAWN,
        "unaligned_input": WRONG_WHERE_DRAWN,
        "squares": WRONG_WHERE_DRAWN,
        "half_aligned_output": WRONG_WHERE_DRAWN,
        "counts_launches": ("launch_dependent", "launches"),
        "slips_now_and_then": ("launch_dependent", "launches"),
        "signed_index": ("out_of_bounds_read", "sampled"),
        "restores_input": ("input_written", "sanitizer"),
    },
    "linear_silu": {
        "long_sums": WRONG_IN_PART,
        "late_columns": WRONG_IN_PART,
        "wide_stride": WRONG_WHERE_DRAWN,
        "unaligned_weights": WRONG_WHERE_DRAWN,
        "half_aligned_bias": WRONG_WHERE_DRAWN,
        "beyond_benched": WRONG_IN_PART,
        "signed_index": WRONG_IN_PART,
        "counts_on_host": ("launch_dependent", "launches"),
        "slips_now_and_then": ("launch_dependent", "launches"),
        "restores_input": ("input_written", "sanitizer"),
    },
}
# Without the sanitizer a wild address is an illegal one, and an input that is restored shows nothing.
SANITIZER_REASONS = ("out_of_bounds_read", "guard_overwritten", "input_written")
LIARS = [(op, name) for op, reasons in REASONS.items() for name in reasons]
# What the listed problems are enough for, by luck or by the ``wide`` distribution.
FOUND_BY_LISTED = ("restores_input", "misses_first", "misses_last", "misses_lane", "misses_middle", "biased")

Judge = Callable[[str, Effort], dict[str, VerifyResult]]


@pytest.fixture(scope="session")
def judge(device: Device, pytestconfig: pytest.Config) -> Judge:
    """Return a function that builds and verifies an op's honest kernel and its liars, once for each effort."""
    if device.observer is None and not pytestconfig.getoption("--slow"):
        pytest.skip("on a GPU the proof of each liar moves tens of GiB, which takes 10 s: run with --slow")
    kept: dict[tuple[str, str], dict[str, VerifyResult]] = {}

    def run(name: str, effort: Effort) -> dict[str, VerifyResult]:
        if (name, effort.proof) in kept:
            return kept[name, effort.proof]
        loaded, toolchain, settings = find_op(name, OPS), find_toolchain(), read_settings()
        variants = loaded.op.select_variants(["honest", *REASONS[name]])
        builds = build_op(loaded, variants, toolchain=toolchain, target=find_test_target())
        assert [b.error for b in builds if b.error] == []
        jobs = [Job(b.variant, b.library) for b in builds if b.library]
        kind = find_device_kind(device)
        num_workers, threads = share_cores(len(jobs), settings.jobs, kind)
        setup = WorkerSetup(loaded.folder, build_binding(loaded, toolchain), kind, emulator_workers=threads, effort=effort)
        found = {job.variant.name: result for job, result in verify_variants(setup, name, jobs, num_workers=num_workers)}
        return kept.setdefault((name, effort.proof), found)

    return run


def describe(result: VerifyResult) -> str:
    return "\n".join(f.describe() for f in result.all_faults)


@pytest.mark.parametrize("op", REASONS)
def test_the_honest_kernel_passes_the_larger_proof(op: str, judge: Judge) -> None:
    honest = judge(op, THOROUGH)["honest"]
    assert honest.ok, describe(honest)
    assert honest.proof == "drawn"
    checks = {c for p in honest.problems for c in p.checks}
    assert {"sampled", "launches"} <= checks
    assert abs(honest.bias.mean) < 0.05 and honest.bias.num_rows > 100


@pytest.mark.parametrize(("op", "liar"), LIARS)
def test_a_liar_is_refused_for_the_right_reason(op: str, liar: str, judge: Judge, device: Device) -> None:
    keyword, check = REASONS[op][liar]
    if device.observer is None and keyword in SANITIZER_REASONS:
        pytest.skip("a real device has no sanitizer of ours")
    verdict = judge(op, THOROUGH)[liar]
    assert not verdict.ok
    assert (keyword, check) in {(f.kind.value, f.check) for f in verdict.all_faults}, describe(verdict)


@pytest.mark.parametrize("op", REASONS)
def test_the_listed_problems_alone_do_not_find_them(op: str, judge: Judge) -> None:
    """Were they found by the smaller proof, they would say nothing of the larger one."""
    verdicts = judge(op, Effort())
    assert {n for n, v in verdicts.items() if not v.ok} <= {n for n in REASONS[op] if n in FOUND_BY_LISTED}


def test_a_store_to_an_input_is_told_with_its_line(judge: Judge, device: Device) -> None:
    if device.observer is None:
        pytest.skip("a real device has no sanitizer of ours")
    fault = judge("row_softmax", THOROUGH)["restores_input"].all_faults[0]
    for part in ("a store to input x", "kernels.cu:", "RestoresInput", "by thread (0,0,0)", "address 0x"):
        assert part in fault.detail
