"""A graph: inputs, states with owners, nodes in an executable order, outputs, and the new values of the states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from aicf.opset import Attrs, Builder, Type, find_op

# What a state is to its owner. A parameter is trained; moments and masters name the parameter that they belong to by its owner path, and so
# does a copy: the parameter's values in another dtype, at the beginning of every run.
PARAMETER, BUFFER, CONTROL, RANDOM, COPY, OBSERVATION = "parameter", "buffer", "control", "random", "copy", "observation"
OWN_ROLES = (PARAMETER, BUFFER, CONTROL, RANDOM, OBSERVATION)


@dataclass(frozen=True, slots=True)
class Value:
    """What flows along an edge. Its id names it in every graph that passes make of the first one."""

    id: int
    type: Type

    def __str__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True, slots=True)
class Node:
    """One call of an op, with complete attributes.

    ``owner`` is the path of the module that made it and ``source`` the user's file and line. A backward node says in ``differentiates``
    which forward node's rule made it; ``origins`` are the nodes of the recorded graph that it stands for.
    """

    id: int
    op: str
    inputs: tuple[Value | None, ...]
    attrs: Attrs
    outputs: tuple[Value, ...]
    owner: str = ""
    source: str = ""
    differentiates: int | None = None
    origins: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        """Where the node is, for messages: its number, op, owner and source line."""
        return f"#{self.id} {self.op}" + (f" of {self.owner}" if self.owner else "") + (f" ({self.source})" if self.source else "")


@dataclass(frozen=True, slots=True)
class State:
    """A value that outlives a run: whose it is, and what it is to its owner (``parameter``, ``exp_avg``, ``control`` ...)."""

    value: Value
    owner: str
    role: str


@dataclass(frozen=True)
class Graph:
    """A network, or a whole training step. ``updates`` says which value each changed state has after a run."""

    name: str
    inputs: tuple[tuple[str, Value], ...]
    states: tuple[State, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    updates: tuple[tuple[Value, Value], ...] = ()

    @property
    def next_id(self) -> int:
        """The first id, of nodes and values alike, that the graph does not use."""
        ids = [v.id for _, v in self.inputs] + [s.value.id for s in self.states]
        for node in self.nodes:
            ids += [node.id, *node.origins, *(v.id for v in node.outputs)]
        return max(ids, default=-1) + 1

    def find_producers(self) -> dict[int, Node]:
        """Return the node that makes each value, by the value's id."""
        return {v.id: node for node in self.nodes for v in node.outputs}

    def find_uses(self) -> dict[int, list[Node]]:
        """Return the nodes that read each value, by the value's id, in order."""
        uses: dict[int, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(v for v in node.inputs if v is not None):
                uses.setdefault(value.id, []).append(node)
        return uses

    def find_kept(self) -> set[int]:
        """Return the ids of the values that outlive a run: outputs, and what states become."""
        return {v.id for v in self.outputs} | {new.id for _, new in self.updates}


@dataclass
class Rewriter(Builder):
    """Makes a graph of another one: nodes are copied or replaced in order, and calls in between become new nodes.

    Calls take values of either graph: what was replaced is looked up.
    """

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    owner: str = ""
    source: str = ""
    differentiates: int | None = None
    origins: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self._replaced: dict[int, Value] = {}
        self._next_id = self.graph.next_id
        self._states = list(self.graph.states)
        self._producers: dict[int, Node] = {}

    def make_id(self) -> int:
        """Return an id that nothing has."""
        self._next_id += 1
        return self._next_id - 1

    def find(self, value: Value) -> Value:
        """Return what a value has become."""
        while value.id in self._replaced:
            value = self._replaced[value.id]
        return value

    def type_of(self, value: Value) -> Type:
        """Return a value's type."""
        return value.type

    def stand_for(self, *nodes: Node) -> None:
        """Make new nodes stand for these from now on: owner, source, what they differentiate, and origins."""
        first = nodes[0]
        self.owner, self.source, self.differentiates = first.owner, first.source, first.differentiates
        self.origins = tuple(sorted({i for node in nodes for i in (node.origins or (node.id,))}))

    def call(self, op: str, inputs: Sequence[Value | None], attrs: Attrs) -> tuple[Value, ...]:
        """Append a node and return its outputs; raises TypeError or ValueError for inputs that the op does not take."""
        known = find_op(op)
        filled = known.fill(attrs)
        found = tuple(None if v is None else self.find(v) for v in inputs)
        types = known.find_types([None if v is None else v.type for v in found], filled)
        outputs = tuple(Value(self.make_id(), t) for t in types)
        node = Node(self.make_id(), op, found, filled, outputs, self.owner, self.source, self.differentiates, self.origins)
        self._append(node)
        return outputs

    def copy(self, node: Node) -> Node:
        """Append a node as it is, with inputs as they have become: itself where these are as they were."""
        inputs = tuple(None if v is None else self.find(v) for v in node.inputs)
        made = node if all(a is b for a, b in zip(inputs, node.inputs, strict=True)) else replace(node, inputs=inputs)
        self._append(made)
        return made

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        self._producers.update((v.id, node) for v in node.outputs)

    def find_producer(self, value: Value | None, op: str = "") -> Node | None:
        """Return the node that makes a value as it has become; None for an input, a state, or a node of another op than ``op``."""
        node = None if value is None else self._producers.get(self.find(value).id)
        return node if node is not None and op in ("", node.op) else None

    def replace(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Put values in the place of others from here on; raises ValueError where a type differs."""
        for before, after in zip(old, new, strict=False):
            if before.type != after.type:
                raise ValueError(f"{before} is {before.type}, and {after}, which is to take its place, is {after.type}")
            if before.id != after.id:
                self._replaced[before.id] = after

    def add_state(self, owner: str, role: str, type_: Type) -> Value:
        """Add a state and return its value."""
        value = Value(self.make_id(), type_)
        self._states.append(State(value, owner, role))
        return value

    def finish(
        self, outputs: Sequence[Value] | None = None, updates: Sequence[tuple[Value, Value]] | Mapping[Value, Value] | None = None
    ) -> Graph:
        """Return the graph as it has become, with other outputs and updates where they are given."""
        pairs = self.graph.updates if updates is None else tuple(updates.items() if isinstance(updates, Mapping) else updates)
        return replace(
            self.graph,
            states=tuple(self._states),
            nodes=tuple(self.nodes),
            outputs=tuple(self.find(v) for v in (self.graph.outputs if outputs is None else outputs)),
            updates=tuple((state, self.find(new)) for state, new in pairs),
        )
