"""Values that are computed again to fit into given memory: the same bits, in no more bytes than are allowed, or an error with the least."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.errors import PlanError
from aicf.ir import Graph, Rewriter, Value
from aicf.opset import Type
from aicf.passes import PASSES, Context, run_passes
from aicf.passes.context import Budget, Training
from aicf.plan import make_plan
from aicf.train.building import find_footprint
from aicf.train.program import Step
from device import Device
from tests.aicf.framework.random_graphs import UNARY
from tests.aicf.framework.test_passes import descend, evaluate

_rng = np.random.default_rng(0)
BATCHES = [(_rng.normal(size=(128, 16)).astype(np.float32), _rng.integers(0, 4, 128)) for _ in range(3)]


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def train(backend: str = "numpy", depth: int = 5, **options: Any) -> tuple[Step, list[float], dict[str, Any]]:
    """Return a step after three batches, their losses, and the weights."""
    aicf.manual_seed(0)
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(16, 16), nn.ReLU() if i % 2 else nn.GELU()]
    rest = [nn.LayerNorm(16), nn.Dropout(0.2)] if backend == "numpy" else []
    model = nn.Sequential(*layers, *rest, nn.Linear(16, 4))
    step = aicf.compile_step(
        model, loss, optim.Adam(model.parameters(), lr=1e-2), [Tensor(a) for a in BATCHES[0]], backend=backend, **options
    )
    return step, [step(*batch).item() for batch in BATCHES], model.state_dict()


def count_bytes(step: Step) -> int:
    return sum(step.plan.sizes.values())


@pytest.mark.parametrize("share", [0.85, 0.7, 0.6])
def test_a_step_in_less_memory_has_the_same_bits(share: float) -> None:
    (step, losses, weights), (small, others, changed) = train(), train(memory_bytes=int(share * count_bytes(train()[0])))
    assert count_bytes(small) <= share * count_bytes(step)
    assert len(small.plan.steps) > len(step.plan.steps)
    assert others == losses
    assert all(np.array_equal(changed[path], weight) for path, weight in weights.items())
    assert small.log[-1].rule == "recompute" and all("again before" in note for note in small.log[-1].notes)


def test_what_is_read_in_between_is_not_made_again() -> None:
    step = train(memory_bytes=10**9)[0]
    assert step.plan.to_lines() == train()[0].plan.to_lines()
    assert re.fullmatch(r"\d+ bytes of 1000000000 allowed: nothing is computed twice", step.log[-1].notes[0])


def test_too_little_memory_is_an_error_with_the_least() -> None:
    with pytest.raises(
        PlanError, match=r"memory_bytes=30000: needs at least \d+ bytes \(state \d+, .*take smaller batches, or amp"
    ) as caught:
        train(memory_bytes=30000)
    found = re.search(r"at least (\d+) bytes", str(caught.value))
    assert found is not None
    least = int(found[1])
    assert count_bytes(train(memory_bytes=least)[0]) <= least
    with pytest.raises(ValueError, match="memory_bytes=0: must be at least 1"):
        train(memory_bytes=0)
    model = nn.Linear(16, 4)
    with pytest.raises(PlanError, match=r"Linear: memory_bytes=100: needs at least \d+ bytes"):
        aicf.compile(model, (Tensor(BATCHES[0][0]),), memory_bytes=100)


def make_deep(seed: int) -> Graph:
    """Return a graph of 8 to 20 calls on matrices that a backward pass reads, with parameters and a scalar output."""
    rng = random.Random(seed)
    b = Rewriter(Graph(f"deep {seed}", (), (), (), ()))
    x = Value(b.make_id(), Type("float64", (12, 12)))
    b.graph = Graph(f"deep {seed}", (("x0", x),), (), (), ())
    states = [b.add_state(f"p{i}", "parameter", Type("float64", (12, 12))) for i in range(3)]
    values = [x]
    for _ in range(rng.randint(8, 20)):
        y = rng.choice(values[-3:])
        kind = rng.randrange(4)
        if kind == 0:
            values.append(b.one("MatMul", y, rng.choice(states)))
        elif kind == 1:
            values.append(b.mul(y, rng.choice((*states, *values))))
        elif kind == 2:
            values.append(b.reshape(b.each("sin", b.reshape(y, (144,))), (12, 12)))
        else:
            values.append(b.each(rng.choice(UNARY), y))
    return b.finish([b.reduce("mean", b.add(values[-1], values[-2]), (0, 1))])


def test_random_graphs_keep_their_bits() -> None:
    num_fitting = 0
    for seed in range(24):
        context = Context(Training(("p0", "p1", "p2"), descend))
        passes = [each for each in PASSES if each.name not in ("lower", "select", "recompute")]
        graph, _ = run_passes(make_deep(seed), context, passes)
        whole = find_footprint(make_plan(graph, "numpy"))
        allowed = whole.num_bytes - (seed % 4 + 1) * 12 * 12 * 8
        context.budget = Budget(allowed, lambda g: find_footprint(make_plan(g, "numpy")))
        try:
            made, _ = run_passes(graph, context, [each for each in PASSES if each.name == "recompute"])
        except PlanError:
            continue
        num_fitting += 1
        assert find_footprint(make_plan(made, "numpy")).num_bytes <= allowed
        for x, y in zip(evaluate(graph, seed), evaluate(made, seed), strict=True):
            assert np.array_equal(x, y, equal_nan=True)
    assert num_fitting >= 12


def test_kernels_are_launched_again(device: Device) -> None:
    step, losses, weights = train("cuda", depth=3)
    small, others, changed = train("cuda", depth=3, memory_bytes=int(0.85 * count_bytes(step)))
    assert count_bytes(small) <= 0.85 * count_bytes(step)
    assert others == losses
    assert all(np.array_equal(changed[path], weight) for path, weight in weights.items())
    assert all(re.search(r"gemm_bias_act of \d \(.*\) again before #\d+: \d+\.\d us for \d+ bytes", note) for note in small.log[-1].notes)
    seals = {s.seal for s in step.plan.steps if s.op == "gemm_bias_act"}
    assert {s.seal for s in small.plan.steps if s.op == "gemm_bias_act"} == seals
