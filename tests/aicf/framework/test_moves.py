"""Arrays cut, joined, padded, permuted and multiplied in batches on a device, real or emulated: values and gradients are the truth's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.opset import find_op
from aicf.opset.copies import COPY
from device import Device

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 4, 10)).astype(np.float32)


@pytest.fixture(autouse=True)
def opened(device: Device) -> Device:
    return device


def compute(function: Callable[[Tensor], Tensor], backend: str) -> list[np.ndarray]:
    """Return a function's values, and the gradient of a sum of them that weighs each differently."""
    x = Tensor(X, backend=backend).require_grad()
    y = function(x)
    weights = np.cos(np.arange(np.prod(y.shape), dtype=np.float32)).reshape(y.shape)
    (y * Tensor(weights, backend=backend)).sum().backward()
    assert x.grad is not None
    return [y.numpy(), x.grad.numpy()]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[1:4, :, 2:7],
        lambda x: F.concat([x[:, :1], x, x[:, 2:]], 1),  # of unequal lengths
        lambda x: x.permute(1, 0, 2),
        lambda x: x.permute(2, 0, 1),
        lambda x: x * x.sum(1, keep=True),
    ],
    ids=["cut", "join", "turn rows", "turn columns", "reduce and repeat a middle axis"],
)
def test_values_and_gradients_are_the_truths(function: Callable[[Tensor], Tensor]) -> None:
    for made, true in zip(compute(function, "cuda"), compute(function, "numpy"), strict=True):
        np.testing.assert_allclose(made, true, rtol=1e-5, atol=1e-5)


def test_what_comes_out_whole_is_not_the_array_that_went_in() -> None:
    x = Tensor(X, backend="cuda")
    y = x[:]
    x.copy_(x * 2.0)
    np.testing.assert_array_equal(y.numpy(), X)


def test_counters_are_moved_as_words() -> None:
    x = np.arange(12, dtype=np.int64).reshape(3, 4) - 2**40
    np.testing.assert_array_equal(Tensor(x, backend="cuda")[1:, 1:3].numpy(), x[1:, 1:3])


class Attention(nn.Module):
    """Two heads written out: one projection, cut in three, heads first, products of batches, joined again."""

    def __init__(self) -> None:
        self.project, self.out = nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(x)
        query, key, value = (parts[:, :, i : i + 8].reshape(2, 5, 2, 4).permute(0, 2, 1, 3) for i in (0, 8, 16))
        weights = F.softmax(query @ key.permute(0, 1, 3, 2) * 0.5)
        return self.out((weights @ value).permute(0, 2, 1, 3).reshape(10, 8))


@pytest.mark.slow
def test_a_step_with_heads_trains_as_the_truth_does() -> None:
    x, y = RNG.normal(size=(2, 5, 8)).astype(np.float32), np.arange(10) % 3
    losses = {}
    for backend in ("numpy", "cuda"):
        aicf.manual_seed(0)
        model = Attention()
        step = aicf.compile_step(
            model,
            lambda m, a, b: F.cross_entropy(m(a), b),
            optim.Adam(model.parameters(), lr=1e-2),
            (Tensor(x), Tensor(y)),
            backend=backend,
        )
        losses[backend] = [step(x, y).item() for _ in range(4)]
    np.testing.assert_allclose(losses["cuda"], losses["numpy"], rtol=1e-5)
    assert step.verify_replay(2)
    assert any("no frozen op multiplies batches" in note for entry in step.log for note in entry.notes)
    errors = step.check((x, y))
    assert {COPY, "product_of_batch"} <= {error.op for error in errors}
    assert all(error.relative <= (0.0 if error.op == COPY else 1e-5) for error in errors)
    assert all(s.seal for s in step.plan.steps if find_op(s.op).is_frozen)


def test_moves_outside_their_arrays_are_refused() -> None:
    attrs = {
        "shape": (2, 2),
        "rows": 2,
        "columns": 2,
        "in_stride": 4,
        "out_stride": 2,
        "sources": (0,),
        "in_offsets": (3,),
        "out_offsets": (0,),
    }
    with pytest.raises(ValueError, match="a rectangle of 2 x 2 from 3 of float32"):
        find_op("move").evaluate((None, np.zeros((2, 4), np.float32)), attrs)
    with pytest.raises(ValueError, match="4 elements do not fill"):
        find_op("move").evaluate((None, np.zeros((2, 4), np.float32)), {**attrs, "shape": (3, 2), "in_offsets": (0,)})
