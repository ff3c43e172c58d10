"""Backward nodes after the forward ones, by the gradient rules of their ops, and the updates of what is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aicf.errors import GradientError
from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import Backward, find_op
from aicf.passes.context import Context


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph with backward pass and updates, where something is trained."""
    training = context.training
    if training is None:
        return graph
    loss = graph.outputs[0]
    parameters = {s.owner: s.value for s in graph.states if s.role == "parameter" and s.owner in training.owners}
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewriter.copy(node)
    seed = None if training.begin is None else training.begin(rewriter, loss)
    found = add_gradients(rewriter, graph, loss, list(parameters.values()), seed)
    missing = sorted(owner for owner, value in parameters.items() if value.id not in found)
    if missing:
        context.note(f"no gradient reaches {', '.join(missing)}")
    grads = {owner: found[value.id] for owner, value in parameters.items() if value.id in found}
    rewriter.differentiates, rewriter.owner, rewriter.source, rewriter.origins = None, "", "", ()
    updates = training.attach(rewriter, grads)
    return rewriter.finish(updates=[*graph.updates, *updates])


def add_gradients(rewriter: Rewriter, graph: Graph, loss: Value, wanted: Sequence[Value], seed: Value | None = None) -> dict[int, Value]:
    """Append the backward pass of a scalar; returns the gradients of those wanted values that it reaches, by id.

    They are those of the loss times ``seed``, where that is given. Gradients of a value that is read twice are added in the order in which
    eager mode adds them. Raises
    :class:`~aicf.errors.GradientError` for an op without a gradient.
    """
    if loss.type.shape != () or not loss.type.is_float:
        raise GradientError(f"a loss is a floating scalar, got {loss.type}; reduce it: x.mean()")
    depends = find_dependents(graph, {v.id for v in wanted})
    grads: dict[int, Value] = {loss.id: rewriter.full(1.0, loss) if seed is None else seed} if loss.id in depends else {}
    for node in reversed(graph.nodes):
        if not any(v.id in grads for v in node.outputs):
            continue
        for value, gradient in zip(node.inputs, _differentiate(rewriter, node, grads, depends), strict=False):
            if value is not None and gradient is not None and value.id in depends:
                known = grads.get(value.id)
                grads[value.id] = gradient if known is None else rewriter.add(known, gradient)
    return {v.id: grads[v.id] for v in wanted if v.id in grads}


def find_dependents(graph: Graph, sources: set[int]) -> set[int]:
    """Return the ids of floating values that depend on the sources through calls that have a gradient."""
    found = set(sources)
    for node in graph.nodes:
        if any(v is not None and v.id in found for v in node.inputs) and find_op(node.op).has_gradient(node.attrs):
            found |= {v.id for v in node.outputs if v.type.is_float}
    return found


def _differentiate(rewriter: Rewriter, node: Node, grads: Mapping[int, Value], depends: set[int]) -> Sequence[Value | None]:
    op = find_op(node.op)
    if op.gradient is None:
        raise GradientError(f"{node.place} has no gradient")
    rewriter.stand_for(node)
    rewriter.differentiates, rewriter.origins = node.id, ()
    names = op.input_names(len(node.inputs))
    named = {n: v for n, v in zip(names, node.inputs, strict=True) if v is not None} | dict(zip(op.outputs, node.outputs, strict=False))
    needed = {n for n, v in zip(names, node.inputs, strict=True) if v is not None and v.id in depends}
    saved = op.saves(node.attrs, needed)
    types = {n: v.type for n, v in named.items()}
    g = Backward(rewriter, op, node.attrs, {n: v for n, v in named.items() if n in saved}, types, needed)
    found = op.gradient(g, *(grads.get(v.id) for v in node.outputs))
    return [d if name in needed else None for name, d in zip(names, found, strict=False)]
