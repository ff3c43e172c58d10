"""Activations become epilogues of adjacent matrix products where measured kernels show a gain.

Forward: ``act(Linear(...))`` becomes ``Linear(..., act)``, which keeps z where somebody else reads it. Backward: ``dx act'(z)``, of a
product ``dx``, becomes that product with the slope in its epilogue, and so does the sum of its rows, the gradient of a bias. That of the
last layer's bias, the sum of the rows of a loss's gradient, is made with the loss. The gradient of a weight that is used twice is added to
the first use's in the epilogue of the second's product.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import Attr, find_op
from aicf.opset.elementwise import ACTIVATIONS
from aicf.passes.context import Context


@dataclass(frozen=True)
class _Fusion:
    """Nodes, in order, that one call takes the place of; ``taken`` are the values that it makes, in its order."""

    parts: tuple[Node, ...]
    op: str
    inputs: tuple[Value | None, ...]
    attrs: Mapping[str, Attr]
    taken: tuple[Value, ...]


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph with products and activations fused where that is predicted to be faster."""
    return (
        graph if context.chooser is None else _apply(graph, [*_find_forward(graph), *_find_backward(graph), *_find_losses(graph)], context)
    )


def add_in_products(graph: Graph, context: Context) -> Graph:
    """Return the graph with sums of weights' gradients fused into products where that is predicted to be faster."""
    return graph if context.chooser is None else _apply(graph, _find_totals(graph), context)


def _apply(graph: Graph, found: Sequence[_Fusion], context: Context) -> Graph:
    chosen = [fusion for fusion in found if _pays(fusion, context)]
    first = {fusion.parts[0].id: fusion for fusion in chosen}
    gone = {node.id for fusion in chosen for node in fusion.parts[1:]}
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        fusion = first.get(node.id)
        if node.id in gone:
            continue
        if fusion is None:
            rewriter.copy(node)
            continue
        rewriter.stand_for(*fusion.parts)
        rewriter.replace(fusion.taken, rewriter.call(fusion.op, fusion.inputs, fusion.attrs))
    return rewriter.finish()


def _pays(fusion: _Fusion, context: Context) -> bool:
    """Whether the fused call is served, and predicted faster than its parts or they are not served at all; the log says why.

    Where neither it nor one of its parts has a known time, which is so where a fallback serves both, it saves a launch.
    """
    assert context.chooser is not None
    types = [None if v is None else v.type for v in fusion.inputs]
    whole = context.chooser.predict_us(fusion.op, types, find_op(fusion.op).fill(fusion.attrs))
    parts = [context.chooser.predict_us(n.op, [None if v is None else v.type for v in n.inputs], n.attrs) for n in fusion.parts]
    unserved = any(us is not None and math.isinf(us) for us in parts)
    known = sum(us for us in parts if us is not None)
    pays = whole is None or not math.isinf(whole)
    if pays and not unserved:
        is_known = all(us is not None for us in parts)
        pays = not is_known if whole is None else is_known and whole < known
    told = ["unknown" if us is None else "not served" if math.isinf(us) else f"{us:.1f} us" for us in (whole, *parts)]
    names = " + ".join(_name(node) for node in fusion.parts)
    context.note(f"{names} of {fusion.parts[0].place}: fused {told[0]}, parts {' + '.join(told[1:])}: {'fused' if pays else 'left'}")
    return pays


def _name(node: Node) -> str:
    return str(node.attrs["function"]) if "function" in node.attrs else node.op


def _find_forward(graph: Graph) -> list[_Fusion]:
    uses, kept, found = graph.find_uses(), graph.find_kept(), []
    for node in graph.nodes:
        if node.op != "Linear" or node.attrs["act"] != "none" or node.attrs["keep_z"]:
            continue
        (z,) = node.outputs
        readers = uses.get(z.id, [])
        acts = [n for n in readers if n.op == "Elementwise" and n.attrs["function"] in ACTIVATIONS]
        if len(acts) != 1:
            continue
        keep_z = len(readers) > 1 or z.id in kept
        attrs = {**node.attrs, "act": acts[0].attrs["function"], "keep_z": keep_z}
        taken = (acts[0].outputs[0], z) if keep_z else acts[0].outputs
        found.append(_Fusion((node, acts[0]), "Linear", node.inputs, attrs, taken))
    return found


