"""Accuracy of every kernel of sdpa over the op's own problems, what attention must keep to, and the binding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device import Device
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Launchable, Problem, Variant
from harness.testing import OpUnderTest
from harness.timing.batches import Mode
from harness.verify.case import Case, plan_arguments
from harness.verify.inputs import make_inputs
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
VARIANTS = {k.name: k.bind(k.variants[0]) for k in OP.kernels}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("online",)
OTHERS = [k.bind(bound) for k in OP.kernels for bound in k.variants[1:]]
BENCH = OP.select_problems("bench")
SIZES = {"B": 2, "H": 2, "S": 21, "T": 45, "D": 24}

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
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2, num_drawn=4, num_large=4)))
    assert all(p.status == "passed" for p in problems if not p.large)


@pytest.mark.slow
@pytest.mark.parametrize("variant", OTHERS, ids=str)
def test_other_variants_verify_on_every_problem(device: Device, variant: Variant) -> None:
    launchable = UNDER_TEST.open([variant])(variant)
    problems = UNDER_TEST.verify(device, variant, launchable, Effort(num_hidden=2, num_drawn=4, num_large=4))
    assert all(p.status == "passed" for p in problems if not p.large)


def attend(device: Device, launchable: Launchable, inputs: dict[str, Any], **changes: Any) -> dict[str, np.ndarray]:
    problem = Problem(**({"sizes": SIZES, "attributes": {"with_lse": True}} | changes))
    with Case(device, OP, problem) as case:
        case.upload(inputs)
        case.launch(launchable, device.create_stream(non_blocking=True))
        device.synchronize()
        return case.read_outputs()


def draw(**changes: Any) -> dict[str, Any]:
    return make_inputs(OP, Problem(**({"sizes": SIZES, "attributes": {"with_lse": True}} | changes)))


@pytest.mark.parametrize("kernel", VARIANTS)
def test_the_order_of_keys_does_not_matter(device: Device, open_kernel: Open, kernel: str) -> None:
    inputs = draw()
    first = attend(device, open_kernel(kernel), inputs)
    order = np.random.default_rng(3).permutation(SIZES["T"])
    turned = inputs | {"k": inputs["k"][:, :, order], "v": inputs["v"][:, :, order]}
    second = attend(device, open_kernel(kernel), turned)
    np.testing.assert_allclose(second["o"], first["o"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second["lse"], first["lse"], rtol=1e-6)


@pytest.mark.parametrize("kernel", VARIANTS)
def test_weights_sum_to_one(device: Device, open_kernel: Open, kernel: str) -> None:
    inputs = draw() | {"v": np.full((2, 2, SIZES["T"], SIZES["D"]), 1.5, np.float32)}
    np.testing.assert_allclose(attend(device, open_kernel(kernel), inputs)["o"], 1.5, rtol=1e-5)


@pytest.mark.parametrize("kernel", VARIANTS)
def test_a_row_sees_nothing_behind_it_where_the_mask_is_causal(device: Device, open_kernel: Open, kernel: str) -> None:
    causal = {"attributes": {"causal": True, "with_lse": True}}
    inputs = draw(**causal)
    first = attend(device, open_kernel(kernel), inputs, **causal)
    np.testing.assert_allclose(first["o"][:, :, 0], inputs["v"][:, :, 0], rtol=1e-6)
    other = {name: np.array(values) for name, values in inputs.items()}
    for name in ("k", "v"):
        other[name][:, :, 10:] = 7.0
    second = attend(device, open_kernel(kernel), other, **causal)
    np.testing.assert_array_equal(second["o"][:, :, :10], first["o"][:, :, :10])
    assert (second["o"][:, :, 10:] != first["o"][:, :, 10:]).any()


@pytest.mark.parametrize("kernel", VARIANTS)
def test_every_layout_gives_the_same_bits(device: Device, open_kernel: Open, kernel: str) -> None:
    inputs = draw()
    plain = attend(device, open_kernel(kernel), inputs)["o"]
    for order in ((0, 2, 1, 3), (2, 1, 0, 3)):
        placed = attend(device, open_kernel(kernel), inputs, orders=dict.fromkeys("qkvo", order), padding={"k": (5, 3, 1, 0)})
        np.testing.assert_array_equal(placed["o"], plain)


def test_binding_refuses_bad_arguments_by_name(device: Device, open_kernel: Open) -> None:
    supports = open_kernel("online").supports
    arguments = plan_arguments(OP, Problem(SIZES))
    assert supports(**arguments) == ""
    with pytest.raises(ValueError, match=r"scale = 2: must be from 0.000976562 to 1"):
        supports(**arguments | {"scale": 2.0})
    with pytest.raises(ValueError, match=r"k: expected shape \(2, 2, \*, 24\), got \(2, 2, 21, 23\)"):
        supports(**arguments | {"k": plan_arguments(OP, Problem(SIZES | {"D": 23}))["q"]})
    wide = plan_arguments(OP, Problem(SIZES | {"D": 257}))
    assert supports(**wide) == "D = 257: must not exceed 256 for this kernel"


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_speed(gpu_benchmark: GpuBenchmark, open_kernel: Open, kernel: str, problem: Problem, mode: Mode) -> None:
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
