"""How products read their weights, decided for forward and backward pass together, by predicted times.

A product with a matrix, ``x @ w``, and a layer whose weight is transposed first become a linear layer that reads the weight as it lies in
memory, [N, K] or [K, N], with the bias that is added behind it. The gradients of that layer are one call, in the same layout: those of a
product would take a transposed copy of x, and those of a transposed weight would be transposed back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.ir.graph import PARAMETER
from aicf.opset import Attrs, Type
from aicf.passes.context import Chooser, Context
from aicf.passes.differentiate import add_gradients, find_dependents

TURNED = (1, 0)


@dataclass(frozen=True)
class _Layer:
    """Nodes, in order, that one linear layer takes the place of; ``taken`` are the values that it makes."""

    parts: tuple[Node, ...]
    x: Value
    weight: Value
    bias: Value | None
    attrs: Attrs
    taken: tuple[Value, ...]


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph with linear layers in the place of products where both passes together are predicted to be faster."""
    if context.chooser is None:
        return graph
    owners = () if context.training is None else context.training.owners
    depends = find_dependents(graph, {s.value.id for s in graph.states if s.role == PARAMETER and s.owner in owners})
    chosen = [layer for layer in _find_layers(graph) if _pays(layer, depends, context)]
    last = {layer.parts[-1].id: layer for layer in chosen}
    gone = {node.id for layer in chosen for node in layer.parts}
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        layer = last.get(node.id)
        if layer is not None:
            rewriter.stand_for(*layer.parts)
            rewriter.replace(layer.taken, rewriter.call("Linear", (layer.x, layer.weight, layer.bias), layer.attrs))
        elif node.id not in gone:
            rewriter.copy(node)
    return rewriter.finish()


def _find_layers(graph: Graph) -> list[_Layer]:
    uses, kept, producers, found = graph.find_uses(), graph.find_kept(), graph.find_producers(), []
    for node in graph.nodes:
        if node.op not in ("MatMul", "Linear"):
            continue
        x, w = node.inputs[:2]
        if x is None or w is None or len(w.type.shape) != 2 or len(x.type.shape) < 2 or not x.type.is_float:
            continue
        parts: tuple[Node, ...] = (node,)
        turn = producers.get(w.id)
        is_turned = turn is not None and turn.op == "Permute" and turn.attrs["order"] == TURNED and w.id not in kept
        is_turned = is_turned and len(uses[w.id]) == 1 and x.id != w.id  # otherwise the copy stays
        if node.op == "Linear":
            if not is_turned:
                continue
            layout, bias, attrs = str(node.attrs["w_layout"]), node.inputs[2], dict(node.attrs)
        elif node.attrs["transpose_a"]:
            continue
        else:
            layout, bias, attrs = "nk" if node.attrs["transpose_b"] else "kn", None, {}
        if is_turned and turn is not None:
            assert turn.inputs[0] is not None
            w, layout, parts = turn.inputs[0], "kn" if layout == "nk" else "nk", (turn, node)
        taken = node.outputs
        if node.op == "MatMul" and (added := _find_bias(node, uses.get(taken[0].id, ()), kept)) is not None:
            (sum_, bias), parts = added, (*parts, added[0])
            taken = sum_.outputs
        found.append(_Layer(parts, x, w, bias, {**attrs, "w_layout": layout}, taken))
    return found


def _find_bias(node: Node, readers: Sequence[Node], kept: set[int]) -> tuple[Node, Value] | None:
    """Return the addition of a vector to a product that nobody else reads, and the vector."""
    y = node.outputs[0]
    if len(readers) != 1 or readers[0].attrs.get("function") != "add" or y.id in kept:
        return None
    others = [v for v in readers[0].inputs if v is not None and v.id != y.id]
    wanted = Type(y.type.dtype, y.type.shape[-1:])
    return (readers[0], others[0]) if len(others) == 1 and others[0].type == wanted else None


def _pays(layer: _Layer, depends: set[int], context: Context) -> bool:
    """Whether a layer is served, and predicted faster in both passes than its parts; where times are unknown, with fewer calls."""
    assert context.chooser is not None
    whole = _price(layer, [("Linear", (layer.x, layer.weight, layer.bias), layer.attrs)], depends, context)
    parts = _price(layer, [(node.op, node.inputs, node.attrs) for node in layer.parts], depends, context)
    pays = not math.isinf(whole.us or 0.0)
    if pays and not math.isinf(parts.us or 0.0):
        known = whole.us is not None and parts.us is not None
        pays = whole.us < parts.us if known and whole.us is not None and parts.us is not None else whole.count < parts.count
    told = [
        f"{'unknown' if p.us is None else 'not served' if math.isinf(p.us) else f'{p.us:.1f} us'} in {p.count} calls"
        for p in (whole, parts)
    ]
    both = "forward and backward" if layer.weight.id in depends or layer.x.id in depends else "forward"
    lying = "[K, N]" if layer.attrs["w_layout"] == "kn" else "[N, K]"
    said = f"{both} {told[0]}, as it is {told[1]}: {'taken' if pays else 'left'}"
    context.note(f"{layer.parts[-1].place}: a linear layer with its weight as {lying}, {said}")
    return pays


@dataclass(frozen=True)
class _Price:
    """The time of calls in us: None where one is unknown, infinity where one has no kernel."""

    us: float | None
    count: int


def _price(layer: _Layer, calls: Sequence[tuple[str, Sequence[Value | None], Attrs]], depends: set[int], context: Context) -> _Price:
    """Return what calls take with their gradients, on values in the dtype that they will have."""
    assert context.chooser is not None
    given = [v for v in (layer.x, layer.weight, layer.bias) if v is not None]
    given = list({v.id: v for v in given}.values())
    types = [v.type.cast(context.amp) if context.amp and v.type.dtype == "float32" else v.type for v in given]
    base = max(v.id for v in (*given, *layer.taken, *(v for node in layer.parts for v in node.outputs))) + 1
    inputs = [Value(base + i, t) for i, t in enumerate(types)]
    slope = Value(base + len(inputs), inputs[0].type.reshape(layer.taken[0].type.shape))
    graph = Graph("", tuple((f"x{i}", v) for i, v in enumerate((*inputs, slope))), (), (), ())
    rewriter, known = Rewriter(graph), {v.id: new for v, new in zip(given, inputs, strict=True)}
    made: tuple[Value, ...] = ()
    outputs = iter([node.outputs for node in layer.parts] if len(calls) == len(layer.parts) else [layer.taken])
    for op, operands, attrs in calls:
        made = rewriter.call(op, [None if v is None else known[v.id] for v in operands], attrs)
        known |= {old.id: new for old, new in zip(next(outputs), made, strict=True)}
    own = {node.id for node in rewriter.nodes}
    wanted = [new for old, new in zip(given, inputs, strict=True) if old.id in depends]
    if wanted:
        weighed = rewriter.mul(made[0], slope)
        loss = rewriter.reduce("sum", weighed, tuple(range(len(weighed.type.shape))))
        add_gradients(rewriter, rewriter.finish([loss]), loss, wanted)
    return _add_up([n for n in rewriter.nodes if n.id in own or n.differentiates in own], context.chooser)


def _add_up(nodes: Sequence[Node], chooser: Chooser) -> _Price:
    times = [chooser.predict_us(n.op, [None if v is None else v.type for v in n.inputs], n.attrs) for n in nodes]
    known = [us for us in times if us is not None]
    total = math.inf if math.inf in known else None if len(known) < len(times) else sum(known)
    return _Price(total, len(nodes))
