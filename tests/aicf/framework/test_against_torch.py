"""Every function of ``aicf.functional``, its value and gradients, against PyTorch's in float64; and a long training against PyTorch's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from device import Device

torch = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")
TF = torch.nn.functional

_rng = np.random.default_rng(5)
X, Y = _rng.normal(size=(4, 6)), _rng.normal(size=(4, 6))
POSITIVE = _rng.uniform(0.5, 2.0, size=(4, 6))
LABELS = np.array([2, 0, -100, 5])


@dataclass
class Case:
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: Sequence[Any]


def same(name: str, x: Any = X) -> Case:
    return Case(getattr(F, name), getattr(torch, name), [x])


CASES: dict[str, Case] = {
    **{name: same(name) for name in ("exp", "expm1", "square", "abs", "sign", "sin", "cos", "erf", "tanh", "sigmoid", "relu", "ones_like")},
    **{name: same(name, POSITIVE) for name in ("log", "log1p", "sqrt", "rsqrt")},
    "full": Case(lambda x: x * F.full(2.5, (6,), "float64"), lambda x: x * torch.full((6,), 2.5, dtype=torch.float64), [X]),
    "gelu": Case(F.gelu, TF.gelu, [X]),
    "gelu, tanh": Case(lambda x: F.gelu(x, approximate="tanh"), lambda x: TF.gelu(x, approximate="tanh"), [X]),
    "silu": Case(F.silu, TF.silu, [X]),
    "leaky_relu": Case(lambda x: F.leaky_relu(x, 0.2), lambda x: TF.leaky_relu(x, 0.2), [X]),
    "elu": Case(lambda x: F.elu(x, 1.5), lambda x: TF.elu(x, 1.5), [X]),
    "softplus": Case(F.softplus, TF.softplus, [X]),
    "clip": Case(lambda x: F.clip(x, -0.5, 0.7), lambda x: torch.clip(x, -0.5, 0.7), [X]),
    "maximum": Case(F.maximum, torch.maximum, [X, Y]),
    "minimum": Case(F.minimum, torch.minimum, [X, Y]),
    "where": Case(lambda x, y: F.where(Tensor(X > 0), x, y), lambda x, y: torch.where(torch.tensor(X > 0), x, y), [X, Y]),
    "concat": Case(lambda x, y: F.concat([x, y], 1), lambda x, y: torch.cat([x, y], 1), [X, Y]),
    "stack": Case(lambda x, y: F.stack([x, y], 1), lambda x, y: torch.stack([x, y], 1), [X, Y]),
    "split": Case(lambda x: F.split(x, [1, 5], 1)[1], lambda x: torch.split(x, [1, 5], 1)[1], [X]),
    "pad": Case(lambda x: F.pad(x, (1, 0), (0, 2), 3.0), lambda x: TF.pad(x, (0, 2, 1, 0), value=3.0), [X]),
    "broadcast": Case(lambda x: F.broadcast(x, (3, 4, 6)), lambda x: x.broadcast_to(3, 4, 6), [X]),
    "tile": Case(lambda x: F.tile(x, (2, 3)), lambda x: torch.tile(x, (2, 3)), [X]),
    "unsqueeze": Case(lambda x: F.unsqueeze(x, 1), lambda x: x.unsqueeze(1), [X]),
    "squeeze": Case(lambda x: F.squeeze(x[:1], 0), lambda x: x[:1].squeeze(0), [X]),
    "flatten": Case(F.flatten, torch.flatten, [X]),
    "move_axis": Case(lambda x: F.move_axis(x, 0, 1), lambda x: torch.movedim(x, 0, 1), [X]),
    "gather": Case(lambda x: F.gather(x, Tensor(np.array([3, 0, 3])), 1), lambda x: torch.index_select(x, 1, torch.tensor([3, 0, 3])), [X]),
    "matmul": Case(F.matmul, torch.matmul, [_rng.normal(size=(2, 3, 4)), _rng.normal(size=(4, 5))]),
    "linear": Case(F.linear, TF.linear, [X, _rng.normal(size=(3, 6)), _rng.normal(size=3)]),
    "linear, relu": Case(
        lambda *a: F.linear(*a, act="relu"), lambda *a: torch.relu(TF.linear(*a)), [X, _rng.normal(size=(3, 6)), _rng.normal(size=3)]
    ),
    "softmax": Case(lambda x: F.softmax(x, 0), lambda x: torch.softmax(x, 0), [X]),
    "log_softmax": Case(F.log_softmax, lambda x: torch.log_softmax(x, -1), [X]),
    "log_sum_exp": Case(lambda x: F.log_sum_exp(x, 1), lambda x: torch.logsumexp(x, 1), [X]),
    "layer_norm": Case(
        lambda x, w, b: F.layer_norm(x, w, b, 1e-3), lambda x, w, b: TF.layer_norm(x, (6,), w, b, 1e-3), [X, POSITIVE[0], Y[0]]
    ),
    "rms_norm": Case(lambda x, w: F.rms_norm(x, w, 1e-3), lambda x, w: TF.rms_norm(x, (6,), w, 1e-3), [X, POSITIVE[0]]),
    "batch_norm": Case(
        lambda x, w, b: F.batch_norm(x, Tensor(Y[0]), Tensor(POSITIVE[0]), w, b),
        lambda x, w, b: TF.batch_norm(x, torch.tensor(Y[0]), torch.tensor(POSITIVE[0]), w, b),
        [X, POSITIVE[1], Y[1]],
    ),
    "group_norm": Case(
        lambda x, w, b: F.group_norm(x, 3, w, b),
        lambda x, w, b: TF.group_norm(x, 3, w, b),
        [_rng.normal(size=(2, 6, 5)), POSITIVE[1], Y[1]],
    ),
    "embedding": Case(
        lambda t: F.embedding(t, Tensor(np.array([[1, 3], [1, 0]]))), lambda t: TF.embedding(torch.tensor([[1, 3], [1, 0]]), t), [X]
    ),
    "cross_entropy": Case(
        lambda x: F.cross_entropy(x, Tensor(LABELS), label_smoothing=0.1),
        lambda x: TF.cross_entropy(x, torch.tensor(LABELS), label_smoothing=0.1),
        [X],
    ),
    "cross_entropy, sum": Case(
        lambda x: F.cross_entropy(x, Tensor(LABELS), reduction="sum"),
        lambda x: TF.cross_entropy(x, torch.tensor(LABELS), reduction="sum"),
        [X],
    ),
    "mse_loss": Case(F.mse_loss, TF.mse_loss, [X, Y]),
    "bce_with_logits": Case(F.bce_with_logits, TF.binary_cross_entropy_with_logits, [X, _rng.uniform(size=(4, 6))]),
}
# Dropout's masks are not PyTorch's: its own test is beside the chains'. ``call`` makes any call by name.
APART = {"call", "dropout"}


def test_no_function_is_left_out() -> None:
    public = {n for n, f in inspect.getmembers(F, inspect.isfunction) if f.__module__ == F.__name__ and not n.startswith("_")}
    assert public - APART == {name.partition(",")[0] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_a_function_and_its_gradients_are_pytorchs(name: str) -> None:
    case = CASES[name]
    ours = [Tensor(np.asarray(x, np.float64), requires_grad=True) for x in case.inputs]
    theirs = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in case.inputs]
    found, expected = case.ours(*ours), case.theirs(*theirs)
    assert found.shape == tuple(expected.shape)
    assert np.allclose(found.numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-12)
    if not expected.requires_grad:  # a constant
        return
    weights = np.cos(np.arange(expected.numel())).reshape(tuple(expected.shape))
    (expected * torch.tensor(weights)).sum().backward()
    if found.requires_grad:
        (found * Tensor(weights)).sum().backward()
    for i, (x, y) in enumerate(zip(ours, theirs, strict=True)):
        gradient = np.zeros(x.shape) if x.grad is None else x.grad.numpy()
        assert np.allclose(gradient, y.grad.numpy(), rtol=1e-11, atol=1e-12), f"input {i}"


@pytest.mark.parametrize("way", ["compiled", "eager", pytest.param("cuda", marks=pytest.mark.slow)])
def test_a_long_training_has_the_losses_of_pytorch(way: str, device: Device, by_tier: Callable[[int, int], int]) -> None:
    """The same weights and batches in fp32, 1000 steps where that takes seconds: no loss is further than a thousandth away."""
    count = by_tier(200, 1000) if way == "compiled" or not device.is_emulated else 200
    rng = np.random.default_rng(0)
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 4))
    own = torch.nn
    peer = own.Sequential(own.Linear(12, 24), own.ReLU(), own.Linear(24, 16), own.ReLU(), own.Linear(16, 4))
    peer.load_state_dict({path: torch.tensor(np.array(value)) for path, value in model.state_dict().items()})
    target = rng.normal(size=(12, 4))
    batches = [rng.normal(size=(32, 12)).astype(np.float32) for _ in range(16)]
    labels = [(x @ target + rng.normal(size=(32, 4))).argmax(1) for x in batches]
    optimizer, other = optim.Adam(model.parameters(), lr=1e-3), torch.optim.Adam(peer.parameters(), lr=1e-3)

    def train_eagerly(x: Any, y: Any) -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(model(Tensor(x)), Tensor(y))
        value.backward()
        optimizer.step()
        return value

    train: Callable[..., Tensor] = train_eagerly
    if way != "eager":
        example = Tensor(batches[0]), Tensor(labels[0])
        backend = "cuda" if way == "cuda" else "numpy"
        train = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optimizer, example, backend=backend)
    found, expected = [], []
    for i in range(count):
        x, y = batches[i % 16], labels[i % 16]
        found.append(train(x, y).item())
        other.zero_grad()
        loss = TF.cross_entropy(peer(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        other.step()
        expected.append(loss.item())
    assert np.mean(found[-16:]) < 0.9 * np.mean(found[:16])
    assert np.allclose(found, expected, rtol=1e-3, atol=0)
