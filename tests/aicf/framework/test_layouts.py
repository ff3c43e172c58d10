"""Layouts over forward and backward pass: needless transposes go, values stay, and copies never become more."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.ir import Graph, Rewriter, Value
from aicf.ir.validity import check
from aicf.opset import Attrs, Type, find_op
from aicf.passes import PASSES, Context, run_passes
from aicf.passes.context import Choice, Training, Updates
from aicf.passes.transposes import count_copies
from aicf.train import building
from tests.aicf.framework.random_graphs import make_values

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(8, 16)).astype(np.float32), RNG.integers(0, 4, size=8)
BEFORE_LOWERING = [each for each in PASSES if each.name not in ("lower", "select", "fuse chains", "keep copies", "flatten", "join sums")]


class Counting:
    """A chooser that serves everything, a launch in a microsecond; calls of an op that is ``dear`` in layout kn take 100."""

    def __init__(self, dear: str = "") -> None:
        self._dear = dear

    def predict_us(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> float | None:
        if op == self._dear and attrs["w_layout"] == "kn":
            return 100.0
        return 0.0 if find_op(op).is_view else 2.0 if op == "MatMul" and attrs["transpose_a"] else 1.0

    def prepare(self, nodes: Sequence[object]) -> Sequence[str]:
        return ()

    def choose(self, node: object) -> Choice:
        return Choice("", "", "", None, 0, "")


def descend(rewriter: Rewriter, grads: Mapping[str, Value]) -> Updates:
    states = {s.owner: s.value for s in rewriter.graph.states}
    return [(states[owner], rewriter.sub(states[owner], rewriter.scale(g, 0.1))) for owner, g in grads.items()]


def interpret(graph: Graph, seed: int) -> list[np.ndarray]:
    """Return outputs and new states by walking the graph."""
    inputs, states = make_values(graph, seed)
    held = {v.id: x for (_, v), x in zip(graph.inputs, inputs, strict=True)} | {s.value.id: states[s.owner, s.role] for s in graph.states}
    for node in graph.nodes:
        made = find_op(node.op).evaluate([None if v is None else held[v.id] for v in node.inputs], node.attrs)
        held |= {v.id: x for v, x in zip(node.outputs, made, strict=True)}
    new = {state.id: held[value.id] for state, value in graph.updates}
    return [held[v.id] for v in graph.outputs] + [new.get(s.value.id, held[s.value.id]) for s in graph.states]


def make_network(seed: int) -> Graph:
    """Return a graph of products, permutations, elementwise calls and sums of matrices and of batches, with a loss of all of them."""
    rng = random.Random(seed)
    rewriter = Rewriter(Graph(f"layouts {seed}", (), (), (), ()))
    shapes = [(3, 4), (4, 3), (4, 4), (2, 3, 4), (2, 4, 3)]
    inputs = tuple((f"x{i}", Value(rewriter.make_id(), Type("float64", rng.choice(shapes)))) for i in range(2))
    rewriter.graph = Graph(rewriter.graph.name, inputs, (), (), ())
    states = [rewriter.add_state(f"p{i}", "parameter", Type("float64", rng.choice(shapes[:3]))) for i in range(3)]
    bias = rewriter.add_state("bias", "parameter", Type("float64", (4,)))
    values = [*(v for _, v in inputs), *states]
    for _ in range(rng.randint(4, 18)):
        x, y = rng.choice(values), rng.choice(values)
        rank, kind = len(x.type.shape), rng.randrange(6)
        try:
            if kind == 0:
                made = rewriter.one("Permute", x, order=(*range(rank - 2), rank - 1, rank - 2))
            elif kind == 1:
                made = rewriter.one("Permute", x, order=tuple(rng.sample(range(rank), rank)))
            elif kind == 2:
                made = rewriter.one("MatMul", x, y, transpose_a=rng.random() < 0.4, transpose_b=rng.random() < 0.4)
                if made.type.shape[-1] == 4 and rng.random() < 0.5:
                    made = rewriter.add(made, bias)
            elif kind == 3:
                made = rewriter.each(rng.choice(("tanh", "relu", "sin")), x)
            elif kind == 4:
                made = rewriter.each(rng.choice(("add", "mul")), x, y)
            else:
                made = rewriter.one("Linear", x, y, None)
        except (TypeError, ValueError):
            continue
        if made.type.num_elems <= 300:
            values.append(made)
    total = None
    for value in (*rng.sample(values, min(4, len(values))), *states, bias):
        axes = tuple(range(len(value.type.shape)))
        if len(axes) > 1 and rng.random() < 0.5:
            value, axes = rewriter.reduce("sum", value, axes[:1]), axes[:-1]
        part = rewriter.reduce("mean", value, axes)
        total = part if total is None else rewriter.add(total, part)
    assert total is not None
    return rewriter.finish([total, values[-1]])


@given(st.integers(0, 10**9), st.booleans())
@settings(max_examples=60, deadline=None)
def test_values_stay_and_copies_never_become_more(seed: int, trains: bool) -> None:
    graph = make_network(seed)
    training = Training(("p0", "p1", "p2", "bias"), descend) if trains else None
    plain = [each for each in BEFORE_LOWERING if each.name not in ("choose layouts", "drop transposes", "fuse", "add in products")]
    expected, _ = run_passes(graph, Context(training, Counting()), plain)
    seen: dict[str, tuple[int, int]] = {}
    chosen = [each for each in BEFORE_LOWERING if each.name not in ("fuse", "add in products")]
    made, _ = run_passes(
        graph,
        Context(training, Counting()),
        chosen,
        lambda each, before, after: seen.update({each.name: (count_copies(before), count_copies(after))}),
    )
    check(made, "behind all")
    for name in ("choose layouts", "drop transposes"):
        assert seen[name][1] <= seen[name][0]
    assert count_copies(made) <= count_copies(expected)
    for a, b in zip(interpret(expected, seed), interpret(made, seed), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-10)


class Transposed(nn.Module):
    """Layers that have their weights as [K, N], written in three ways, with transposes that nobody needs."""

    def __init__(self) -> None:
        aicf.manual_seed(0)
        rng = np.random.default_rng(0)
        shapes = (16, 32), (32,), (32, 24)
        self.first, self.bias, self.second = (nn.Parameter(rng.normal(size=s).astype(np.float32) * 0.3) for s in shapes)
        self.third = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(x @ self.first + self.bias)
        h = F.linear(h, self.second.T)
        h = F.tanh(h.T).T  # there and back
        return self.third(h)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def compile_it(backend: str, **options: object) -> aicf.train.Step:
    model = Transposed()
    return aicf.compile_step(model, loss, optim.AdamW(model.parameters(), lr=1e-2), [Tensor(X), Tensor(Y)], backend=backend, **options)  # type: ignore[arg-type]


COPYING = ("transpose", "strided_copy")


@pytest.mark.parametrize("amp", [None, pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_a_step_loses_its_needless_transposes_forward_and_backward(device: object, amp: str | None) -> None:
    step, truth = compile_it("cuda", amp=amp), compile_it("numpy", amp=amp)
    launches = [s.op for s in step.plan.steps]
    assert not [op for op in launches if op in COPYING]
    # A product per layer in each direction, in the layout in which the weight lies.
    assert launches.count("gemm_bias_act") == launches.count("gemm_backward") == 3
    assert [s.attrs["b_layout"] for s in step.plan.steps if s.op == "gemm_bias_act"] == ["kn", "kn", "nk"]
    losses, expected = ([s(X, Y).item() for _ in range(6)] for s in (step, truth))
    np.testing.assert_allclose(losses, expected, rtol=1e-5 if amp is None else 2e-2)
    log = {entry.rule: entry.notes for entry in step.log}
    assert sum("weight as [K, N], forward and backward" in note and note.endswith(": taken") for note in log["choose layouts"]) == 2
    assert any(note.endswith("-> 0") for note in log["drop transposes"])


def test_without_these_passes_the_same_step_copies(device: object, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tuple(each for each in PASSES if each.name not in ("choose layouts", "drop transposes"))
    monkeypatch.setattr(building, "PASSES", left)
    launches = [s.op for s in compile_it("cuda").plan.steps]
    assert len([op for op in launches if op in COPYING]) >= 4  # what the test above would find


def list_layouts(chooser: Counting, trains: bool) -> list[str]:
    rewriter = Rewriter(Graph("one", (), (), (), ()))
    inputs = (("x", Value(rewriter.make_id(), Type("float32", (8, 16)))),)
    rewriter.graph = Graph("one", inputs, (), (), ())
    weight = rewriter.add_state("w", "parameter", Type("float32", (16, 4)))
    y = rewriter.one("MatMul", inputs[0][1], weight)
    graph = rewriter.finish([rewriter.reduce("sum", y, (0, 1))])
    context = Context(Training(("w",), descend) if trains else None, chooser)
    made, log = run_passes(graph, context, [each for each in BEFORE_LOWERING if each.name != "fuse"])
    (entry,) = (e for e in log if e.rule == "choose layouts")
    assert len(entry.notes) == 1 and (" forward and backward " in entry.notes[0]) is trains
    return [node.op for node in made.nodes if node.op in ("MatMul", "Linear", "LinearGrad")]


def test_both_passes_decide_together() -> None:
    # Forward alone a product is as good as a layer; with its gradient, which takes a transposed copy, it is not.
    assert list_layouts(Counting(), trains=False) == ["MatMul"]
    assert list_layouts(Counting(), trains=True) == ["Linear", "LinearGrad"]
    # Where the backward pass in that layout takes long, the forward pass keeps its own too.
    assert list_layouts(Counting("LinearGrad"), trains=True) == ["MatMul", "MatMul"]


def test_a_permutation_that_others_read_stays_once() -> None:
    rewriter = Rewriter(Graph("two", (), (), (), ()))
    inputs = (("x", Value(rewriter.make_id(), Type("float64", (3, 4)))),)
    rewriter.graph = Graph("two", inputs, (), (), ())
    turned = rewriter.one("Permute", inputs[0][1], order=(1, 0))
    graph = rewriter.finish([rewriter.each("tanh", turned), rewriter.each("sin", turned)])
    made, _ = run_passes(graph, Context(None, Counting()), [each for each in PASSES if each.name == "drop transposes"])
    assert count_copies(made) == 1


def test_sums_are_taken_where_axes_were() -> None:
    rewriter = Rewriter(Graph("sum", (), (), (), ()))
    inputs = (("x", Value(rewriter.make_id(), Type("float64", (2, 3, 4)))),)
    rewriter.graph = Graph("sum", inputs, (), (), ())
    turned = rewriter.one("Permute", inputs[0][1], order=(2, 0, 1))
    graph = rewriter.finish([rewriter.reduce("sum", turned, (0,)), rewriter.reduce("max", turned, (1,))])
    made, _ = run_passes(graph, Context(None, Counting()), [each for each in PASSES if each.name == "drop transposes"])
    # The second one's rest would be in another order.
    assert count_copies(made) == 1
    for a, b in zip(interpret(graph, 3), interpret(made, 3), strict=True):
        np.testing.assert_array_equal(a, b)
