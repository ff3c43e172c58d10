"""What is equal by content is built once, and what differs in anything that decides is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.train import building

BATCH = Tensor(np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)), Tensor(np.zeros(8, np.int64))


@pytest.fixture(autouse=True)
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the names of the graphs that are planned."""
    names: list[str] = []
    make = building.make_plan

    def note(graph: Any, *args: Any) -> Any:
        names.append(graph.name)
        return make(graph, *args)

    monkeypatch.setattr(building, "make_plan", note)
    building.forget()
    yield names
    building.forget()


def compute_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def compile_it(units: int = 5, lr: float = 1e-2, **options: Any) -> Any:
    model = nn.Sequential(nn.Linear(6, units), nn.ReLU(), nn.Linear(units, 3))
    return aicf.compile_step(model, compute_loss, optim.Adam(model.parameters(), lr), BATCH, **options)


def test_an_equal_step_is_not_planned_again_and_trains_as_the_first(planned: list[str]) -> None:
    losses = []
    for _ in range(2):
        aicf.manual_seed(0)
        step = compile_it()
        losses.append([float(step(*BATCH).item()) for _ in range(3)])
        assert [entry.rule for entry in step.log].count("differentiate") == 1 and step.verify_replay(2)
    assert len(planned) == 1 and losses[0] == losses[1]


@pytest.mark.parametrize("other", [{"units": 7}, {"lr": 2e-2}, {"clip_norm": 1.0}, {"passes": False}, {"amp": "bfloat16"}])
def test_a_step_that_differs_is_planned(planned: list[str], other: dict[str, Any]) -> None:
    compile_it()
    compile_it(**other)
    assert len(planned) == 2


@pytest.mark.slow
def test_a_kernel_that_is_left_out_later_has_everything_planned_again(device: object, planned: list[str]) -> None:
    step = compile_it(backend="cuda")
    compile_it(backend="cuda")
    assert len(planned) == 1
    call = next(c for c in step.executor._binding.calls if c is not None and c.handle.chain is None)
    registry = step.executor._binding.frozen._registry
    refused = dict(registry._refused)
    registry.refuse(call.handle.op, call.seal, "a test says so")
    try:
        compile_it(backend="cuda")
        assert len(planned) == 2
    finally:
        registry._refused = refused


def test_what_was_used_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch, planned: list[str]) -> None:
    monkeypatch.setattr(building, "_MAX_KEPT", 2)
    for units in (4, 5, 4, 6, 4, 5):  # 5 makes room for 6
        compile_it(units)
    assert len(planned) == 4
