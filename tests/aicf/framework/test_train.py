"""Compiled training steps against eager ones: the same bits, with dropout, a schedule, clipping, groups, and shared weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.errors import GradientError, StateError, UnsupportedError

RNG = np.random.default_rng(0)
BATCHES = [(RNG.normal(size=(8, 6)).astype(np.float32), RNG.integers(0, 3, size=8)) for _ in range(12)]
Build = Callable[[nn.Module], optim.Optimizer]


class Net(nn.Module):
    """Two layers, of which the second one's weight is shared with a third."""

    def __init__(self, generator: aicf.Generator) -> None:
        self.inner = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.drop = nn.Dropout(0.2, generator)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.inner(x))
        return self.head(self.drop(self.norm(F.silu(self.inner(x)))))


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, label_smoothing=0.1)


BUILDS: dict[str, Build] = {
    "AdamW with cosine": lambda m: optim.AdamW(m.parameters(), optim.cosine(1e-2, total=12, warmup=3)),
    "Adam": lambda m: optim.Adam(m.parameters(), 1e-2, weight_decay=0.1),
    "SGD with momentum": lambda m: optim.SGD(m.parameters(), optim.one_cycle(0.1, total=12), momentum=0.9, nesterov=True),
    "SGD": lambda m: optim.SGD(m.parameters(), 0.1),
    "Lion": lambda m: optim.Lion(m.parameters(), optim.linear(1e-2, total=12)),
    "groups": lambda m: optim.AdamW(
        [{"params": [m.head.weight], "lr": 0.1}, {"params": [m.inner.weight, m.inner.bias], "weight_decay": 0.0}]
    ),
}


def make(build: Build) -> tuple[Net, optim.Optimizer, aicf.Generator]:
    aicf.manual_seed(4)
    generator = aicf.Generator(9)
    model = Net(generator)
    return model, build(model), generator


def run_eagerly(model: Net, optimizer: optim.Optimizer, x: Tensor, y: Tensor, clip: float | None) -> Tensor:
    optimizer.zero_grad()
    value = loss(model, x, y)
    value.backward()
    if clip is not None:
        optim.clip_grad_norm(optimizer.params, clip)
    optimizer.step()
    return value


@pytest.mark.parametrize("passes", [True, False], ids=["passes", "no passes"])
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", BUILDS)
def test_a_compiled_step_is_an_eager_one_bit_for_bit(name: str, clip: float | None, passes: bool) -> None:
    (eager, opt, drawn), (model, other, generator) = make(BUILDS[name]), make(BUILDS[name])
    step = aicf.compile_step(model, loss, other, [Tensor(a) for a in BATCHES[0]], clip_norm=clip, passes=passes)
    for x, y in BATCHES:
        expected = run_eagerly(eager, opt, Tensor(x), Tensor(y), clip)
        assert step(x, y).item() == expected.item()
    for (path, p), (_, q) in zip(eager.named_parameters(), model.named_parameters(), strict=True):
        assert np.array_equal(p.numpy(), q.numpy()), path
    assert generator.state_dict() == drawn.state_dict()
    assert {k: v.tolist() for k, v in opt.state_dict().items()} == {k: v.tolist() for k, v in other.state_dict().items()}


def test_eager_and_compiled_steps_take_turns() -> None:
    (eager, opt, _), (model, other, _) = make(BUILDS["AdamW with cosine"]), make(BUILDS["AdamW with cosine"])
    step = aicf.compile_step(model, loss, other, [Tensor(a) for a in BATCHES[0]])
    for i, (x, y) in enumerate(BATCHES):
        expected = run_eagerly(eager, opt, Tensor(x), Tensor(y), None)
        found = step(x, y) if i % 2 else run_eagerly(model, other, Tensor(x), Tensor(y), None)
        assert found.item() == expected.item(), i


def test_a_parameter_used_twice_gets_both_gradients() -> None:
    model, optimizer, _ = make(BUILDS["SGD"])
    step = aicf.compile_step(model, loss, optimizer, [Tensor(a) for a in BATCHES[0]])
    made = [n for n in step.graph.nodes if n.op == "Elementwise" and n.attrs["function"] == "add" and n.differentiates is not None]
    assert any(n.outputs[0].type.shape == (6, 6) for n in made)


def test_states_are_flat_and_in_owner_order() -> None:
    model, optimizer, _ = make(BUILDS["Adam"])
    step = aicf.compile_step(model, loss, optimizer, [Tensor(a) for a in BATCHES[0]])
    parameters = [s for s in step.plan.states if s.role == "parameter"]
    assert [s.owner for s in parameters] == [path for path, _ in model.named_parameters()]
    for role in ("exp_avg", "exp_avg_sq"):
        held = {s.owner: s.slot.offset for s in step.plan.states if s.role == role}
        distances = {held[s.owner] - s.slot.offset for s in parameters}
        assert len(distances) == 1  # one flat launch finds each parameter's moments at one distance


def test_updates_are_in_place() -> None:
    model, optimizer, _ = make(BUILDS["AdamW with cosine"])
    step = aicf.compile_step(model, loss, optimizer, [Tensor(a) for a in BATCHES[0]])
    updates = [s for s in step.plan.steps if s.op == "Adam"]
    assert len(updates) == len(optimizer.params)
    for update in updates:
        assert [s.offset for s in update.outputs] == [update.inputs[i].offset for i in (0, 2, 3)]  # type: ignore[union-attr]
        assert all(s.region == "state" for s in update.outputs)


