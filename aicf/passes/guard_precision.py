"""Which nodes stay in fp32 under mixed precision: those whose results in the compute dtype are too far from the truth on an example.

The graph is evaluated in float64. Each node that mixed precision would run in 16 bits is then tried alone: its true inputs rounded to the
compute dtype, its results rounded too. What it makes of these is its own share of the error, whatever comes from the nodes before.
A node that stays in fp32 may still read what others round: those by which its error is over the bound stay in fp32 with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.ir import Graph, Node
from aicf.ir.graph import CONTROL
from aicf.opset import find_dtype, find_op
from aicf.opset.updates import LOSS_SCALE
from aicf.passes.context import Context, Example, Guard, NodeName
from aicf.passes.mix_precision import check_dtype, find_narrow

_LARGEST = float(np.finfo(np.float16).max)
Arrays = dict[int, NDArray[Any]]


@dataclass(frozen=True)
class _Trial:
    """A node in the compute dtype: its largest difference from the truth as a share of the largest result; infinite where one is lost."""

    node: Node
    error: float


class _Trials:
    """A graph's values in float64, and what becomes of its nodes in the compute dtype. ``kept`` says why nodes stay in fp32, by id."""

    def __init__(self, graph: Graph, amp: str, bound: float, truths: Mapping[int, NDArray[Any]], tried: Sequence[Node]) -> None:
        self._amp, self._bound, self._truths = amp, bound, truths
        self._producers = graph.find_producers()
        self._narrow = {node.id for node in tried}
        self.trials = [_Trial(node, _try(node, truths, amp)) for node in tried]
        self.kept: dict[int, str] = {}
        over = [t for t in self.trials if not t.error <= bound]
        self.num_over = len(over)
        for trial in over:
            self.kept[trial.node.id] = self._describe(trial)
        for trial in over:
            self._keep_sources(trial.node)

    def _describe(self, trial: _Trial) -> str:
        if math.isinf(trial.error):
            return f"{self._amp} does not hold its results"
        return f"an error of {trial.error:.3g} of its largest result in {self._amp}, the bound is {self._bound:.3g}"

    def _keep_sources(self, node: Node) -> None:
        """Keep nodes before one in fp32 until what they round no longer takes that one over the bound."""
        while sources := self._find_sources(node):
            error = self._measure_with(node, {s.id for s in sources})
            if error <= self._bound:
                return
            guilty = [s for s in sources if not self._measure_with(node, {s.id}) <= self._bound / len(sources)] or sources
            told = "the loss of a result" if math.isinf(error) else f"an error of {error:.3g}"
            for source in guilty:
                self.kept[source.id] = f"its result in {self._amp} has a part in {told} of {node.place}"

    def _find_sources(self, node: Node) -> list[Node]:
        """Return the nodes in the compute dtype whose results a node reads, or a node before it that stays in fp32."""
        found: dict[int, Node] = {}
        open_, seen = [node], {node.id}
        while open_:
            for value in open_.pop().inputs:
                producer = None if value is None else self._producers.get(value.id)
                if producer is None or producer.id in seen:
                    continue
                seen.add(producer.id)
                if producer.id in self.kept:
                    open_.append(producer)
                elif producer.id in self._narrow:
                    found[producer.id] = producer
        return list(found.values())

    def _measure_with(self, node: Node, rounded: Container[int]) -> float:
        """Return the error of a node that stays in fp32 if some nodes round their results."""
        with np.errstate(all="ignore"):
            made = self._compute(node, rounded, {})
        return max((_measure(a, self._truths[v.id]) for a, v in zip(made, node.outputs, strict=True)), default=0.0)

    def _compute(self, node: Node, rounded: Container[int], known: dict[int, Sequence[NDArray[Any]]]) -> Sequence[NDArray[Any]]:
        """Return a node's results where what it reads was rounded, or was computed in fp32 of what was; ``known`` are such, by node."""
        if node.id in known:
            return known[node.id]
        inputs: list[NDArray[Any] | None] = []
        for value in node.inputs:
            producer = None if value is None else self._producers.get(value.id)
            array = None if value is None else self._truths[value.id]
            if value is not None and producer is not None and array is not None and array.dtype == np.float64:
                if producer.id in rounded:
                    array = array.astype(find_dtype(self._amp)).astype(np.float64)
                elif producer.id in self.kept:
                    array = _widen(self._compute(producer, rounded, known)[producer.outputs.index(value)])
            inputs.append(array)
        known[node.id] = _call(node, inputs)
        return known[node.id]


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph as it is; the context has the nodes that are to stay in fp32, and why."""
    guard = context.guard
    if guard is None or context.amp is None:
        return graph
    check_dtype(context.amp)
    names = name_nodes(graph)
    if guard.example is not None:
        found = _try_all(graph, context, guard, guard.example)
        guard.kept = {names[i]: why for i, why in found.kept.items()}
        _note(context, found, guard)
    context.wide = {node.id: guard.kept[names[node.id]] for node in graph.nodes if names[node.id] in guard.kept}
    for node in graph.nodes:
        if node.id in context.wide:
            context.note(f"{node.place} stays in float32: {context.wide[node.id]}")
    return graph


def name_nodes(graph: Graph) -> dict[int, NodeName]:
    """Return what each node is called in every graph of the network, by id."""
    counts: Counter[tuple[str, str, str, bool]] = Counter()
    names = {}
    for node in graph.nodes:
        stem = (node.op, node.owner, node.source, node.differentiates is not None)
        names[node.id] = (*stem, counts[stem])
        counts[stem] += 1
    return names


def _note(context: Context, found: _Trials, guard: Guard) -> None:
    within = [t for t in found.trials if t.error <= guard.bound]
    worst = max(within, key=lambda t: t.error, default=None)
    told = "" if worst is None else f", the worst of the others {worst.error:.3g} at {worst.node.place}"
    more = len(found.kept) - found.num_over
    told += f"; {more} more stay in float32 for their sake" if more else ""
    context.note(f"{found.num_over} of {len(found.trials)} nodes in {context.amp} are over the bound of {guard.bound:.3g}{told}")


def _try_all(graph: Graph, context: Context, guard: Guard, example: Example) -> _Trials:
    assert context.amp is not None
    narrow = find_narrow(graph, context.amp)
    tried = [node for node in graph.nodes if node.id in narrow]
    truths = _evaluate(graph, tried, example, 1.0)
    share = _find_share(tried, truths) if context.amp == "float16" else 1.0
    if share < 1.0:
        truths = _evaluate(graph, tried, example, share)
        context.note(f"the loss scale is tried at {share:.3g} of what it is, where no gradient overflows")
    return _Trials(graph, context.amp, guard.bound, truths, tried)


def _find_share(tried: Sequence[Node], truths: Mapping[int, NDArray[Any]]) -> float:
    """Return the power of two by which a scaled loss comes down until no gradient overflows."""
    scaled = [v.id for node in tried if node.differentiates is not None for v in node.outputs]
    peaks = [np.abs(truths[i]).max(initial=0.0, where=np.isfinite(truths[i])) for i in scaled if truths[i].dtype == np.float64]
    peak = float(max(peaks, default=0.0))
    return 1.0 if peak <= _LARGEST else 2.0 ** -math.ceil(math.log2(peak / _LARGEST))


def _evaluate(graph: Graph, tried: Sequence[Node], example: Example, share: float) -> Arrays:
    """Return the values that tried nodes read and make, in float64, with the loss' scale times a share."""
    needed = {v.id for node in tried for v in node.outputs}
    todo = []
    for node in reversed(graph.nodes):
        if any(v.id in needed for v in node.outputs):
            todo.append(node)
            needed |= {v.id for v in node.inputs if v is not None}
    values: Arrays = {v.id: _widen(a) for (_, v), a in zip(graph.inputs, example.inputs, strict=True)}
    for state in graph.states:
        if state.value.id in needed:
            values[state.value.id] = _widen(example.read_state(state.owner, state.role))
            if (state.owner, state.role) == (LOSS_SCALE, CONTROL):
                values[state.value.id] = values[state.value.id] * share
    for node in reversed(todo):
        inputs = [None if v is None else values[v.id] for v in node.inputs]
        values |= {v.id: _widen(a) for v, a in zip(node.outputs, _call(node, inputs), strict=True)}
    return values


