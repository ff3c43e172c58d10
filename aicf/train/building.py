"""From what was recorded to a verified plan: passes, kernels, plan. What is equal by content is built once."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from aicf.errors import ChainError
from aicf.frontends.recording import Recording
from aicf.ir import Graph, Node
from aicf.ir.graph import Value
from aicf.opset.types import freeze
from aicf.passes import DIFFERENTIATE, FUSE_CHAINS, PASSES, Context, LogEntry, Pass, run_passes
from aicf.passes.context import Budget, Choice, Chooser, Footprint, Guard, Training
from aicf.plan import Plan, verify
from aicf.plan.data import ARENA
from aicf.plan.planner import make_plan
from aicf.runtime.chooser import FrozenChooser
from aicf.train.recipe import Options
from contract.building import NotBuiltError

_log = logging.getLogger("aicf.train")
_MAX_KEPT = 32


class Built(NamedTuple):
    """The graph after all passes, what they did, the verified plan, and the kernels by node id."""

    graph: Graph
    log: list[LogEntry]
    plan: Plan
    choices: Mapping[int, Choice]


# By the graph behind the backward pass, and all else that decides. The kernels of each were loaded, and stay so.
_kept: OrderedDict[Hashable, Built] = OrderedDict()


def build(
    recording: Recording,
    training: Training | None,
    backend: str,
    options: Options,
    chooser: Chooser | None = None,
    guard: Guard | None = None,
) -> Built:
    """Return what a recording is compiled to; of a graph that was built before, what it was then.

    Where a fused chain cannot be built, since there is no compiler or it is barred, its parts run unfused, and nothing is kept. Raises
    :class:`NotBuiltError` where these are not in the cache either.
    """
    passes = [each for each in PASSES if options.passes or each.is_needed]
    names = tuple(each.name for each in passes)
    begin, behind = passes[: names.index(DIFFERENTIATE) + 1], passes[names.index(DIFFERENTIATE) + 1 :]
    frozen = FrozenChooser(deterministic=options.deterministic) if chooser is None and backend == "cuda" else None

    def make_context() -> Context:
        context = Context(training, chooser or frozen, options.amp, guard=guard)
        if options.memory_bytes is not None:
            context.budget = Budget(options.memory_bytes, lambda graph: find_footprint(make_plan(graph, backend, context.choices)))
        return context

    context = make_context()
    begun, log = run_passes(recording.graph, context, begin)
    key: Hashable = None
    if guard is None and chooser is None:  # a guard tries values, and a chooser of others may know anything
        content = describe(begun, recording.graph)
        key = content, backend, names, options.amp, options.memory_bytes, None if frozen is None else frozen.knowledge
    found = None if key is None else _kept.pop(key, None)
    if found is None:
        try:
            found = _finish(begun, context, behind, backend)
        except (ChainError, NotBuiltError) as error:
            unfused = [each for each in behind if each.name != FUSE_CHAINS]
            if len(unfused) == len(behind):
                raise
            _log.warning("%s: elementwise calls stay apart: %s", recording.graph.name, str(error).partition("\n")[0])
            found, key = _finish(begun, make_context(), unfused, backend), None  # a compiler may be there the next time
    if key is not None:
        _kept[key] = found  # the last used one at the end
        if len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)
    return found._replace(log=[*log, *found.log])


def forget() -> None:
    """Forget what was built: everything is built anew."""
    _kept.clear()


def _finish(graph: Graph, context: Context, passes: Sequence[Pass], backend: str) -> Built:
    graph, log = run_passes(graph, context, passes)
    plan = make_plan(graph, backend, context.choices)
    verify(plan)
    return Built(graph, log, plan, context.choices)


def describe(graph: Graph, recorded: Graph) -> Hashable:
    """Return all that a graph is as a key, with ids and source lines, since what is built has them.

    Calls that neither were recorded nor stand for such ones, those of an update, have the line of whoever compiles: it does not count.
    """
    known = {node.id for node in recorded.nodes}

    def name(value: Value) -> tuple[int, str, tuple[int, ...]]:
        return value.id, value.type.dtype, value.type.shape

    def write(node: Node) -> Hashable:
        inputs = tuple([None if v is None else v.id for v in node.inputs])
        made = tuple([name(v) for v in node.outputs])
        source = node.source if node.id in known or node.origins or node.differentiates is not None else ""
        return node.id, node.op, inputs, freeze(node.attrs), made, node.owner, source, node.differentiates, node.origins

    return (
        graph.name,
        tuple([(key, name(v)) for key, v in graph.inputs]),
        tuple([(name(s.value), s.owner, s.role) for s in graph.states]),
        tuple([write(node) for node in graph.nodes]),
        tuple([v.id for v in graph.outputs]),
        tuple([(state.id, new.id) for state, new in graph.updates]),
    )


def find_footprint(plan: Plan) -> Footprint:
    """Return the memory of a plan as passes see it."""
    accesses: dict[int, tuple[int, list[int]]] = {}
    for i, step in enumerate(plan.steps):
        for slot in (*step.reads, *step.writes):
            if slot.region == ARENA:
                steps = accesses.setdefault(slot.buffer, (slot.type.size_bytes, []))[1]
                if not steps or steps[-1] != i:
                    steps.append(i)
    regions = ", ".join(f"{region} {size}" for region, size in plan.sizes.items() if size)
    held = {buffer: (size, tuple(steps)) for buffer, (size, steps) in accesses.items()}
    return Footprint(sum(plan.sizes.values()), regions, tuple(step.node for step in plan.steps), held)
