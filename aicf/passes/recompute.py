"""Values that are computed a second time where they are read, so that a program fits into the memory that it is given.

What a forward pass makes for its backward pass lies in memory all the time between, and may be made again instead: launches are repeated
before the first read behind that gap, and later reads take their result. Of all values whose gap covers a step at which too much is alive,
the one that frees the most bytes per microsecond comes next, until the plan fits. The same kernels compute the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aicf.errors import PlanError
from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import find_op
from aicf.passes.context import Budget, Context, Footprint

# How many launches may be repeated for one value.
_MAX_LAUNCHES = 8
# How many values are made again without a smaller plan before it is given up.
_MAX_FUTILE = 16


@dataclass(frozen=True)
class _Repeat:
    """A value whose memory is to be free between two reads: what is launched again before ``reader``, and what that costs and frees."""

    value: Value
    reader: int  # the node's id
    nodes: tuple[Node, ...]
    cost: float
    freed: int  # bytes too many, summed over steps

    @property
    def gain(self) -> float:
        return self.freed / self.cost


def run(graph: Graph, context: Context) -> Graph:
    """Return a graph whose plan fits into the budget; raises :class:`~aicf.errors.PlanError` where repeating launches is not enough."""
    budget = context.budget
    if budget is None:
        return graph
    footprint = budget.measure(graph)
    if footprint.num_bytes <= budget.num_bytes:
        context.note(f"{footprint.num_bytes} bytes of {budget.num_bytes} allowed: nothing is computed twice")
        return graph
    least, limit = footprint, _find_limit(footprint, budget)
    twins: dict[int, list[Value]] = {}
    num_futile = 0
    while least.num_bytes > budget.num_bytes:
        found = max(_find_repeats(graph, footprint, limit, twins, context), key=lambda each: each.gain, default=None)
        if (found is None and limit <= 0) or num_futile > _MAX_FUTILE:
            raise PlanError(
                f"{graph.name}: memory_bytes={budget.num_bytes}: needs at least {least.num_bytes} bytes ({least.regions}), "
                "with all repeated that can be; take smaller batches, or amp"
            )
        if found is None:  # buffers leave gaps between each other: less may be alive
            limit -= max(limit // 8, 256)
            continue
        graph = _repeat(graph, found, footprint, twins, context)
        footprint = budget.measure(graph)
        num_futile = 0 if footprint.num_bytes < least.num_bytes else num_futile + 1
        least = min(least, footprint, key=lambda each: each.num_bytes)
        us = f"{found.cost:.1f} us" if context.choices else "no times known"
        names = ", ".join(node.place for node in found.nodes)
        context.note(f"{names} again before #{found.reader}: {us} for {found.value.type.size_bytes} bytes; {footprint.num_bytes} in all")
        limit = min(limit, _find_limit(footprint, budget))
    return graph


def _find_limit(footprint: Footprint, budget: Budget) -> int:
    """Return how many bytes of the arena may be alive at a step, if what the arena loses between buffers stays what it is."""
    return budget.num_bytes - (footprint.num_bytes - max(footprint.count_alive(), default=0))


def _find_repeats(
    graph: Graph, footprint: Footprint, limit: int, twins: Mapping[int, Sequence[Value]], context: Context
) -> Iterator[_Repeat]:
    """Yield the values that can be made again behind the gap between two of their reads."""
    excess = [max(alive - limit, 0) for alive in footprint.count_alive()]
    sums = [0]
    for each in excess:
        sums.append(sums[-1] + each)
    makers = _Makers(graph, footprint, twins, context)
    for value_id, (size, steps) in footprint.accesses.items():
        producer = makers.producers.get(value_id)
        for before, after in itertools.pairwise(steps):
            if producer is None or footprint.nodes[after] not in makers.readers:  # a copy at the end is no node's
                continue
            freed = min(sums[after] - sums[before + 1], size * (after - before - 1))
            nodes = makers.find_nodes(producer, after) if freed > 0 else None
            if nodes is not None:
                cost = sum(makers.find_cost(node) for node in nodes)
                value = next(v for v in producer.outputs if v.id == value_id)
                yield _Repeat(value, footprint.nodes[after], nodes, max(cost, 1e-3), freed)


class _Makers:
    """Which launches make a value again at a step, from what is in memory there."""

    def __init__(self, graph: Graph, footprint: Footprint, twins: Mapping[int, Sequence[Value]], context: Context) -> None:
        self.producers = graph.find_producers()
        self.readers = {node.id for node in graph.nodes}
        self._footprint, self._twins, self._context = footprint, twins, context
        self._given = {v.id for _, v in graph.inputs} | {s.value.id for s in graph.states}
        steps = {node: i for i, node in enumerate(footprint.nodes)}
        self._overwritten: dict[int, int] = {}  # by state or value: the step that takes its memory
        for node in graph.nodes:
            for i in range(len(node.outputs)):
                taken = find_op(node.op).find_taken(i, len(node.inputs), node.attrs)
                source = None if taken is None else node.inputs[taken]
                if source is not None and node.id in steps:
                    self._overwritten[source.id] = min(self._overwritten.get(source.id, steps[node.id]), steps[node.id])

    def find_nodes(self, node: Node, at: int) -> tuple[Node, ...] | None:
        """Return what is launched before a step to have a node's outputs there, in order; None where that cannot be done."""
        found: dict[int, Node] = {}
        return tuple(found.values()) if self._collect(node, at, found) and len(found) <= _MAX_LAUNCHES else None

    def _collect(self, node: Node, at: int, found: dict[int, Node]) -> bool:
        op = find_op(node.op)
        if node.id in found:
            return True
        is_plain = node.op not in ("flat", "Full") and node.differentiates is None
        if not is_plain or any(op.find_taken(i, len(node.inputs), node.attrs) is not None for i in range(len(node.outputs))):
            return False
        for value in node.inputs:
            if value is not None and not self._is_there(value, at):
                maker = self.producers.get(value.id)
                if maker is None or len(found) > _MAX_LAUNCHES or not self._collect(maker, at, found):
                    return False
        found[node.id] = node
        return True

    def _is_there(self, value: Value, at: int) -> bool:
        """Whether a value, or one that was made again in its place, is in memory at a step."""
        return any(self._is_held(each, at) for each in (value, *self._twins.get(value.id, ())))

    def _is_held(self, value: Value, at: int) -> bool:
        if self._overwritten.get(value.id, at) < at:
            return False
        maker = self.producers.get(value.id)
        if value.id in self._given or (maker is not None and maker.op == "Full"):
            return True
        if maker is not None and find_op(maker.op).is_view:
            return maker.inputs[0] is not None and self._is_held(maker.inputs[0], at)
        steps = self._footprint.accesses.get(value.id, (0, ()))[1]
        return bool(steps) and steps[0] < at <= steps[-1]

    def pick(self, value: Value, at: int) -> Value:
        """Return the value itself, or the one that stands in its place at a step."""
        return next((each for each in (value, *self._twins.get(value.id, ())) if self._is_held(each, at)), value)

    def find_cost(self, node: Node) -> float:
        """Return a node's time in us; where no times are known, the bytes that it reads and writes."""
        if find_op(node.op).is_view:
            return 0.0
        choice = self._context.choices.get(node.id)
        if choice is not None and choice.predicted_us is not None:
            return choice.predicted_us
        return float(sum(v.type.size_bytes for v in (*node.inputs, *node.outputs) if v is not None))


