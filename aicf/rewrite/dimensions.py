"""Which dimensions of a graph's values are one: found by shape inference over its nodes, whatever modules made them.

Two dimensions are coupled where one op makes them equal: an output's with the input's that it comes from, and two that are summed over
together. What changes the extent of one changes that of all. Each op that can carry a dimension has a rule
(:mod:`aicf.rewrite.couplings`); a dimension that any other op reads cannot change.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicf.ir import Graph, Node, Value
from aicf.ir.graph import PARAMETER
from aicf.rewrite.couplings import RULES, refuse

Dim = tuple[int, int]  # a value's id and an axis of it


@dataclass(frozen=True)
class Units:
    """The dimensions that change with one another, of ``extent`` units.

    ``carried`` are axes of parameters, by owner, along which units are made; ``summed`` are those along which they are read. Units must be
    copied equally often where ``uniform`` names a place that takes a mean over them.
    """

    extent: int
    carried: tuple[tuple[str, int], ...]
    summed: tuple[tuple[str, int], ...]
    uniform: str = ""


@dataclass
class _Class:
    """What is known of coupled dimensions: why they cannot change (``fixed``), and where a mean is taken over them (``uniform``)."""

    extent: int
    fixed: str = ""
    uniform: str = ""


class Dimensions:
    """All dimensions of a recorded graph, in classes of coupled ones."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._parents: dict[Dim, Dim] = {}
        self._classes: dict[Dim, _Class] = {}
        self._sources: dict[int, tuple[str, tuple[int, ...]]] = {}  # values that are a parameter's elements, with the parameter's axes
        self._sums: list[tuple[Node, Dim, Dim]] = []  # pairs of dimensions that are summed over together
        self._read: set[tuple[str, int]] = set()  # axes of parameters that are read without being summed over
        for name, value in graph.inputs:
            self._fix(value, f"is a dimension of the input {name}")
        for state in graph.states:
            if state.role == PARAMETER:
                self._sources[state.value.id] = state.owner, tuple(range(len(state.value.type.shape)))
            else:
                self._fix(state.value, f"is a dimension of {state.owner}, which is not a parameter")
        for node in graph.nodes:
            self._follow(node)
            RULES.get(node.op, refuse)(self, node)
        for value in graph.outputs:
            self._fix(value, "is a dimension of the result")

    # ---- what rules say

    def join(self, a: Value, axis: int, b: Value, other: int) -> None:
        """Couple two dimensions, one of which is made of the other."""
        self._unite(a, axis, b, other)
        for (value, at), opposite in (((a, axis), b), ((b, other), a)):
            if value.id in self._sources and self._sources.get(opposite.id, ("",))[0] != self._sources[value.id][0]:
                self._read.add(self._trace((value.id, at)))

    def sum_over(self, node: Node, a: Value, axis: int, b: Value, other: int) -> None:
        """Couple two dimensions that are summed over together."""
        self._unite(a, axis, b, other)
        self._sums.append((node, (a.id, axis), (b.id, other)))

    def fix(self, value: Value, axis: int, why: str) -> None:
        """Note why a dimension cannot change."""
        found = self._at(value, axis)
        found.fixed = found.fixed or why

    def take_mean(self, value: Value, axis: int, where: str) -> None:
        """Note that a mean over a dimension is taken: units must be copied equally often."""
        found = self._at(value, axis)
        found.uniform = found.uniform or where

    # ---- what is asked

    def find_units(self, value: Value, axis: int) -> Units:
        """Return what is coupled with a dimension; raises ValueError with the reason where it cannot change."""
        root = self._find((value.id, axis), value)
        found = self._classes[root]
        if found.fixed:
            raise ValueError(found.fixed)
        summed = {self._find_weight(node, a, b) for node, a, b in self._sums if self._root(a) == root}
        if both := sorted(summed & self._read):
            raise ValueError(f"is axis {both[0][1]} of {both[0][0]}, which both makes and reads these units")
        states = {s.value.id: s.owner for s in self._graph.states if s.role == PARAMETER}
        members = {(states[v], at) for v, at in self._parents if v in states and self._root((v, at)) == root}
        return Units(found.extent, tuple(sorted(members - summed)), tuple(sorted(summed)), found.uniform)

    def find_output(self, path: str) -> Value:
        """Return the last value that a module makes; raises KeyError where it makes none."""
        nodes = [n for n in self._graph.nodes if n.owner == path or n.owner.startswith(f"{path}.")]
        if not nodes:
            raise KeyError(path)
        return nodes[-1].outputs[0]

    def _find_weight(self, node: Node, a: Dim, b: Dim) -> tuple[str, int]:
        """Return the parameter's axis of a sum's two sides, which weighs the units."""
        weights = [self._trace(dim) for dim in (a, b) if dim[0] in self._sources]
        if len(weights) != 1:
            kind = "two parameters" if weights else "two computed values"
            raise ValueError(f"is summed over by {node.place} between {kind}, where copies cannot be weighted")
        return weights[0]

    # ---- classes

    def _unite(self, a: Value, axis: int, b: Value, other: int) -> None:
        one, two = self._find((a.id, axis), a), self._find((b.id, other), b)
        if one == two:
            return
        kept, gone = self._classes[one], self._classes.pop(two)
        self._parents[two] = one
        kept.fixed, kept.uniform = kept.fixed or gone.fixed, kept.uniform or gone.uniform

    def _find(self, dim: Dim, value: Value) -> Dim:
        if dim not in self._parents:
            self._parents[dim] = dim
            self._classes[dim] = _Class(value.type.shape[dim[1]])
        return self._root(dim)

    def _root(self, dim: Dim) -> Dim:
        while self._parents[dim] != dim:
            self._parents[dim] = self._parents[self._parents[dim]]
            dim = self._parents[dim]
        return dim

    def _at(self, value: Value, axis: int) -> _Class:
        return self._classes[self._find((value.id, axis), value)]

    def _fix(self, value: Value, why: str) -> None:
        for axis in range(len(value.type.shape)):
            self.fix(value, axis, why)

    # ---- parameters behind casts and permutations

    def _follow(self, node: Node) -> None:
        source = node.inputs[0] if node.inputs else None
        if source is None or source.id not in self._sources:
            return
        owner, axes = self._sources[source.id]
        if node.op in ("Cast", "Copy", "Detach"):
            self._sources[node.outputs[0].id] = owner, axes
        elif node.op == "Permute":
            order = node.attrs["order"]
            assert isinstance(order, tuple)
            self._sources[node.outputs[0].id] = owner, tuple(axes[i] for i in order)

    def _trace(self, dim: Dim) -> tuple[str, int]:
        owner, axes = self._sources[dim[0]]
        return owner, axes[dim[1]]
