"""Passes by value: a random graph computes the same before and after each, to the bit where the table says that the pass is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.errors import PlanError
from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import Attrs, Type, find_op
from aicf.passes import PASSES, Context, Pass, run_passes
from aicf.passes.context import Choice, Training, Updates
from aicf.plan import make_plan, verify
from aicf.runtime.host import HostExecutor
from contract.expressions import parse_chain
from tests.aicf.framework.random_graphs import make_chains, make_network, make_values


class Eager:
    """A chooser that serves every product, with an epilogue faster than without, and nothing elementwise."""

    def predict_us(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> float | None:
        return 1.0 if op in ("Linear", "LinearGrad") else float("inf")

    def prepare(self, nodes: Sequence[object]) -> Sequence[str]:
        return ()

    def choose(self, node: object) -> Choice:
        return Choice("", "", "", None, 0, "")


def descend(rewriter: Rewriter, grads: Mapping[str, Value]) -> Updates:
    states = {s.owner: s.value for s in rewriter.graph.states}
    return [(states[owner], rewriter.sub(states[owner], rewriter.scale(g, 0.1))) for owner, g in grads.items() if owner != "p0"]


class Everything:
    """A chooser that serves whatever is frozen."""

    def predict_us(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> float | None:
        return 1.0

    def prepare(self, nodes: Sequence[Node]) -> Sequence[str]:
        return ()

    def choose(self, node: Node) -> Choice:
        return Choice(node.op, "", "", None, 0, "")


def evaluate(graph: Graph, seed: int) -> list[np.ndarray]:
    """Return outputs and new states, by a plan that is verified and run on poisoned memory."""
    plan = make_plan(graph, "numpy")
    verify(plan)
    executor = HostExecutor(plan, poison=True)
    inputs, states = make_values(graph, seed)
    executor.load_states(states)
    executor.put(inputs)
    executor.run()
    return [np.array(executor.view(slot)) for slot in (*plan.outputs, *(s.slot for s in plan.states))]


def interpret(graph: Graph, seed: int) -> list[np.ndarray]:
    """Return the same by walking the graph, with no plan."""
    inputs, states = make_values(graph, seed)
    held = {v.id: x for (_, v), x in zip(graph.inputs, inputs, strict=True)} | {s.value.id: states[s.owner, s.role] for s in graph.states}
    for node in graph.nodes:
        made = find_op(node.op).evaluate([None if v is None else held[v.id] for v in node.inputs], node.attrs)
        held |= {v.id: x for v, x in zip(node.outputs, made, strict=True)}
    new = {state.id: held[value.id] for state, value in graph.updates}
    roles = {"parameter": 0}
    ordered = sorted(graph.states, key=lambda s: roles.get(s.role, 1))
    return [held[v.id] for v in graph.outputs] + [new.get(s.value.id, held[s.value.id]) for s in ordered]


@given(st.integers(0, 10**9), st.booleans())
@settings(max_examples=25, deadline=None)
def test_each_pass_keeps_the_values(seed: int, fuses: bool) -> None:
    graph = make_network(seed)
    context = Context(Training(("p1", "p2"), descend), Eager() if fuses else None)
    # Lowering needs kernels; it is held against values where these are.
    passes = [each for each in PASSES if each.name not in ("lower", "select")]

    known = [evaluate(graph, seed)]

    def watch(each: Pass, before: Graph, after: Graph) -> None:
        old = known.pop()
        known.append(old if before == after else evaluate(after, seed))
        if each.name == "differentiate":
            return
        for x, y in zip(old, known[0], strict=True):
            if each.is_exact:
                assert np.array_equal(x, y, equal_nan=True), each.name
            else:
                np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)

    run_passes(graph, context, passes, watch)


@given(st.integers(0, 10**9))
@settings(max_examples=40, deadline=None)
def test_a_plan_computes_what_its_graph_does(seed: int) -> None:
    graph = make_network(seed, "float32")
    for x, y in zip(evaluate(graph, seed), interpret(graph, seed), strict=True):
        assert np.array_equal(x, y, equal_nan=True)


@given(st.integers(0, 10**9))
@settings(max_examples=30, deadline=None)
def test_gradients_of_a_graph_are_what_finite_differences_say(seed: int) -> None:
    graph = make_network(seed)
    inputs, states = make_values(graph, seed)
    found: dict[str, Value] = {}

    def keep(rewriter: Rewriter, grads: Mapping[str, Value]) -> Updates:
        found.update(grads)
        return []

    made, _ = run_passes(graph, Context(Training(("p0",), keep)), [p for p in PASSES if p.name == "differentiate"])
    if "p0" not in found:
        return
    held = {v.id: x for (_, v), x in zip(made.inputs, inputs, strict=True)} | {s.value.id: states[s.owner, s.role] for s in made.states}
    direction = np.random.default_rng(seed).normal(size=states["p0", "parameter"].shape)

    def run(step: float, wanted: Value) -> np.ndarray:
        values = dict(held)
        p0 = next(s.value.id for s in made.states if s.owner == "p0")
        values[p0] = held[p0] + step * direction
        for node in made.nodes:
            out = find_op(node.op).evaluate([None if v is None else values[v.id] for v in node.inputs], node.attrs)
            values |= {v.id: x for v, x in zip(node.outputs, out, strict=True)}
        return values[wanted.id]

    slope = float((run(0.0, found["p0"]) * direction).sum())
    loss = made.outputs[0]
    steps = [(float(run(h, loss)) - float(run(-h, loss))) / (2 * h) for h in (1e-5, 1e-6)]
    # Kinks of max, abs and relu between two steps make the quotients differ: such a graph says nothing.
    if abs(steps[0] - steps[1]) <= 1e-6 * (1 + abs(slope)):
        assert abs(slope - steps[0]) <= 1e-5 * (1 + abs(slope))


def network(build: object) -> Graph:
    rewriter = Rewriter(Graph("g", (), (), (), ()))
    x = Value(rewriter.make_id(), Type("float32", (4, 8)))
    rewriter.graph = Graph("g", (("x", x),), (), (), ())
    outputs = build(rewriter, x)  # type: ignore[operator]
    return rewriter.finish(outputs)


def run_one(name: str, graph: Graph, context: Context | None = None) -> Graph:
    made, _ = run_passes(graph, context or Context(), [p for p in PASSES if p.name == name])
    return made


def count(graph: Graph, op: str) -> int:
    return sum(node.op == op for node in graph.nodes)


def test_constants_fold_to_one() -> None:
    graph = network(lambda b, x: [b.add(x, b.each("exp", b.scale(b.full(2.0, x), 0.5)))])
    made = run_one("fold constants", graph)
    assert count(made, "Elementwise") == 1
    (constant,) = [n for n in run_one("remove dead", made).nodes if n.op == "Full"]
    assert constant.attrs["value"] == float(np.float32(np.exp(1.0)))


@pytest.mark.parametrize(
    ("function", "number", "goes"), [("mul", 1.0, True), ("div", 1.0, True), ("sub", 0.0, True), ("add", 0.0, False), ("mul", 2.0, False)]
)
def test_neutral_operands_go_where_that_is_exact(function: str, number: float, goes: bool) -> None:
    made = run_one("simplify", network(lambda b, x: [b.each(function, x, b.full(number, x))]))
    assert (count(made, "Elementwise") == 0) == goes


def test_views_of_views_join() -> None:
    made = run_one(
        "simplify",
        network(lambda b, x: [b.one("Permute", b.one("Permute", x, order=(1, 0)), order=(1, 0)), b.reshape(b.reshape(x, (32,)), (8, 4))]),
    )
    assert count(run_one("remove dead", made), "Permute") == 0
    assert count(run_one("remove dead", made), "Reshape") == 1


def test_calls_that_are_the_same_are_made_once() -> None:
    graph = network(lambda b, x: [b.mul(b.each("tanh", x), b.each("tanh", x)), b.each("exp", x)])
    assert count(run_one("merge common", graph), "Elementwise") == 3


def test_dead_calls_go() -> None:
    def build(b: Rewriter, x: Value) -> list[Value]:
        b.each("exp", x)
        return [b.each("tanh", x)]

    assert count(run_one("remove dead", network(build)), "Elementwise") == 1


def mlp(b: Rewriter, x: Value, act: str = "gelu_tanh") -> list[Value]:
    w1, w2 = b.add_state("a.weight", "parameter", Type("float32", (16, 8))), b.add_state("b.weight", "parameter", Type("float32", (2, 16)))
    bias = b.add_state("a.bias", "parameter", Type("float32", (16,)))
    hidden = b.each(act, b.one("Linear", x, w1, bias))
    y = b.one("Linear", hidden, w2, None)
    return [b.reduce("sum", y, (0, 1))]


def all_states(rewriter: Rewriter, grads: Mapping[str, Value]) -> Updates:
    states = {s.owner: s.value for s in rewriter.graph.states}
    return [(states[owner], g) for owner, g in grads.items()]


@pytest.mark.parametrize("act", ["relu", "gelu_tanh", "gelu_erf", "silu"])
def test_an_activation_becomes_the_epilogue_of_both_passes(act: str) -> None:
    owners = ("a.weight", "a.bias", "b.weight")
    graph = network(lambda b, x: mlp(b, x, act))
    made, log = run_passes(graph, Context(Training(owners, all_states), Eager()), [p for p in PASSES if p.name not in ("lower", "select")])
    linear = next(n for n in made.nodes if n.op == "Linear")
    assert linear.attrs == {"act": act, "keep_z": act != "relu", "w_layout": "nk"}
    grad = next(n for n in made.nodes if n.op == "LinearGrad")
    assert grad.attrs == {"wants": "x w bias", "act": act, "w_layout": "nk"}
    assert count(made, "Elementwise") == 0
    (entry,) = [e for e in log if e.rule == "fuse"]
    assert any("fused 1.0 us, parts 1.0 us + not served" in note for note in entry.notes)


def test_nothing_is_fused_where_it_does_not_pay() -> None:
    class Dear(Eager):
        def predict_us(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> float | None:
            return 5.0 if attrs.get("act", "none") != "none" else 1.0

    graph = network(mlp)
    assert count(run_one("fuse", graph, Context(chooser=Dear())), "Elementwise") == 1


@pytest.mark.parametrize("becomes_state", [False, True])
def test_gradients_of_a_weight_used_thrice_are_added_in_products_and_in_place(becomes_state: bool) -> None:
    def build(b: Rewriter, x: Value) -> list[Value]:
        b.add_state("v", "buffer", Type("float32", (8, 8)))
        w = b.add_state("w", "parameter", Type("float32", (8, 8)))
        for _ in range(3):
            x = b.each("tanh", b.one("Linear", x, w, None))
        return [b.reduce("sum", x, (0, 1))]

    def attach(rewriter: Rewriter, grads: Mapping[str, Value]) -> Updates:
        return all_states(rewriter, {"v": grads["w"]} if becomes_state else {"w": rewriter.mul(grads["w"], grads["w"])})

    def make(*left_out: str) -> Graph:
        passes = [p for p in PASSES if p.name not in left_out]
        return run_passes(network(build), Context(Training(("w",), attach), Everything()), passes)[0]

    made = make()
    products = [n for n in made.nodes if n.op == "gemm_backward" and n.inputs[2] is not None]
    assert [n.attrs["accumulate"] for n in products] == [False, True, True]
    for found, expected in zip(evaluate(made, 3), evaluate(make("add in products"), 3), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    steps = [s for s in make_plan(made, "numpy").steps if s.op == "gemm_backward" and s.attrs["accumulate"]]
    shared = [(s.inputs[4].region, s.inputs[4].offset) == (s.outputs[-1].region, s.outputs[-1].offset) for s in steps if s.inputs[4]]
    # A state's bytes may be read before the last product runs: what is added there is copied first.
    assert shared == [True, not becomes_state]


@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_mixed_precision_keeps_what_states_are(compute: str) -> None:
    owners = ("a.weight", "a.bias", "b.weight")
    made, _ = run_passes(network(mlp), Context(Training(owners, all_states), amp=compute), [p for p in PASSES if p.name != "lower"])
    assert all(new.type.dtype == "float32" for _, new in made.updates)
    products = [n for n in made.nodes if n.op in ("Linear", "LinearGrad")]
    assert products and all(v.type.dtype == compute for n in products for v in n.inputs if v is not None)
    # Sums of gradients are in the dtype of gradients, like those that products make; other reductions are in fp32.
    reduced = {(n.differentiates is None, v.type.dtype) for n in made.nodes if n.op == "Reduce" for v in n.inputs if v is not None}
    assert reduced <= {(True, "float32"), (False, compute)} and (False, compute) in reduced


def test_an_unknown_compute_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="amp: expected one of bfloat16, float16, got 'int8'"):
        run_one("mix precision", network(mlp), Context(amp="int8"))


@pytest.mark.parametrize("seed", range(40))
def test_fused_chains_have_the_values_of_their_parts(seed: int) -> None:
    graph = make_chains(seed)
    before = evaluate(graph, seed)
    context, seen = Context(chooser=Everything()), {}

    def watch(each: Pass, old: Graph, new: Graph) -> None:
        seen[each.name] = (old, new)
        for x, y in zip(before, evaluate(new, seed), strict=True):
            # bfloat16 values that stay inside of a chain are not rounded: 2**-8 of what they are, through slopes of about 1.
            np.testing.assert_allclose(y.astype(np.float64), x.astype(np.float64), rtol=0.05, atol=0.05, err_msg=each.name)

    run_passes(
        graph, context, [p for p in PASSES if p.name in ("lower", "remove dead last", "fuse chains", "remove dead constants")], watch
    )
    old, new = seen["fuse chains"]
    assert count(new, "elementwise") <= count(old, "elementwise")
    for node in new.nodes:
        if node.op == "elementwise":
            chain = parse_chain("chain", str(node.attrs["chain"]))
            assert sum(len(o.words) for o in chain.inputs) <= 8 and sum(len(o.words) for o in chain.outputs) <= 4


def make_step(*, clip: bool, groups: bool) -> aicf.train.Step:
    """Return a step on NumPy of which the recorded graph is of interest."""
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 4))
    params = list(model.parameters())
    given = [{"params": params[1::2], "weight_decay": 0.0}, {"params": params[::2], "weight_decay": 0.1}] if groups else params
    optimizer = optim.AdamW(given, lr=optim.cosine(1e-2, total=9))
    x, y = Tensor(np.ones((5, 6), np.float32)), Tensor(np.array([0, 1, 2, 3, 0]))
    return aicf.compile_step(model, lambda m, a, b: F.cross_entropy(m(a), b), optimizer, (x, y), clip_norm=0.25 if clip else None)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("groups", [False, True])
def test_flat_launches_have_the_values_of_single_ones(clip: bool, groups: bool) -> None:
    """The step as frozen ops, flat and not, by plans that are verified and run by the truth."""
    step = make_step(clip=clip, groups=groups)
    assert step.graph is not None
    found = {}
    last = [p for p in PASSES if p.name in ("lower", "remove dead last", "fuse chains", "remove dead constants", "flatten")]
    for name in ("flat", "single"):
        chosen = [p for p in PASSES if p.name == "join sums" and name == "flat"] + [
            p for p in last if name == "flat" or p.name != "flatten"
        ]
        graph, _ = run_passes(step.graph, Context(chooser=Everything()), chosen)
        executor = HostExecutor(make_plan(graph, "numpy"), poison=True)
        verify(executor.plan)
        executor.load_states({key: t.numpy() for key, t in step.tensors.items()})
        rng = np.random.default_rng(0)
        for _ in range(5):
            executor.put([rng.normal(size=(5, 6)).astype(np.float32), rng.integers(0, 4, 5)])
            executor.run()
        states = {(s.owner, s.role): np.array(executor.view(s.slot)) for s in executor.plan.states}
        found[name] = (graph, [np.array(executor.view(s)) for s in executor.plan.outputs] + [states[key] for key in sorted(states)])
    for x, y in zip(found["flat"][1], found["single"][1], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-8)
    flat = [n.attrs["op"] for n in found["flat"][0].nodes if n.op == "flat"]
    num_groups = 2 if groups else 1
    assert sorted(flat) == sorted(["optimizer"] * num_groups + (["reduce"] + ["elementwise"] * num_groups if clip else []))
    assert count(found["single"][0], "optimizer") == 4
    # One launch for all parameters counts the steps; of two, neither may.
    counts = [n for n in found["flat"][0].nodes if n.op == "elementwise" and any(v.type.dtype == "int64" for v in n.outputs)]
    assert len(counts) == groups


def test_a_plan_whose_members_lie_apart_is_refused() -> None:
    step = make_step(clip=False, groups=False)
    assert step.graph is not None
    names = ("lower", "remove dead last", "fuse chains", "remove dead constants", "flatten")
    graph, _ = run_passes(step.graph, Context(chooser=Everything()), [p for p in PASSES if p.name in names])
    plan = make_plan(graph, "numpy")
    verify(plan)
    index, update = next((i, s) for i, s in enumerate(plan.steps) if s.op == "flat")
    slot = update.inputs[5]
    assert slot is not None
    moved = replace(slot, offset=plan.sizes[slot.region])
    wrong = replace(update, inputs=(*update.inputs[:5], moved, *update.inputs[6:]))
    sizes = {**plan.sizes, slot.region: plan.sizes[slot.region] + 4096}
    with pytest.raises(PlanError, match="as a part of what begins at"):
        verify(replace(plan, steps=(*plan.steps[:index], wrong, *plan.steps[index + 1 :]), sizes=sizes))


@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_copies_that_updates_write_have_the_values_of_casts(compute: str) -> None:
    """Steps in 16 bits with and without copies, by plans that are verified and run by the truth, bit for bit."""
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 4))
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    x, y = Tensor(np.ones((5, 6), np.float32)), Tensor(np.array([0, 1, 2, 3, 0]))
    step = aicf.compile_step(model, lambda m, a, b: F.cross_entropy(m(a), b), optimizer, (x, y), amp=compute)
    assert step.graph is not None
    names = ["lower", "remove dead last", "fuse chains", "remove dead constants", "keep copies", "flatten"]
    found = {}
    for without in ("", "keep copies"):
        graph, _ = run_passes(step.graph, Context(chooser=Everything()), [p for p in PASSES if p.name in names and p.name != without])
        executor = HostExecutor(make_plan(graph, "numpy"), poison=True)
        verify(executor.plan)
        executor.load_states({key: t.numpy() for key, t in step.tensors.items()})
        rng = np.random.default_rng(0)
        for _ in range(4):
            executor.put([rng.normal(size=(5, 6)).astype(np.float32), rng.integers(0, 4, 5)])
            executor.run()
        states = {(s.owner, s.role): executor.read(s.slot) for s in executor.plan.own_states}
        found[without] = (executor, [executor.read(s) for s in executor.plan.outputs] + [states[key] for key in sorted(states)])
    for a, b in zip(found[""][1], found["keep copies"][1], strict=True):
        np.testing.assert_array_equal(a, b)
    plan = found[""][0].plan
    assert {copy.slot.type.dtype for _, copy in plan.copies} == {compute}
    for source, copy in plan.copies:
        kept = found[""][0].read(copy.slot)
        np.testing.assert_array_equal(kept, found[""][0].read(source.slot).astype(kept.dtype))
    assert len(plan.steps) < len(found["keep copies"][0].plan.steps)