def test_mixed_precision_trains() -> None:
    (eager, opt, _), (model, other, _) = make(BUILDS["AdamW with cosine"]), make(BUILDS["AdamW with cosine"])
    step = aicf.compile_step(model, loss, other, [Tensor(a) for a in BATCHES[0]], amp="bfloat16")
    assert any(s.op == "Linear" and s.outputs[0].type.dtype == "bfloat16" for s in step.plan.steps)
    for x, y in BATCHES:
        expected = run_eagerly(eager, opt, Tensor(x), Tensor(y), None).item()
        # Roundings of 2**-9 in two layers and their gradients, over a dozen steps.
        assert abs(step(x, y).item() - expected) <= 0.05 * expected


def test_steps_are_checked_against_the_truth_and_states_stay() -> None:
    model, optimizer, _ = make(BUILDS["AdamW with cosine"])
    step = aicf.compile_step(model, loss, optimizer, [Tensor(a) for a in BATCHES[0]])
    before = model.state_dict()
    assert all(error.worst == 0.0 for error in step.check(BATCHES[0]))
    for path, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[path])
    run = step.executor.run_step

    def run_wrongly(index: int) -> None:
        run(index)
        if index == 2:
            step.executor.view(step.plan.steps[2].outputs[0])[...] = np.nan  # type: ignore[index]

    step.executor.run_step = run_wrongly  # type: ignore[method-assign]
    errors = step.check(BATCHES[0])
    assert [e.step for e in errors if e.worst != 0.0] == [2]


def test_a_program_follows_the_weights_that_a_step_trains() -> None:
    """A model has one set of weights, whichever program was compiled last."""
    model, optimizer, _ = make(BUILDS["SGD"])
    model.eval()
    program = aicf.compile(model, (Tensor(BATCHES[0][0]),))
    step = aicf.compile_step(model, loss, optimizer, [Tensor(a) for a in BATCHES[0]])
    for x, y in BATCHES[:3]:
        step(x, y)
        np.testing.assert_array_equal(program(x).numpy(), model(Tensor(x)).numpy())
    later = aicf.compile(model, (Tensor(BATCHES[0][0]),))
    step(*BATCHES[3])
    np.testing.assert_array_equal(later(x).numpy(), program(x).numpy())
    np.testing.assert_array_equal(later(x).numpy(), model(Tensor(x)).numpy())
    other = aicf.compile_step(model, loss, optimizer, [Tensor(a) for a in BATCHES[0]])
    other(*BATCHES[4])
    np.testing.assert_array_equal(later(x).numpy(), model(Tensor(x)).numpy())
    with pytest.raises(StateError, match="lives in the memory of a step that was compiled later"):
        step(*BATCHES[0])


def test_a_program_that_changes_no_weight_leaves_pending_gradients_alone() -> None:
    model, _, _ = make(BUILDS["SGD"])
    program = aicf.compile(model.eval(), (Tensor(BATCHES[0][0]),))
    value = loss(model, *(Tensor(a) for a in BATCHES[0]))
    program(BATCHES[0][0])
    value.backward()


def test_a_step_between_forward_and_backward_is_noticed() -> None:
    model, optimizer, _ = make(BUILDS["SGD"])
    step = aicf.compile_step(model, loss, optimizer, [Tensor(a) for a in BATCHES[0]])
    value = loss(model, *(Tensor(a) for a in BATCHES[0]))
    step(*BATCHES[0])
    with pytest.raises(GradientError, match="changed in place"):
        value.backward()


def test_the_arena_is_drawn(tmp_path: Path) -> None:
    model, optimizer, _ = make(BUILDS["SGD"])
    step = aicf.compile_step(model, loss, optimizer, [Tensor(a) for a in BATCHES[0]])
    step.plan.draw(tmp_path / "arena.svg")
    root = ET.parse(tmp_path / "arena.svg").getroot()
    boxes = [e for e in root if e.tag.endswith("rect")]
    held = {s.buffer for each in step.plan.steps for s in each.writes if s.region == "arena"}
    assert len(boxes) == len(held)
    assert all(float(b.get("y", "-1")) >= 19.99 for b in boxes)


def test_a_group_of_processes_is_refused_by_name() -> None:
    model, optimizer, _ = make(BUILDS["SGD"])
    batch = [Tensor(a) for a in BATCHES[0]]
    with pytest.raises(UnsupportedError, match=r"group=\[0, 1\]: a step trains on one GPU.*leave it out"):
        aicf.compile_step(model, loss, optimizer, batch, group=[0, 1])
    assert aicf.compile_step(model, loss, optimizer, batch, group=None)(*BATCHES[0]).item() > 0.0


def test_the_log_says_what_each_pass_did() -> None:
    model, optimizer, _ = make(BUILDS["Adam"])
    step = aicf.compile_step(model, loss, optimizer, [Tensor(a) for a in BATCHES[0]])
    entry = next(e for e in step.log if e.rule == "differentiate")
    assert entry.nodes_before < entry.nodes_after
    assert str(entry).startswith(f"differentiate: {entry.nodes_before} -> {entry.nodes_after} nodes")
