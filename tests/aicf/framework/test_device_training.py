"""Training on a device, real or emulated: whole steps of frozen kernels, beside the truth on NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from device import Device

RNG = np.random.default_rng(0)
BATCHES = [(RNG.normal(size=(8, 16)).astype(np.float32), RNG.integers(0, 4, size=8)) for _ in range(10)]


@pytest.fixture(autouse=True)
def opened(device: Device) -> Device:
    return device


def make(p: float = 0.0) -> nn.Module:
    aicf.manual_seed(0)
    drop = [nn.Dropout(p)] if p else []
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), *drop, nn.Linear(32, 4))


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def train(
    backend: str, build: Callable[[nn.Module], optim.Optimizer], p: float = 0.0, **options: float
) -> tuple[aicf.train.Step, list[float]]:
    model = make(p)
    step = aicf.compile_step(model, loss, build(model), [Tensor(a) for a in BATCHES[0]], backend=backend, **options)
    return step, [step(x, y).item() for x, y in BATCHES * 2]


def test_adam_in_one_launch_has_the_truths_losses() -> None:
    _, expected = train("numpy", lambda m: optim.Adam(m.parameters(), lr=1e-2))
    step, losses = train("cuda", lambda m: optim.Adam(m.parameters(), lr=1e-2))
    # Sums of 16 and 32 products and a dozen roundings of 2**-24 each step, for 20 steps.
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert [s.attrs["op"] for s in step.plan.steps if s.op == "flat"] == ["optimizer"]
    assert step.verify_replay(5)
