"""Accuracy of every kernel of optimizer over the op's own problems; and many steps, their first, decay, and the binding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from device import Device
from harness.spec import Launchable, Problem
from harness.spec.dtypes import find_dtype
from harness.testing import OpUnderTest
from harness.verify.case import Case
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
VARIANTS = {k.name: k.bind(k.variants[-1]) for k in OP.kernels}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("naive", "vectorised")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    served = [p for p in problems if p.status != "unsupported"]  # naive counts no steps
    assert len(served) >= 8 and all(p.status == "passed" for p in served)


def _run(device: Device, variant: Launchable, problem: Problem, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    with Case(device, OP, problem) as case:
        case.upload(inputs)
        case.launch(variant, device.create_stream(non_blocking=True))
        device.synchronize()
        return case.read_outputs()


def _make_inputs(elems: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    zeros = np.zeros(elems, np.float32)
    return {
        "p": rng.standard_normal(elems, np.float32),
        "m": zeros,
        "v": zeros,
        "lr": np.array(0.01, np.float32),
        "step": np.array(1, np.int64),
    }


@pytest.mark.parametrize("kernel", VARIANTS)
def test_a_quadratic_is_minimised(device: Device, open_kernel: Open, kernel: str) -> None:
    state = _make_inputs(130) | {"lr": np.array(0.1, np.float32)}
    problem = Problem({"N": 130}, {}, scalars={"weight_decay": 0.0})
    for step in range(1, 121):
        gradient = 2.0 * (state["p"] - 3.0)
        state |= _run(device, open_kernel(kernel), problem, state | {"grad": gradient, "step": np.array(step, np.int64)})
    assert np.abs(state["p"] - 3.0).max() < 0.3


@pytest.mark.parametrize("kernel", VARIANTS)
def test_the_first_step_is_the_learning_rate_in_the_gradients_direction(device: Device, open_kernel: Open, kernel: str) -> None:
    inputs = _make_inputs(70)
    inputs["grad"] = np.where(np.arange(70) % 2 == 0, 1e-3, -40.0).astype(np.float32)
    problem = Problem({"N": 70}, {}, scalars={"weight_decay": 0.0})
    p = _run(device, open_kernel(kernel), problem, inputs)["p"]
    np.testing.assert_allclose(p - inputs["p"], -0.01 * np.sign(inputs["grad"]), rtol=1e-4)


def test_decoupled_decay_is_not_scaled_by_the_gradient(device: Device, open_kernel: Open) -> None:
    inputs = _make_inputs(8) | {"grad": np.zeros(8, np.float32)}
    decoupled = _run(device, open_kernel("naive"), Problem({"N": 8}, {"decoupled": True}, scalars={"weight_decay": 0.5}), inputs)
    coupled = _run(device, open_kernel("naive"), Problem({"N": 8}, {"decoupled": False}, scalars={"weight_decay": 0.5}), inputs)
    np.testing.assert_allclose(decoupled["p"], inputs["p"] * (1 - 0.01 * 0.5), rtol=1e-6)
    np.testing.assert_allclose(coupled["p"], inputs["p"] - 0.01 * np.sign(inputs["p"]), rtol=1e-3, atol=1e-6)


def test_binding_refuses_bad_arguments_by_name(device: Device, open_kernel: Open) -> None:
    variant = open_kernel("naive")
    p, grad, m, v = (device.allocate(4096).view((8,), np.float32) for _ in range(4))
    step, lr = device.allocate(64).view((), np.int64), device.allocate(64).view((), np.float32)
    rest = {
        "copy": None,
        "steps_done": None,
        "factor": None,
        "decoupled": True,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.0,
    }
    arguments = {"p": p, "grad": grad, "m": m, "v": v, "step": step, "lr": lr, **rest}
    assert variant.supports(**arguments) == ""
    with pytest.raises(ValueError, match=r"beta1"):
        variant.supports(**arguments | {"beta1": 1.0})
    with pytest.raises(ValueError, match=r"^m: expected memory of its own"):
        variant.supports(**arguments | {"m": p})
    with pytest.raises(ValueError, match=r"^grad: expected shape \(8,\)"):
        variant.supports(**arguments | {"grad": device.allocate(4096).view((7,), np.float32)})


@pytest.mark.parametrize("kernel", [k for k in VARIANTS if k != "naive"])
@pytest.mark.parametrize("factor", [0.0, -1.0, np.nan])
def test_a_step_whose_factor_is_not_positive_changes_no_bit_and_is_not_counted(
    device: Device, open_kernel: Open, kernel: str, factor: float
) -> None:
    attributes = {"dtype": "float16", "with_copy": True, "advances": True, "guarded": True}
    inputs = _make_inputs(5000) | {"m": np.full(5000, -0.0, np.float32), "steps_done": np.array(7, np.int64)}
    inputs |= {"grad": np.full(5000, np.inf, np.float16), "factor": np.array(factor, np.float32)}
    made = _run(device, open_kernel(kernel), Problem({"N": 5000}, attributes), inputs)
    for name in ("p", "m", "v", "steps_done"):
        assert made[name].tobytes() == np.asarray(inputs[name]).tobytes(), name
    np.testing.assert_array_equal(made["copy"], inputs["p"].astype(np.float16))


@pytest.mark.parametrize("kernel", VARIANTS)
def test_a_factor_that_is_a_power_of_two_undoes_a_scaled_gradient_bit_for_bit(device: Device, open_kernel: Open, kernel: str) -> None:
    gradient = np.random.default_rng(6).standard_normal(300, np.float32)
    inputs = _make_inputs(300) | {"grad": gradient}
    plain = _run(device, open_kernel(kernel), Problem({"N": 300}, {}), inputs)
    scaled = inputs | {"grad": gradient * np.float32(2.0**12), "factor": np.array(2.0**-12, np.float32)}
    guarded = _run(device, open_kernel(kernel), Problem({"N": 300}, {"guarded": True}), scaled)
    for name in ("p", "m", "v"):
        np.testing.assert_array_equal(guarded[name], plain[name])


def _draw_moments(kind: str, elems: int) -> dict[str, np.ndarray]:
    """Return m and v whose roots and quotients need no special case, any bits, or zeros among plain ones."""
    rng = np.random.default_rng(8)
    if kind == "any":
        m, v = (rng.integers(0, 2**32, elems, np.uint32).view(np.float32) for _ in range(2))
    else:
        m, v = (np.exp2(rng.uniform(-45.0, 45.0, elems)).astype(np.float32) for _ in range(2))
        m *= rng.choice([-1.0, 1.0], elems).astype(np.float32)
    if kind == "zeros":
        m[::3], v[::5] = 0.0, 0.0
    return {"m": m, "v": np.abs(v)}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["plain", "zeros", "any"])
def test_elements_that_are_worked_on_together_get_the_bits_of_one_at_a_time(
    device: Device, open_kernel: Open, kind: str, dtype: str
) -> None:
    elems = 9 * 512 + 5  # 5 are behind the last whole access of either dtype
    inputs = _make_inputs(elems) | _draw_moments(kind, elems) | {"grad": np.zeros(elems, np.float32).astype(find_dtype(dtype))}
    problem = Problem({"N": elems}, {"dtype": dtype, "with_copy": True})
    together, apart = (_run(device, open_kernel(kernel), problem, inputs) for kernel in ("vectorised", "shared_factors"))
    for name in ("p", "m", "v", "copy"):
        np.testing.assert_array_equal(together[name].astype(np.float32), apart[name].astype(np.float32))
