"""Accuracy of every kernel of rmsnorm_backward over the op's own problems, its gradients against differences, and a liar."""

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

FOLDER = Path(__file__).parent
UNDER_TEST = OpUnderTest(FOLDER)
FORWARD = OpUnderTest(FOLDER.parent / FOLDER.name.removesuffix("_backward")).op
OP = UNDER_TEST.op
# The larger a team, the more threads go over every row, however short: minutes on the emulated device.
VARIANTS = {k.name: k.bind(k.variants[0 if k.name == "rows_in_teams" else min(2, len(k.variants) - 1)]) for k in OP.kernels}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("rows_in_registers",)
BENCH = OP.select_problems("bench")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


def test_the_bound_is_none_that_zeros_pass(device: Device) -> None:
    assert Verifier(OP, device, Effort(num_hidden=4)).check_op() == ()


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    passed = [p for p in problems if p.status == "passed"]
    limit = "must be at least" if kernel == "cluster_passes" else "must not exceed"  # a cluster has no work for short rows
    assert all(limit in p.reason for p in problems if p not in passed)
    assert len(passed) >= 4


def test_the_gradients_are_the_slopes_of_the_reference() -> None:
    rng = np.random.default_rng(5)
    sizes = {"rows": 4, "columns": 11}
    forward = Problem(sizes, {"with_rstd": True})
    inputs = {t.name: rng.standard_normal(t.resolve_shape(forward)) for t in FORWARD.inputs if t.present(forward)}
    dy = rng.standard_normal((4, 11))
    statistics = {name: values for name, values in FORWARD.reference(inputs, forward).items() if name != "y"}
    found = OP.reference({"dy": dy, "x": inputs["x"], "weight": inputs["weight"], **statistics}, Problem(sizes))
    for name, place in (("x", (0, 5)), ("x", (3, 10)), ("weight", (2,))):
        step = np.zeros_like(inputs[name])
        step[place] = 1e-6
        high, low = ((FORWARD.reference(inputs | {name: inputs[name] + s * step}, forward)["y"] * dy).sum() for s in (1, -1))
        assert found[f"d{name}"][place] == pytest.approx((high - low) / 2e-6, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("kernel", VARIANTS)
def test_a_permutation_of_rows_permutes_dx(device: Device, open_kernel: Open, kernel: str) -> None:
    problem = Problem({"rows": 40, "columns": UNDER_TEST.widen(VARIANTS[kernel], "columns", 50)})
    inputs = make_inputs(OP, problem)
    order = np.random.default_rng(4).permutation(40)
    once = UNDER_TEST.launch(device, open_kernel(kernel), problem, inputs)
    permuted = {name: values[order] if len(values) == 40 else values for name, values in inputs.items()}
    moved = UNDER_TEST.launch(device, open_kernel(kernel), problem, permuted)
    np.testing.assert_array_equal(moved["dx"], once["dx"][order])


@pytest.mark.slow  # a liar is compiled and proved
def test_partial_sums_that_forget_a_slab_are_refused(device: Device, tmp_path: Path) -> None:
    liar = UNDER_TEST.patch(
        tmp_path,
        "common/norm_backward.cuh",
        "if (i + u * kLanes < p.num_partials)",
        "if (i + u * kLanes < p.num_partials && i + u * kLanes < 32)",
    )
    variant = VARIANTS["block_passes"]
    result = Verifier(liar.op, device, Effort(num_hidden=0)).verify(variant, liar.open([variant])(variant))
    assert {p.problem for p in result.problems if p.faults} == {p.name for p in OP.select_problems("verify") if p.sizes["rows"] > 256}
    assert {fault.kind.value for fault in result.all_faults} == {"mismatch"}


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_speed(gpu_benchmark: GpuBenchmark, open_kernel: Open, kernel: str, problem: Problem, mode: Mode) -> None:
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
