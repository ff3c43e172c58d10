"""What makes a graph valid: one function per rule, checked after every pass. Each yields the violations it finds.

What a node is by itself need not be found again where passes leave it as it is: rules take the nodes that were found ``sound``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from aicf.errors import GraphError
from aicf.ir.graph import OWN_ROLES, PARAMETER, Graph, Node
from aicf.opset import find_op

Sound = Mapping[int, Node]  # nodes by their identity, which is theirs as long as they are kept here
_NONE: Sound = {}


def define_before_use(graph: Graph) -> Iterator[str]:
    """Hold that every value that is read is an input, a state, or an output of a node before."""
    known = {v.id for _, v in graph.inputs} | {s.value.id for s in graph.states}
    for node in graph.nodes:
        yield from (f"{node.place} reads {v}, which nothing before it makes" for v in node.inputs if v is not None and v.id not in known)
        known |= {v.id for v in node.outputs}
    yield from (f"output {v} is made by nothing" for v in graph.outputs if v.id not in known)
    yield from (f"{state} becomes {new}, which nothing makes" for state, new in graph.updates if new.id not in known)


def define_once(graph: Graph) -> Iterator[str]:
    """Hold that every value is made once, and that ids name one thing each."""
    seen: set[int] = set()
    made = [(f"input {name}", v) for name, v in graph.inputs] + [(f"state {s.owner} {s.role}", s.value) for s in graph.states]
    made += [(node.place, v) for node in graph.nodes for v in node.outputs]
    for place, value in made:
        if value.id in seen:
            yield f"{value} is made twice, the second time by {place}"
        seen.add(value.id)
    numbers: set[int] = set()
    for node in graph.nodes:
        if node.id in numbers:
            yield f"two nodes have the id {node.id}, the second is {node.place}"
        numbers.add(node.id)


def know_every_op(graph: Graph, sound: Sound = _NONE) -> Iterator[str]:
    """Hold that every node's op is in the opset, and that its attributes are all there."""
    for node in graph.nodes:
        if id(node) in sound:
            continue
        try:
            op = find_op(node.op)
        except KeyError:
            yield f"{node.place}: there is no op {node.op!r}"
            continue
        if missing := sorted(op.attributes.keys() ^ node.attrs.keys()):
            yield f"{node.place}: attribute {missing[0]!r} is missing, or none of the op's"


def agree_on_types(graph: Graph, sound: Sound = _NONE) -> Iterator[str]:
    """Hold that a value has one type wherever it is read, and that a node's outputs have the types that its op says."""
    types = {v.id: v.type for _, v in graph.inputs} | {s.value.id: s.value.type for s in graph.states}
    for node in graph.nodes:
        for value in node.inputs:
            known = None if value is None else types.get(value.id, value.type)
            if value is not None and known is not value.type and known != value.type:
                yield f"{node.place} reads {value} as {value.type}; it is {known}"
        types.update((v.id, v.type) for v in node.outputs)
        if id(node) in sound:
            continue
        op = find_op(node.op)
        try:
            expected = op.find_types([None if v is None else v.type for v in node.inputs], op.fill(node.attrs))
        except (TypeError, ValueError) as error:
            yield f"{node.place}: {error}"
            continue
        found = tuple(v.type for v in node.outputs)
        if found != expected:
            yield f"{node.place} makes {', '.join(map(str, found))}; its op makes {', '.join(map(str, expected))}"


def own_each_state_once(graph: Graph) -> Iterator[str]:
    """Hold that a state has one owner and role, and that one which belongs to a parameter names it."""
    seen: set[tuple[str, str]] = set()
    parameters = {s.owner for s in graph.states if s.role == PARAMETER}
    for state in graph.states:
        if (state.owner, state.role) in seen:
            yield f"{state.owner} has two states {state.role}"
        seen.add((state.owner, state.role))
        if not state.owner:
            yield f"state {state.value} has no owner"
        if state.role not in OWN_ROLES and state.owner not in parameters:
            yield f"state {state.role} of {state.owner}: there is no such parameter"


def update_states_only(graph: Graph) -> Iterator[str]:
    """Hold that what is updated is a state, once, by a value of its type."""
    states, seen = {s.value.id for s in graph.states}, set()
    for state, new in graph.updates:
        if state.id not in states:
            yield f"{state} is updated but is not a state"
        if state.id in seen:
            yield f"{state} is updated twice"
        if state.type != new.type:
            yield f"{state} is {state.type} and becomes {new}, which is {new.type}"
        seen.add(state.id)


def differentiate_backwards(graph: Graph) -> Iterator[str]:
    """Hold that a backward node comes after the forward node that it differentiates."""
    order = {node.id: i for i, node in enumerate(graph.nodes)}
    for i, node in enumerate(graph.nodes):
        if node.differentiates is not None and order.get(node.differentiates, -1) >= i:
            yield f"{node.place} differentiates #{node.differentiates}, which does not come before it"


Rule = Callable[..., Iterator[str]]
RULES: tuple[Rule, ...] = (
    define_before_use,
    define_once,
    know_every_op,
    agree_on_types,
    own_each_state_once,
    update_states_only,
    differentiate_backwards,
)
_OF_NODES: tuple[Rule, ...] = (know_every_op, agree_on_types)  # those that take what is sound


def check(graph: Graph, where: str = "", sound: dict[int, Node] | None = None) -> None:
    """Raise :class:`~aicf.errors.GraphError` naming the first rule that the graph breaks, and where.

    ``sound`` are nodes of graphs that were checked before, to which this one's are added.
    """
    known = {} if sound is None else sound
    for rule in RULES:
        for fault in rule(graph, known) if rule in _OF_NODES else rule(graph):
            raise GraphError(f"graph {graph.name}{f' {where}' if where else ''} breaks {rule.__name__}: {fault}")
    known.update((id(node), node) for node in graph.nodes)
