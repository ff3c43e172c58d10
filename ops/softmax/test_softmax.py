"""Accuracy of every kernel of softmax over the op's own problems, its special values, and its binding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from device import Device
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Launchable, Problem
from harness.testing import OpUnderTest
from harness.timing.batches import Mode
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
VARIANTS = {k.name: k.bind(k.variants[1]) for k in OP.kernels}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("naive", "row_in_registers")
BENCH = OP.select_problems("bench")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    refused = [p for p in problems if p.status != "passed"]
    assert all(kernel == "row_in_registers" and "must not exceed" in p.reason for p in refused)
    assert len(refused) < len(problems) / 2


def _run(device: Device, variant: Launchable, x: NDArray[np.float32]) -> NDArray[np.float32]:
    with Case(device, OP, Problem({"rows": x.shape[0], "columns": x.shape[1]})) as case:
        case.upload({"x": x})
        case.launch(variant, device.create_stream(non_blocking=True))
        device.synchronize()
        return case.read_outputs()["y"]


@pytest.mark.parametrize("columns", [5, 64, 1000])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_special_values(device: Device, open_kernel: Open, kernel: str, columns: int) -> None:
    x = np.random.default_rng(2).standard_normal((7, columns)).astype(np.float32)
    x[0, :] = -np.inf
    x[1, : columns - 1] = -np.inf
    x[2, columns // 2] = -np.inf
    x[3, 0] = np.nan
    x[4, columns - 1] = np.inf
    x[5, :] = 3e38
    y = _run(device, open_kernel(kernel), x)
    assert np.isnan(y[[0, 3, 4]]).all()
    assert y[1, columns - 1] == 1.0 and not y[1, : columns - 1].any()
    assert y[2, columns // 2] == 0.0 and abs(float(y[2].sum(dtype=np.float64)) - 1.0) < 1e-5
    np.testing.assert_allclose(y[5], 1.0 / columns, rtol=1e-6)
    np.testing.assert_allclose(y[6], OP.reference({"x": x[6:]}, Problem({"rows": 1, "columns": columns}))["y"][0], rtol=1e-5)


def test_binding_refuses_bad_arguments_by_name(device: Device, open_kernel: Open) -> None:
    variant = open_kernel("naive")
    x, y = (device.allocate(4096).view((4, 8), np.float32) for _ in range(2))
    with pytest.raises(ValueError, match=r"^y: expected shape \(4, 8\), got \(4, 7\)"):
        variant.supports(x=x, y=device.allocate(4096).view((4, 7), np.float32))
    with pytest.raises(ValueError, match=r"^y: expected memory of its own, got an array that overlaps x"):
        variant.supports(x=x, y=x)
    with pytest.raises(TypeError, match=r"^x: expected a device array .* got NoneType"):
        variant.supports(x=None, y=y)
    assert variant.supports(x=x, y=y) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_speed(gpu_benchmark: GpuBenchmark, open_kernel: Open, kernel: str, problem: Problem, mode: Mode) -> None:
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