def _call(node: Node, inputs: Sequence[NDArray[Any] | None]) -> Sequence[NDArray[Any]]:
    op = find_op(node.op)
    try:
        return op.evaluate(inputs, node.attrs)
    except (TypeError, ValueError):  # an op that takes no float64 has the truth of its inputs in their own dtypes
        pairs = zip(inputs, node.inputs, strict=True)
        return op.evaluate([a if a is None or v is None else a.astype(find_dtype(v.type.dtype)) for a, v in pairs], node.attrs)


def _widen(array: NDArray[Any]) -> NDArray[Any]:
    found = np.asarray(array)
    is_float = found.dtype.kind == "f" or found.dtype == find_dtype("bfloat16")
    return found.astype(np.float64) if is_float else found


def _try(node: Node, truths: Mapping[int, NDArray[Any]], amp: str) -> float:
    """Return the error of a node of rounded inputs whose results are rounded."""
    op, dtype = find_op(node.op), find_dtype(amp)
    names = op.input_names(len(node.inputs))
    inputs: list[NDArray[Any] | None] = []
    with np.errstate(all="ignore"):
        for name, value in zip(names, node.inputs, strict=True):
            array = None if value is None else truths[value.id]
            is_kept = name in op.any_float or "*" in op.any_float
            wanted = np.dtype(np.float32) if is_kept else dtype
            inputs.append(array.astype(wanted) if array is not None and array.dtype == np.float64 else array)
        made = op.evaluate(inputs, node.attrs)
        return max((_measure(a, truths[v.id]) for a, v in zip(made, node.outputs, strict=True)), default=0.0)


def _measure(made: NDArray[Any], truth: NDArray[Any]) -> float:
    if truth.dtype != np.float64 or truth.size == 0:
        return 0.0
    good = np.isfinite(truth)
    found = made.astype(np.float64)
    if not np.isfinite(found[good]).all():
        return math.inf
    scale = float(np.abs(truth[good]).max(initial=0.0))
    error = float(np.abs(found[good] - truth[good]).max(initial=0.0))
    return error / scale if scale > 0.0 else 0.0 if error == 0.0 else math.inf
