"""Parameters that have the same gradient, trained by frozen kernels beside the truth on NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from device import Device


class Beside(nn.Module):
    """Two layers whose outputs are added: their biases have one gradient."""

    def __init__(self) -> None:
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.straight = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.straight(x)


@pytest.mark.slow
def test_two_parameters_with_one_gradient_are_trained(device: Device) -> None:
    x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    batch = [x, x[:, :1] * x[:, 1:2]]
    losses = []
    for backend in ("numpy", "cuda"):
        aicf.manual_seed(0)
        model = Beside()
        optimizer = optim.Adam(model.parameters(), lr=1e-2)
        step = aicf.compile_step(model, lambda m, x, y: F.mse_loss(m(x), y), optimizer, [Tensor(a) for a in batch], backend=backend)
        losses.append([float(step(*batch).item()) for _ in range(6)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert losses[0][-1] < 0.8 * losses[0][0]
