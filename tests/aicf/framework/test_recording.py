"""The capture law: what a replay would not do again raises while it is recorded, with the user's line; nothing is stale in silence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.errors import GradientError, RecordError

X = Tensor(np.ones((2, 4), np.float32))
OUTSIDE = Tensor(np.ones((2, 3), np.float32))


class Model(nn.Module):
    """A layer whose forward pass does something more with its output."""

    def __init__(self, trap: Callable[[Model, Tensor], Any]) -> None:
        self.layer = nn.Linear(4, 3)
        self.count = nn.Buffer(np.zeros(3, np.float32))
        self.trap = trap

    def forward(self, x: Tensor) -> Any:
        return self.trap(self, self.layer(x))


def keep(model: Model, y: Tensor) -> Tensor:
    model.cache = y
    return y


def branch(model: Model, y: Tensor) -> Tensor:
    return y if y.sum() > 0.0 else y * 2.0


def write(model: Model, y: Tensor) -> Tensor:
    model.count.add_(1.0)
    return y


TRAPS: dict[str, tuple[Callable[[Model, Tensor], Any], str]] = {
    "item": (lambda m, y: y * y.sum().item(), "value was read"),
    "float": (lambda m, y: y * float(y.sum()), "value was read"),
    "int": (lambda m, y: y * int(y.sum()), "value was read"),
    "branch": (branch, "branch by F.where"),
    "branch on equality": (lambda m, y: y if y.sum() == 0.0 else y * 2.0, "branch by F.where"),
    "format": (lambda m, y: (f"{y.sum():.3f}", y)[1], "value was read"),
    "while": (lambda m, y: next(y for _ in iter(lambda: bool(y.sum() > 0.0), False)), "value was read"),
    "numpy": (lambda m, y: y * Tensor(y.numpy()), "values were read"),
    "asarray": (lambda m, y: np.asarray(y), "values were read"),
    "dlpack": (lambda m, y: np.from_dlpack(y), "was exported"),
    "a parameter's value": (lambda m, y: y * m.layer.weight.numpy()[0, 0], "values were read"),
    "host values": (lambda m, y: y + Tensor(np.arange(3.0, dtype=np.float32)), "made from host values"),
    "host random numbers": (lambda m, y: y + Tensor(np.random.default_rng().normal(size=3).astype(np.float32)), "made from host values"),
    "a tensor from outside": (lambda m, y: y + OUTSIDE, "a tensor from outside .* pass it as an input"),
    "a new parameter": (lambda m, y: y + nn.Parameter(np.zeros(3, np.float32)), "made from host values"),
    "another model's parameter": (lambda m, y: F.linear(y, STRANGER.weight), "a parameter that is not the model's"),
    "a tensor kept in a module": (keep, "kept in Model.cache"),
    "a buffer written in place": (write, "changed in place"),
    "a recorded tensor written in place": (lambda m, y: y.mul_(2.0), "changed in place"),
    "backward": (lambda m, y: y.sum().backward(), r"backward\(\) was called"),
    "an optimizer's step": (lambda m, y: (optim.SGD(m.parameters()).step(), y)[1], "made from host values|changed in place"),
    "compiling inside": (lambda m, y: aicf.compile(m, (X,)), "recorded already"),
    "not a tensor": (lambda m, y: 3.0, "returned float"),
}
STRANGER = nn.Linear(3, 3)


@pytest.mark.parametrize("name", TRAPS)
def test_what_a_replay_would_not_do_again_raises_with_the_users_line(name: str) -> None:
    trap, words = TRAPS[name]
    with pytest.raises(RecordError, match=words) as caught:
        aicf.compile(Model(trap), (X,))
    if name != "not a tensor":
        assert re.match(rf".*{Path(__file__).name}:\d+: ", str(caught.value)), caught.value


def test_there_are_twenty_traps() -> None:
    assert len(TRAPS) >= 20


def test_a_trap_leaves_nothing_behind() -> None:
    with pytest.raises(RecordError):
        aicf.compile(Model(branch), (X,))
    program = aicf.compile(Model(lambda m, y: y * 2.0), (X,))
    assert program(X).shape == (2, 3)


def test_another_shape_is_refused_by_name_where_no_plan_may_be_kept_for_it() -> None:
    program = aicf.compile(Model(lambda m, y: y), (X,), cache_plans=0)
    with pytest.raises(ValueError, match=r"x0: compiled for float32\[2,4\], got float32\[5,4\]"):
        program(np.ones((5, 4), np.float32))
    with pytest.raises(ValueError, match=r"takes 1 inputs \(x0\), got 2"):
        program(X, X)


def test_a_write_to_a_weight_is_seen_by_the_program_and_by_autograd() -> None:
    model = Model(lambda m, y: y)
    program = aicf.compile(model, (X,))
    before = program(X).numpy().copy()
    with aicf.no_grad():
        model.layer.weight.mul_(2.0)
        model.layer.bias.mul_(2.0)
    np.testing.assert_array_equal(program(X).numpy(), 2.0 * before)


def test_a_loss_that_no_parameter_reaches_is_refused() -> None:
    model = nn.Linear(4, 3)
    with pytest.raises(GradientError, match="scalar"):
        aicf.compile_step(model, lambda m, x: m(x), optim.SGD(model.parameters()), (X,))


def test_an_optimizer_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="not the model's"):
        aicf.compile_step(nn.Linear(4, 3), lambda m, x: m(x).sum(), optim.SGD(nn.Linear(4, 3).parameters()), (X,))


def detach(model: Model, y: Tensor) -> Tensor:
    return (y * y.detach()).sum()


def enter_no_grad(model: Model, y: Tensor) -> Tensor:
    with aicf.no_grad():
        weight = y * 1.0
    return (y * weight).sum()


@pytest.mark.parametrize("trap", [detach, enter_no_grad])
def test_no_gradient_flows_where_none_does_eagerly(trap: Callable[[Model, Tensor], Any]) -> None:
    weights = []
    for backend in (None, "numpy"):
        aicf.manual_seed(0)
        model = Model(trap)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        if backend is None:
            model(X).backward()
            optimizer.step()
        else:
            aicf.compile_step(model, lambda m, x: m(x), optimizer, (X,), backend=backend)(X)
        weights.append(model.layer.weight.numpy().copy())
    np.testing.assert_array_equal(*weights)


def test_nodes_know_their_module_and_line() -> None:
    program = aicf.compile(nn.Sequential(nn.Linear(4, 3), nn.Softmax()), (X,))
    assert [(n.op, n.owner) for n in program.graph.nodes] == [("Linear", "0"), ("Softmax", "1")]
    assert all(Path(__file__).name in n.source for n in program.graph.nodes)
