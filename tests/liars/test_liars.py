"""The judge's own trial: every liar must be refused, for the right reason, and the honest twin must pass.

The kernels are real ones, built by nvcc and run on the device that is here. Some lies only the emulated device's sanitizer can see.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from device import Device, read_settings
from device.toolchain import find_toolchain
from harness.benchmark.workers import Job, WorkerSetup, share_cores, verify_variants
from harness.build.binding import build_binding
from harness.build.builder import build_op
from harness.discover import LoadedOp, find_op
from harness.records.provenance import find_device_kind
from harness.testing import find_test_target
from harness.verify.findings import FaultKind, Status, VerifyResult
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

OPS = Path(__file__).parent / "ops"
# What each liar must be refused for, and whether that takes the sanitizer.
REASONS = {
    "writes_nothing": "not_written",
    "stale_output": "stale_output",
    "drops_ragged_edge": "not_written",
    "off_by_one": "not_written",
    "ignores_bias": "mismatch",
    "wrong_tail": "mismatch",
    "modifies_input": "input_modified",
    "writes_past_end": "guard_overwritten",
    "writes_row_padding": "guard_overwritten",
    "default_stream": "wrong_stream",
    "half_on_default_stream": "wrong_stream",
    "gives_nan": "nan",
    "squares_only": "mismatch",
    "listed_sizes_only": "mismatch",
    "low_precision": "mismatch",
    "nondeterministic": "nondeterministic",
    "synchronizes": "not_capturable",
    "too_many_threads": "launch_error",
    "supports_nothing": "supports_nothing",
    "workspace_overrun": "guard_overwritten",
}
SANITIZER_REASONS = {
    "missing_sync": "race",
    "reads_past_end": "out_of_bounds_read",
    "writes_past_end": "out_of_bounds_write",
    "workspace_overrun": "out_of_bounds_write",
    "reads_output": "uninitialized_read",
}
# ... and whether that takes other orders of the blocks, as `verify --schedules` runs them.
SCHEDULE_REASONS = {"first_come": "schedule_dependent", "atomic_sum": "atomics_order"}
HONEST = ("honest", "declared_atomic_sum")
# ... and what only drawn problems show: test_drawn_liars.py has their reasons.
DRAWN = (
    "long_sums",
    "late_columns",
    "wide_stride",
    "unaligned_weights",
    "half_aligned_bias",
    "beyond_benched",
    "signed_index",
    "counts_on_host",
    "slips_now_and_then",
    "restores_input",
)


pytestmark = pytest.mark.slow  # a proof of an op with a few dozen liars, each of which is compiled


@pytest.fixture(scope="session")
def loaded() -> LoadedOp:
    return find_op("linear_silu", OPS)


@pytest.fixture(scope="session")
def verdicts(loaded: LoadedOp, device: Device) -> dict[str, VerifyResult]:
    """Build and verify the honest kernel and every liar, each as `verify` does it."""
    toolchain, settings = find_toolchain(), read_settings()
    variants = [v for v in loaded.op.variants if v.name not in DRAWN]
    builds = build_op(loaded, variants, toolchain=toolchain, target=find_test_target())
    assert [b.error for b in builds if b.error] == []
    jobs = [Job(b.variant, b.library) for b in builds if b.library]
    num_workers, threads = share_cores(len(jobs), settings.jobs, find_device_kind(device))
    setup = WorkerSetup(
        loaded.folder, build_binding(loaded, toolchain), find_device_kind(device), emulator_workers=threads, effort=Effort(schedules=4)
    )
    return {job.variant.name: result for job, result in verify_variants(setup, loaded.op.name, jobs, num_workers=num_workers)}


def describe(result: VerifyResult) -> str:
    return "\n".join(f.describe() for f in result.all_faults)


@pytest.mark.parametrize("name", HONEST)
def test_the_honest_kernel_passes(name: str, verdicts: dict[str, VerifyResult]) -> None:
    honest = verdicts[name]
    assert honest.ok, describe(honest)
    assert all(p.status is Status.PASSED for p in honest.problems)
    assert 0 < honest.max_error_ratio <= 1


@pytest.mark.parametrize("liar", REASONS)
def test_a_liar_is_refused_for_the_right_reason(liar: str, verdicts: dict[str, VerifyResult]) -> None:
    verdict = verdicts[liar]
    assert not verdict.ok
    assert REASONS[liar] in {f.kind.value for f in verdict.all_faults}, describe(verdict)


@pytest.mark.parametrize("liar", SANITIZER_REASONS)
def test_the_sanitizer_names_what_no_result_shows(liar: str, verdicts: dict[str, VerifyResult], device: Device) -> None:
    if device.observer is None:
        pytest.skip("a real device has no sanitizer of ours; compute-sanitizer is its counterpart")
    verdict = verdicts[liar]
    assert not verdict.ok
    assert verdict.reason == SANITIZER_REASONS[liar], describe(verdict)
    detail = next(f.detail for f in verdict.all_faults if f.kind.value == verdict.reason)
    assert "kernels.cu:" in detail, f"the report must name the source line:\n{detail}"


@pytest.mark.parametrize("liar", SCHEDULE_REASONS)
def test_another_order_of_the_blocks_shows_what_one_order_hides(liar: str, verdicts: dict[str, VerifyResult], device: Device) -> None:
    if device.observer is None:
        pytest.skip("a real device orders its blocks as it likes")
    verdict = verdicts[liar]
    assert {f.check for f in verdict.all_faults} == {"schedules"}, describe(verdict)
    assert verdict.reason == SCHEDULE_REASONS[liar], describe(verdict)
    assert "schedule reversed gives other bits than schedule default in " in verdict.all_faults[0].detail


def test_every_liar_has_its_reason(loaded: LoadedOp) -> None:
    assert {k.name for k in loaded.op.kernels} == {*HONEST, *DRAWN, *REASONS, *SANITIZER_REASONS, *SCHEDULE_REASONS}
    assert set(SCHEDULE_REASONS.values()) | set(SANITIZER_REASONS.values()) | set(REASONS.values()) <= set(FaultKind)


def test_a_lie_beyond_the_listed_sizes_is_found_by_the_hidden_ones(verdicts: dict[str, VerifyResult]) -> None:
    problems = verdicts["listed_sizes_only"].problems
    assert {p.status for p in problems if not p.hidden} == {Status.PASSED}
    assert Status.FAILED in {p.status for p in problems if p.hidden}


def test_a_wrong_tail_shows_on_wide_inputs_and_not_on_normal_ones(verdicts: dict[str, VerifyResult]) -> None:
    inputs = {f.inputs for p in verdicts["wrong_tail"].problems for f in p.faults}
    assert "wide" in inputs
    assert "normal" not in inputs


def test_a_refusal_says_where_and_what(verdicts: dict[str, VerifyResult]) -> None:
    fault = next(f for f in verdicts["ignores_bias"].problems[0].faults if f.check == "result")
    for part in ("Y [32x32]: ", " of 1024 elements wrong; first at [0, 0]: got ", "expected ", " is allowed"):
        assert part in fault.detail


def test_the_op_itself_is_sound(loaded: LoadedOp, device: Device) -> None:
    assert Verifier(loaded.op, device).check_op() == ()
