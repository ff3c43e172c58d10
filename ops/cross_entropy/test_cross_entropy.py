"""Accuracy of every kernel of cross_entropy over the op's own problems; ignored and invalid labels; its gradient against differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from device import Device
from harness.spec import Launchable, Problem
from harness.testing import OpUnderTest
from harness.verify.case import Case
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
VARIANTS = {k.name: k.bind(k.variants[0]) for k in OP.kernels}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("naive", "row_in_registers")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]
Array = NDArray[np.generic]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    served = [p for p in problems if p.status != "unsupported"]  # registers hold few classes, and they alone make dbias
    assert len(served) >= 6 and all(p.status == "passed" for p in served)


def _run(device: Device, variant: Launchable, logits: Array, labels: list[int], **scalars: float) -> tuple[float, Array]:
    problem = OP.complete(Problem({"rows": logits.shape[0], "classes": logits.shape[1]}, {}, scalars=scalars))
    with Case(device, OP, problem) as case:
        case.upload({"logits": logits.astype(np.float32), "labels": np.array(labels, np.int64)})
        case.prepare(variant)
        case.launch(variant, device.create_stream(non_blocking=True))
        device.synchronize()
        found = case.read_outputs()
    return float(found["loss"]), found["dlogits"]


LOGITS = np.random.default_rng(3).standard_normal((4, 13))


@pytest.mark.parametrize("kernel", VARIANTS)
def test_ignored_rows_count_nothing(device: Device, open_kernel: Open, kernel: str) -> None:
    loss, gradient = _run(device, open_kernel(kernel), LOGITS, [5, -100, 12, -100])
    alone, gradient_alone = _run(device, open_kernel(kernel), LOGITS[[0, 2]], [5, 12])
    assert loss == pytest.approx(alone, rel=1e-6)
    assert not gradient[[1, 3]].any()
    np.testing.assert_allclose(gradient[[0, 2]], gradient_alone, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kernel", VARIANTS)
def test_a_label_outside_of_the_classes_is_loud_and_reads_nothing(device: Device, open_kernel: Open, kernel: str) -> None:
    loss, gradient = _run(device, open_kernel(kernel), LOGITS, [5, 13, 1, -1])
    assert np.isnan(loss) and np.isnan(gradient[[1, 3]]).all() and np.isfinite(gradient[[0, 2]]).all()


@pytest.mark.parametrize("kernel", VARIANTS)
def test_the_mean_over_no_row_is_nan_and_has_no_gradient(device: Device, open_kernel: Open, kernel: str) -> None:
    loss, gradient = _run(device, open_kernel(kernel), LOGITS, [-100] * 4)
    assert np.isnan(loss) and not gradient.any()


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_the_gradient_is_the_slope_of_the_reference(smoothing: float) -> None:
    problem = Problem({"rows": 4, "classes": 13}, {}, scalars={"label_smoothing": smoothing})
    inputs = {"logits": LOGITS, "labels": np.array([5, 0, 12, 7], np.int64)}
    gradient = OP.reference(inputs, problem)["dlogits"]
    for place in ((0, 5), (1, 3), (3, 12)):
        step = np.zeros_like(LOGITS)
        step[place] = 1e-6
        high, low = (float(OP.reference(inputs | {"logits": LOGITS + s * step}, problem)["loss"]) for s in (1, -1))
        assert gradient[place] == pytest.approx((high - low) / 2e-6, rel=1e-5, abs=1e-9)


def test_rows_of_the_gradient_sum_to_nothing(device: Device, open_kernel: Open) -> None:
    _, gradient = _run(device, open_kernel("block_online"), LOGITS, [5, 0, 12, 7], label_smoothing=0.1)
    assert np.abs(gradient.sum(axis=1)).max() < 1e-6