def _repeat(graph: Graph, found: _Repeat, footprint: Footprint, twins: dict[int, list[Value]], context: Context) -> Graph:
    """Return the graph with launches repeated before a node, and their results read from there on."""
    at = footprint.nodes.index(found.reader)
    makers = _Makers(graph, footprint, twins, context)
    rewriter = Rewriter(graph)
    views, kept = _find_views(graph, found.value), graph.find_kept()
    for node in graph.nodes:
        if node.id == found.reader:
            made: dict[int, Value] = {}
            known = {each.id for each in rewriter.nodes}
            for each in (*found.nodes, *(view for view in views if view.id in known)):
                rewriter.stand_for(each)
                inputs = [None if v is None else made.get(v.id) or makers.pick(v, at) for v in each.inputs]
                outputs = rewriter.call(each.op, inputs, each.attrs)
                made |= {old.id: new for old, new in zip(each.outputs, outputs, strict=True)}
                if each.id in context.choices:
                    context.choices[rewriter.nodes[-1].id] = context.choices[each.id]
            for value in (*found.nodes[-1].outputs, *(each.outputs[0] for each in views)):
                if value.id in made and value.id not in kept:
                    rewriter.replace([value], [made[value.id]])
            for old, new in made.items():
                twins.setdefault(old, []).append(new)
        rewriter.copy(node)
    return rewriter.finish()


def _find_views(graph: Graph, value: Value) -> list[Node]:
    """Return the views of a value, and the views of these, in order."""
    held, found = {value.id}, []
    for node in graph.nodes:
        if find_op(node.op).is_view and node.inputs[0] is not None and node.inputs[0].id in held:
            held.add(node.outputs[0].id)
            found.append(node)
    return found
