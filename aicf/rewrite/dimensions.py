"""Which dimensions of a graph's values are one: found by shape inference over its nodes, whatever modules made them.

Two dimensions are coupled where one op makes them equal: an output's with the input's that it comes from, and two that are summed over
together. What changes the extent of one changes that of all. Each op that can carry a dimension has a rule
(:mod:`aicf.rewrite.couplings`); a dimension that any other op reads cannot change. A dimension that is reshaped to several is their
product: that of an attention's queries, of heads and a head's features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicf.ir import Graph, Node, Value
from aicf.ir.graph import PARAMETER
from aicf.rewrite.couplings import RULES, refuse

Dim = tuple[int, int]  # a value's id and an axis of it


class Axis(NamedTuple):
    """An axis of a parameter along which units lie: ``outer`` times all units, each of ``inner`` elements in a row."""

    owner: str
    dim: int
    outer: int = 1
    inner: int = 1

    def find_elements(self, index: NDArray[np.int64], extent: int) -> NDArray[np.int64]:
        """Return the numbers of the elements of some of ``extent`` units, in the order in which they lie."""
        rows = (np.arange(self.outer)[:, None] * extent + index)[..., None] * self.inner
        return (rows + np.arange(self.inner)).ravel()

    def repeat(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a number per unit as one per element."""
        return np.broadcast_to(shares[:, None], (self.outer, len(shares), self.inner)).ravel()

    def list_by_unit(self, array: NDArray[Any], extent: int) -> NDArray[Any]:
        """Return a view or copy of a parameter's values with units as the last axis."""
        apart = np.moveaxis(array, self.dim, -1)
        return np.moveaxis(apart.reshape(*apart.shape[:-1], self.outer, extent, self.inner), -2, -1)

    def lay_back(self, by_unit: NDArray[Any]) -> NDArray[Any]:
        """Return what :meth:`list_by_unit` took apart."""
        joined = np.moveaxis(by_unit, -1, -2)
        return np.moveaxis(joined.reshape(*joined.shape[:-3], -1), -1, self.dim)


@dataclass(frozen=True)
class Units:
    """The dimensions that change with one another, of ``extent`` units.

    ``carried`` are axes of parameters along which units are made; ``summed`` are those along which they are read. Units must be
    copied equally often where ``uniform`` names a place that takes a mean over them.
    """

    extent: int
    carried: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    uniform: str = ""