def _find_backward(graph: Graph) -> list[_Fusion]:
    uses, kept, producers, found = graph.find_uses(), graph.find_kept(), graph.find_producers(), []
    order = {node.id: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op != "LinearGrad" or node.attrs["act"] != "none" or not str(node.attrs["wants"]).startswith("x"):
            continue
        dx = node.outputs[0]
        readers = uses.get(dx.id, [])
        if len(readers) != 1 or dx.id in kept:
            continue
        slope = _find_slope(readers[0], dx, producers)
        # What the slope is of must be there when the product runs.
        if slope is None or order[readers[0].id] < order[node.id] or not _comes_before(slope[1], node, producers, order):
            continue
        act, z = slope
        sums = [n for n in uses.get(readers[0].outputs[0].id, []) if _sums_rows(n)]
        wants = str(node.attrs["wants"]) + (" bias" if sums else "")
        taken = [readers[0].outputs[0], *node.outputs[1:], *(sums[0].outputs if sums else ())]
        inputs = (*node.inputs[:3], z, node.inputs[4])
        parts = (node, readers[0], *sums[:1])
        found.append(_Fusion(parts, "LinearGrad", inputs, {**node.attrs, "wants": wants, "act": act}, tuple(taken)))
    return found


def _find_losses(graph: Graph) -> list[_Fusion]:
    uses, found = graph.find_uses(), []
    for node in graph.nodes:
        if node.op != "CrossEntropy" or node.attrs["with_dbias"]:
            continue
        sums = [n for n in uses.get(node.outputs[1].id, []) if _sums_rows(n)]
        if sums:
            attrs = {**node.attrs, "with_dbias": True}
            found.append(_Fusion((node, sums[0]), node.op, node.inputs, attrs, (*node.outputs, *sums[0].outputs)))
    return found


def _find_totals(graph: Graph) -> list[_Fusion]:
    """Find ``known + dw`` of a product's ``dw`` that nobody else reads; ``known`` must be there when the product runs, and end with it."""
    uses, kept, producers, found = graph.find_uses(), graph.find_kept(), graph.find_producers(), []
    order = {node.id: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        wants = str(node.attrs.get("wants", "")).split() if node.op == "LinearGrad" else []
        if "w" not in wants or node.inputs[4] is not None:
            continue
        at = wants.index("w")
        dw = node.outputs[at]
        readers = uses.get(dw.id, [])
        if len(readers) != 1 or dw.id in kept or readers[0].attrs.get("function") != "add":
            continue
        others = [v for v in readers[0].inputs if v is not None and v.id != dw.id]
        if len(others) != 1 or others[0].type != dw.type or len(uses[others[0].id]) != 1 or others[0].id in kept:
            continue
        if others[0].id not in producers or not _comes_before(others[0], node, producers, order):
            continue
        taken = (*node.outputs[:at], readers[0].outputs[0], *node.outputs[at + 1 :])
        found.append(_Fusion((node, readers[0]), "LinearGrad", (*node.inputs[:4], others[0]), node.attrs, taken))
    return found


def _find_slope(node: Node, dx: Value, producers: Mapping[int, Node]) -> tuple[str, Value] | None:
    """Return the activation and the value of ``dx act'(value)``, None where the node is something else."""
    if node.op != "Elementwise" or node.attrs["function"] != "mul":
        return None
    others: Sequence[Value] = [v for v in node.inputs if v is not None and v.id != dx.id]
    source = producers.get(others[0].id) if len(others) == 1 else None
    if source is None or source.op != "Elementwise" or others[0].type != dx.type:
        return None
    act = str(source.attrs["function"]).removesuffix("_slope")
    value = source.inputs[0]
    return (act, value) if source.attrs["function"] == f"{act}_slope" and act in ACTIVATIONS and value is not None else None


def _comes_before(value: Value, node: Node, producers: Mapping[int, Node], order: Mapping[int, int]) -> bool:
    source = producers.get(value.id)
    return source is None or order[source.id] < order[node.id]


def _sums_rows(node: Node) -> bool:
    if node.op != "Reduce" or node.attrs["function"] != "sum" or node.attrs["keep"]:
        return False
    assert node.inputs[0] is not None
    return node.attrs["axes"] == tuple(range(len(node.inputs[0].type.shape) - 1))
