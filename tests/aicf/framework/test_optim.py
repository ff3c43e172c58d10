"""Optimizers against their formulas, schedules against theirs, and clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicf import Tensor, nn, optim
from aicf.nn import Parameter
from aicf.optim import Schedule


def train(make: Callable[[Any], optim.Optimizer], steps: int = 5) -> tuple[list[Any], list[Any]]:
    """Return a parameter's values and the gradients that it got."""
    rng = np.random.default_rng(1)
    p = Parameter(rng.normal(size=4))
    optimizer, values, grads = make([p]), [p.numpy().copy()], []
    for _ in range(steps):
        grads.append(rng.normal(size=4))
        p.grad = Tensor(grads[-1])
        optimizer.step()
        values.append(p.numpy().copy())
    return values, grads


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd(nesterov: bool) -> None:
    values, grads = train(lambda ps: optim.SGD(ps, 0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.01))
    p, velocity = values[0], np.zeros(4)
    for gradient, found in zip(grads, values[1:], strict=True):
        d = gradient + 0.01 * p
        velocity = 0.9 * velocity + d
        p = p - np.float32(0.1) * (d + 0.9 * velocity if nesterov else velocity)
        np.testing.assert_allclose(found, p, rtol=1e-14)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(decoupled: bool) -> None:
    kind = optim.AdamW if decoupled else optim.Adam
    values, grads = train(lambda ps: kind(ps, 0.01, betas=(0.8, 0.95), weight_decay=0.1))
    p, m, v, lr = values[0], np.zeros(4), np.zeros(4), float(np.float32(0.01))
    for step, (gradient, found) in enumerate(zip(grads, values[1:], strict=True), 1):
        d = gradient if decoupled else gradient + 0.1 * p
        p = p * (1 - lr * 0.1) if decoupled else p
        m, v = 0.8 * m + 0.2 * d, 0.95 * v + 0.05 * d * d
        p = p - lr * (m / (1 - 0.8**step)) / (np.sqrt(v / (1 - 0.95**step)) + 1e-8)
        np.testing.assert_allclose(found, p, rtol=1e-12)


def test_lion() -> None:
    values, grads = train(lambda ps: optim.Lion(ps, 0.01, weight_decay=0.1))
    p, m, lr = values[0], np.zeros(4), float(np.float32(0.01))
    for gradient, found in zip(grads, values[1:], strict=True):
        p = p - lr * (np.sign(0.9 * m + 0.1 * gradient) + 0.1 * p)
        m = 0.99 * m + 0.01 * gradient
        np.testing.assert_allclose(found, p, rtol=1e-12)


def half_cosine(s: int, begin: int, end: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(max((s - begin) / (end - begin), 0), 1)))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (optim.constant(0.5), lambda s: 0.5),
        (optim.constant(0.5, warmup=4), lambda s: 0.5 * min((s + 1) / 4, 1)),
        (optim.linear(0.5, total=10, floor=0.1), lambda s: 0.1 + 0.4 * max(1 - s / 10, 0)),
        (optim.cosine(0.5, total=10, warmup=2), lambda s: 0.5 * (s + 1) / 2 if s < 2 else 0.5 * half_cosine(s, 2, 10)),
        (
            optim.one_cycle(1.0, total=10),
            lambda s: 0.04 + 0.96 * (1 - half_cosine(s, 0, 3)) if s < 3 else 4e-6 + (1 - 4e-6) * half_cosine(s, 3, 10),
        ),
    ],
    ids=["constant", "warm-up", "linear", "cosine", "one cycle"],
)
def test_schedules(schedule: Schedule, expected: Callable[[int], float]) -> None:
    for s in range(14):
        assert abs(schedule.at(s) - expected(s)) <= 2e-6, s


def test_a_schedule_drives_the_rate() -> None:
    p = Parameter(np.zeros(1))
    optimizer = optim.SGD([p], optim.constant(1.0, warmup=4))
    moves = []
    for _ in range(5):
        before = p.item()
        p.grad = Tensor(np.ones(1))
        optimizer.step()
        moves.append(before - p.item())
    assert moves == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_groups_have_rates_and_options_of_their_own() -> None:
    a, b = Parameter(np.ones(1)), Parameter(np.ones(1))
    optimizer = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5, "weight_decay": 1.0}], 0.25)
    a.grad, b.grad = Tensor(np.ones(1)), Tensor(np.ones(1))
    optimizer.step()
    assert (a.item(), b.item()) == (0.75, 0.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: optim.SGD([]), "no parameters"),
        (lambda: optim.SGD([{"params": [Parameter([1.0])], "rate": 1.0}]), "no option 'rate'"),
        (lambda: optim.SGD([Parameter([1.0])], -1.0), "at least 0"),
        (lambda: optim.SGD([p := Parameter([1.0]), p]), "in two groups"),
        (lambda: optim.clip_grad_norm([Parameter([1.0])], 1.0), "after backward"),
        (lambda: optim.constant(1.0, warmup=-1), "warmup=-1"),
    ],
)
def test_a_mistake_is_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_clipping_is_by_the_norm_of_all_together() -> None:
    a, b = Parameter(np.zeros(1)), Parameter(np.zeros(1))
    a.grad, b.grad = Tensor(np.array([3.0])), Tensor(np.array([4.0]))
    norm = optim.clip_grad_norm([a, b], 1.0)
    assert norm.item() == 5.0
    np.testing.assert_allclose([a.grad.item(), b.grad.item()], [0.6, 0.8], rtol=1e-6)
    optim.clip_grad_norm([a, b], 10.0)
    np.testing.assert_allclose([a.grad.item(), b.grad.item()], [0.6, 0.8], rtol=1e-6)


def test_state_goes_on_where_it_was_taken() -> None:
    def make() -> tuple[nn.Linear, optim.Optimizer]:
        layer = nn.Linear(2, 2)
        return layer, optim.AdamW(layer.parameters(), optim.cosine(0.1, total=10))

    def step(layer: nn.Linear, optimizer: optim.Optimizer, seed: int) -> None:
        optimizer.zero_grad()
        layer(Tensor(np.random.default_rng(seed).normal(size=(3, 2)).astype(np.float32))).sum().backward()
        optimizer.step()

    layer, optimizer = make()
    for seed in range(3):
        step(layer, optimizer, seed)
    other, resumed = make()
    other.load_state_dict(layer.state_dict())
    resumed.load_state_dict(optimizer.state_dict())
    for seed in range(3, 6):
        step(layer, optimizer, seed)
        step(other, resumed, seed)
    np.testing.assert_array_equal(layer.weight.numpy(), other.weight.numpy())
    with pytest.raises(ValueError, match=r"'9\.exp_avg'"):
        resumed.load_state_dict({"steps_done": 0, "9.exp_avg": np.zeros(1)})
