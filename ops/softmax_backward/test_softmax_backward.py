"""Accuracy of every kernel of softmax_backward over the op's own problems, its slope, and what has no gradient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from device import Device
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Launchable, Problem
from harness.testing import OpUnderTest
from harness.timing.batches import Mode
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
VARIANTS = {k.name: k.bind(k.variants[-1]) for k in OP.kernels}
VARIANTS["row_in_team"] = OP.find_kernel("row_in_team").bind(OP.find_kernel("row_in_team").variants[0])
# Groups of a few lanes, each with several elements of what lies around whole packs.
VARIANTS["short_rows"] = OP.find_kernel("row_in_registers").bind({"threads": 8, "rows": 16, "elems": 32})
# Those of fp32 too, in which what the tests draw has no rounding.
FLOAT_KERNELS = [k for k in VARIANTS if k != "half_row_in_team"]
CLUSTERS = ("cluster_passes", "split_passes", "row_in_team", "half_row_in_team")
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("row_in_registers",)
BENCH = OP.select_problems("bench")

Open = Callable[[str], Launchable]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


def test_the_bound_is_none_that_zeros_pass(device: Device) -> None:
    assert Verifier(OP, device, Effort(num_hidden=4)).check_op() == ()


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), Effort(num_hidden=2))
    passed = [p for p in problems if p.status == "passed"]
    # Rows longer than its threads hold, or shorter than a cluster has work for.
    limits = {"row_in_registers": "must not exceed", "short_rows": "must not exceed", "few_columns": "must not exceed"}
    limits |= dict.fromkeys(CLUSTERS, "must be at least")
    limits["half_row_in_team"] = ""  # nor fp32
    assert all(limits.get(kernel, "served") in p.reason for p in problems if p not in passed)
    few = dict.fromkeys(CLUSTERS, 4) | {"half_row_in_team": 2, "few_columns": 5}
    assert len(passed) >= few.get(kernel, len(problems) / 2)


def _count_columns(kernel: str, wanted: int) -> int:
    """Return so many columns, or what a kernel of shorter or longer rows alone serves."""
    return min(4, wanted) if kernel == "few_columns" else UNDER_TEST.widen(VARIANTS[kernel], "columns", wanted)


@pytest.mark.parametrize("log", [False, True])
def test_the_gradient_is_the_slope_of_softmax(log: bool) -> None:
    forward = OpUnderTest(Path(__file__).parent.parent / "softmax").op
    rng = np.random.default_rng(4)
    x, dy, scale = rng.standard_normal((3, 7)), rng.standard_normal((3, 7)), np.float64(0.375)
    keep = rng.random((3, 7)) < 0.7
    asked = Problem({"rows": 3, "columns": 7}, {"log": log, "with_scale": True, "mask": "boolean"})

    def run(at: np.ndarray) -> np.ndarray:
        return forward.reference({"x": at, "scale": scale, "keep": keep}, asked)["y"]

    given = Problem({"rows": 3, "columns": 7}, {"log": log, "with_scale": True})
    found = OP.reference({"dy": dy, "y": run(x), "scale": scale}, given)["dx"]
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-6
        with np.errstate(invalid="ignore"):
            slope = np.nan_to_num(run(x + step) - run(x - step), nan=0.0)  # of hidden logarithms, which are -inf
        assert found[place] == pytest.approx((slope * dy).sum() / 2e-6, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("kernel", FLOAT_KERNELS)
def test_a_logarithm_of_nothing_has_no_gradient_and_takes_none(device: Device, open_kernel: Open, kernel: str) -> None:
    rng = np.random.default_rng(7)
    shape = (5, _count_columns(kernel, 40))
    problem = Problem(dict(zip(("rows", "columns"), shape, strict=True)), {"log": True})
    is_hidden = rng.random(shape) < 0.3
    is_hidden[0] = True
    y = np.where(is_hidden, -np.inf, -rng.uniform(1.0, 4.0, shape)).astype(np.float32)
    dy = rng.standard_normal(shape).astype(np.float32)
    found = UNDER_TEST.launch(device, open_kernel(kernel), problem, {"dy": dy, "y": y})["dx"]
    other = UNDER_TEST.launch(device, open_kernel(kernel), problem, {"dy": np.where(is_hidden, np.float32(9.0), dy), "y": y})["dx"]
    assert not found[is_hidden].any()
    np.testing.assert_array_equal(found, other)
    np.testing.assert_allclose(found, OP.reference({"dy": dy, "y": y}, problem)["dx"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [61, 64])
@pytest.mark.parametrize("kernel", FLOAT_KERNELS)
def test_permuted_rows_permute_and_the_gradient_scales_with_dy_to_the_bit(
    device: Device, open_kernel: Open, kernel: str, columns: int
) -> None:
    columns = _count_columns(kernel, columns)
    problem = Problem({"rows": 33, "columns": columns}, {"log": False, "with_scale": True})
    inputs = make_inputs(OP, problem)
    order = np.random.default_rng(8).permutation(33)
    once = UNDER_TEST.launch(device, open_kernel(kernel), problem, inputs)["dx"]
    scaled = UNDER_TEST.launch(device, open_kernel(kernel), problem, inputs | {"dy": inputs["dy"] * np.float32(4.0)})["dx"]
    np.testing.assert_array_equal(scaled, once * np.float32(4.0))
    # Where a row begins beside a boundary decides which thread adds up what: rows that all begin on one have the same bits anywhere.
    moved = inputs | {"dy": inputs["dy"][order], "y": inputs["y"][order]}
    permuted = UNDER_TEST.launch(device, open_kernel(kernel), problem, moved)["dx"]
    np.testing.assert_allclose(permuted, once[order], rtol=0.0, atol=0.0 if columns % 4 == 0 else 1e-6 * float(np.abs(once).max()))
    # The gradient of what sums to 1 sums to 0.
    assert np.abs(once.sum(axis=1, dtype=np.float64)).max() <= columns * 2.0**-20 * np.abs(once).max()


@pytest.mark.slow  # a liar is compiled and proved
def test_a_sum_of_whole_rows_only_is_refused(device: Device, tmp_path: Path) -> None:
    liar = UNDER_TEST.patch(
        tmp_path,
        "softmax_backward/kernels.cu",
        "for (int j = 0; j < row.columns; ++j) sum +=",
        "for (int j = 0; j < (row.columns < 64 ? row.columns : row.columns / 64 * 64); ++j) sum +=",
    )
    variant = VARIANTS["naive"]
    result = Verifier(liar.op, device, Effort(num_hidden=0)).verify(variant, liar.open([variant])(variant))
    refused = {p.problem for p in result.problems if p.faults}
    assert refused == {p.name for p in OP.select_problems("verify") if p.sizes["columns"] > 64 and p.sizes["columns"] % 64}
    assert {fault.kind.value for fault in result.all_faults} == {"mismatch"}


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_speed(gpu_benchmark: GpuBenchmark, open_kernel: Open, kernel: str, problem: Problem, mode: Mode) -> None:
    limits = {"row_in_registers": 8192, "short_rows": 64}
    if problem.sizes["columns"] > limits.get(kernel, problem.sizes["columns"]):
        pytest.skip("a row must fit the registers")
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
