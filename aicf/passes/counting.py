"""The step counter of an optimizer: the launch that updates all parameters counts the steps too, and no other launch is made for that.

Where the next step's number is read by one flat update alone, that takes the counter, changes it in place, and the addition goes. An update
with a factor counts the steps that it takes, and then the counter must be one that counts these.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.ir.graph import CONTROL
from aicf.opset.chains import read_chain
from aicf.opset.counting import counts_steps
from aicf.passes.context import Context
from contract.expressions.tree import Call, Name, Number

_OPTIMIZER = "optimizer"
# Places among an optimizer's inputs.
_STEP, _DONE = 4, 6


@dataclass(frozen=True)
class Counter:
    """A state that counts steps, the node that adds one, and the nodes that read the sum.

    ``counting`` makes what the state becomes: the addition, or the node that counts only the steps that are taken.
    """

    done: Value
    addition: Node
    readers: tuple[Node, ...]
    counting: Node

    @property
    def nodes(self) -> set[int]:
        """The ids of the nodes that an update which counts itself takes the place of."""
        return {self.addition.id, self.counting.id}


def find_counter(graph: Graph) -> Counter | None:
    """Return the counter whose next number only optimizers read, or a flat call of theirs; None where there is none."""
    ones = {n.outputs[0].id for n in graph.nodes if n.op == "Full" and n.outputs[0].type.num_elems == 1 and n.attrs["value"] == 1}
    counters = {s.value.id: s.value for s in graph.states if s.role == CONTROL}
    updates, uses = {new.id: state for state, new in graph.updates}, graph.find_uses()
    for node in graph.nodes:
        state = updates.get(node.outputs[0].id)
        if state is None or state.id not in counters:
            continue
        gated = counts_steps(node.op, node.attrs)
        additions = uses.get(state.id, ()) if gated else [node]
        addition = next((n for n in additions if _adds_one(n, state, ones)), None)
        readers = () if addition is None else tuple(uses.get(addition.outputs[0].id, ()))
        if addition is None or not readers or not all(_OPTIMIZER in (n.op, n.attrs.get("op")) for n in readers):
            continue
        factor = node.inputs[1] if gated else None
        if all(_find_factor(n) == factor for n in readers):
            return Counter(state, addition, readers, node)
    return None


def _find_factor(node: Node) -> Value | None:
    """Return the factor of an update, or of a flat one: its last operand, which all members share."""
    return node.inputs[-1]


def _adds_one(node: Node, counter: Value, ones: Container[int]) -> bool:
    """Whether a node's only output is a counter and 1, be that a constant of the chain or of the graph."""
    if node.op != "elementwise" or len(node.outputs) != 1 or node.inputs[0] is not None:
        return False
    chain = read_chain(str(node.attrs["chain"]))
    named = {o.name: v for o, v in zip(chain.inputs, node.inputs[1:], strict=True) if v is not None}
    known = dict(chain.assignments)
    tree = known[chain.outputs[0].name]
    while isinstance(tree, Name) and tree.name in known:
        tree = known[tree.name]
    if not isinstance(tree, Call) or tree.function not in ("add", "add_count"):
        return False
    terms = [named.get(each.name) if isinstance(each, Name) else each for each in tree.arguments]
    is_one = [each == Number(1.0) or (isinstance(each, Value) and each.id in ones) for each in terms]
    return counter in terms and sum(is_one) == 1 and len(terms) == 2


def count_steps(graph: Graph, context: Context) -> Graph:
    """Return the graph with its counter advanced by the flat update that reads it, where a kernel does that."""
    counter = find_counter(graph)
    if counter is None or len(counter.readers) != 1 or counter.readers[0].op != "flat":
        return graph
    (update,) = counter.readers
    # Who reads the old number does so before.
    order = {node.id: i for i, node in enumerate(graph.nodes)}
    others = [n for n in graph.find_uses().get(counter.done.id, ()) if n.id not in counter.nodes]
    if any(order[n.id] > order[update.id] for n in others):
        return graph
    tail = len(str(update.attrs["grouped"])) - _STEP  # operands that members share are one input each
    inputs = list(update.inputs)
    inputs[-tail], inputs[_DONE - _STEP - tail] = None, counter.done
    assert context.chooser is not None
    us = context.chooser.predict_us(update.op, [None if v is None else v.type for v in inputs], update.attrs)
    if us is not None and math.isinf(us):
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.id == update.id:
            rewriter.stand_for(update, counter.addition)
            rewriter.replace((*update.outputs, counter.counting.outputs[0]), rewriter.call(update.op, inputs, update.attrs))
        elif node.id not in counter.nodes:
            rewriter.copy(node)
    context.note("the steps are counted by the launch that updates the parameters")
    return rewriter.finish()