@dataclass
class _Class:
    """What is known of coupled dimensions.

    Why they cannot change (``fixed``), where a mean is taken over them (``uniform``), and of which others they are the product.
    """

    extent: int
    fixed: str = ""
    uniform: str = ""
    parts: tuple[Dim, ...] = ()


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
        self._unite(self._find((a.id, axis), a), self._find((b.id, other), b))
        for (value, at), opposite in (((a, axis), b), ((b, other), a)):
            self._note_read(value, at, opposite)

    def split(self, whole: Value, axis: int, made: Value, axes: Sequence[int]) -> None:
        """Couple a dimension with several others that it is the product of, the last of which is counted first."""
        self._divide(self._find((whole.id, axis), whole), tuple(self._find((made.id, at), made) for at in axes))
        self._note_read(whole, axis, made)
        for at in axes:
            self._note_read(made, at, whole)

    def sum_over(self, node: Node, a: Value, axis: int, b: Value, other: int) -> None:
        """Couple two dimensions that are summed over together."""
        self._unite(self._find((a.id, axis), a), self._find((b.id, other), b))
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

    def find_units(self, value: Value, axis: int, *, heads: bool = False) -> Units:
        """Return what is coupled with a dimension, or, with ``heads``, with the first of those that it is the product of that can change.

        Raises ValueError with the reason where it cannot change.
        """
        root = self._find((value.id, axis), value)
        atoms = self._list_atoms(root)
        if not heads:
            if len(atoms) > 1:
                whole = " x ".join(str(self._classes[atom].extent) for atom in atoms)
                reason = next((self._classes[at].fixed for at in (root, *atoms) if self._classes[at].fixed), "")
                raise ValueError(reason or f"is reshaped to {whole}; heads=True changes whole heads")
            return self._find_atom(root)
        if len(atoms) == 1:
            raise ValueError("is not reshaped to heads")
        reasons = []
        for atom in atoms:
            try:
                return self._find_atom(atom)
            except ValueError as error:
                reasons.append(str(error))
        raise ValueError(reasons[0])

    def _find_atom(self, atom: Dim) -> Units:
        """Return what is coupled with a dimension that is no product, and with all that are products of it."""
        places = self._find_products(atom)
        for root in places:
            if self._classes[root].fixed:
                raise ValueError(self._classes[root].fixed)
        summed = {self._find_weight(node, a, b): places[self._root(a)] for node, a, b in self._sums if self._root(a) in places}
        if both := sorted(summed.keys() & self._read):
            raise ValueError(f"is axis {both[0][1]} of {both[0][0]}, which both makes and reads these units")
        states = {s.value.id: s.owner for s in self._graph.states if s.role == PARAMETER}
        members = {(states[v], at): places[self._root((v, at))] for v, at in self._parents if v in states and self._root((v, at)) in places}
        carried = {dim: place for dim, place in members.items() if dim not in summed}
        uniform = next((self._classes[root].uniform for root in places if self._classes[root].uniform), "")
        makers, readers = (tuple(sorted(Axis(*dim, *place) for dim, place in axes.items())) for axes in (carried, summed))
        return Units(self._classes[atom].extent, makers, readers, uniform)

    def _list_atoms(self, root: Dim) -> list[Dim]:
        """Return the dimensions that one is the product of, themselves no products; it alone where it is none."""
        parts = self._classes[root].parts
        return [atom for part in parts for atom in self._list_atoms(self._root(part))] if parts else [root]

    def _find_products(self, atom: Dim) -> dict[Dim, tuple[int, int]]:
        """Return the dimensions that have one among their factors, itself first, each with the extents before and behind it."""
        found = {atom: (1, 1)}
        for root, held in self._classes.items():
            if not held.parts:
                continue
            atoms = self._list_atoms(root)
            if atoms.count(atom) > 1:
                raise ValueError(f"is more than one factor of a dimension of {held.extent}")
            if atom in atoms:
                at, extents = atoms.index(atom), [self._classes[each].extent for each in atoms]
                found[root] = math.prod(extents[:at]), math.prod(extents[at + 1 :])
        return found

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

    def _unite(self, one: Dim, two: Dim) -> None:
        one, two = self._root(one), self._root(two)
        if one == two:
            return
        kept, gone = self._classes[one], self._classes.pop(two)
        self._parents[two] = one
        kept.fixed, kept.uniform = kept.fixed or gone.fixed, kept.uniform or gone.uniform
        if gone.parts:
            self._divide(one, gone.parts)

    def _divide(self, whole: Dim, parts: tuple[Dim, ...]) -> None:
        """Note what a dimension is the product of; one that is two different products cannot change, nor can their factors."""
        found = self._classes[self._root(whole)]
        if not found.parts:
            found.parts = parts
            return
        extents = [[self._classes[self._root(part)].extent for part in each] for each in (found.parts, parts)]
        if extents[0] == extents[1]:
            for mine, theirs in zip(found.parts, parts, strict=True):
                self._unite(mine, theirs)
            return
        for part in (whole, *parts, *found.parts):
            held = self._classes[self._root(part)]
            held.fixed = held.fixed or f"is reshaped to {extents[0]} and to {extents[1]}"

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

    def _note_read(self, value: Value, axis: int, opposite: Value) -> None:
        """Note that an axis of a parameter is read by what is not the parameter itself."""
        if value.id in self._sources and self._sources.get(opposite.id, ("",))[0] != self._sources[value.id][0]:
            self._read.add(self._trace((value.id, axis)))

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
