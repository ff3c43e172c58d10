"""Neighbouring elementwise launches become one: a chain that reads what either reads, and writes what others need.

A chain is merged into one that reads its result where both have the same elements, or where it makes one number and nobody else reads
that. Chains of one element, and chains that read the same array, are merged side by side. All of it saves launches and bytes; limits are
those of the engine: 8 inputs, 4 outputs, one counter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import Attr, Type, find_dtype
from aicf.opset.chains import COUNTERS, MAX_INPUTS, MAX_OUTPUTS, NAMES, read_chain
from aicf.passes.context import Context
from aicf.passes.counting import find_counter
from aicf.passes.flatten import is_one_update
from contract.expressions.tree import Call, Extent, Name, Number, format_node
from contract.expressions.tree import Node as Tree

_EXTENTS = {Extent.FULL: "", Extent.ROWS: "[rows]", Extent.COLUMNS: "[columns]", Extent.ONE: "[]"}


@dataclass
class _Cluster:
    """Elementwise nodes as one chain: assignments by unique names, what they read, and which of them are values of the graph."""

    nodes: list[Node]
    rows: int
    columns: int
    inputs: dict[int, tuple[Value, Extent]]
    body: dict[str, Tree]
    made: dict[int, tuple[Value, str]]
    counter: Value | None = None
    outputs: list[Value] = field(default_factory=list)

    @property
    def num_elems(self) -> int:
        return self.rows * self.columns

    @property
    def is_flat(self) -> bool:
        """Whether rows and columns do not matter."""
        return all(extent in (Extent.FULL, Extent.ONE) for _, extent in self.inputs.values())

    def count_bytes(self) -> int:
        return sum(v.type.size_bytes for v in (*(v for v, _ in self.inputs.values()), *self.outputs))


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph with chains fused, where kernels are needed."""
    if context.chooser is None:
        return graph
    fuser = _Fuser(graph)
    before = fuser.clusters.copy()
    launches, moved = len(before), sum(c.count_bytes() for c in before)
    fuser.merge()
    if launches:
        after = sum(c.count_bytes() for c in fuser.clusters)
        context.note(f"{launches} elementwise launches of {moved} bytes -> {len(fuser.clusters)} of {after} bytes")
    return fuser.finish()


class _Fuser:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.names = itertools.count()
        self.constants = {n.outputs[0].id: n for n in graph.nodes if n.op == "Full" and n.outputs[0].type.num_elems == 1}
        self.kept = graph.find_kept()
        self.uses = graph.find_uses()
        self.producers = graph.find_producers()
        # What the update of all parameters will do besides stays alone.
        counter = find_counter(graph)
        alone = counter.nodes if counter is not None and is_one_update(graph, counter.readers) else set()
        nodes = [node for node in graph.nodes if node.op == "elementwise" and node.id not in alone]
        self.clusters = [c for node in nodes if (c := self._read(node)) is not None]
        self.home = {node.id: c for c in self.clusters for node in c.nodes}
        self._refused: dict[tuple[int, int], tuple[_Cluster, _Cluster]] = {}  # merging others only adds to what is between them
        self._order = {node.id: i for i, node in enumerate(graph.nodes)}
        for cluster in self.clusters:
            self._find_outputs(cluster)

    def _read(self, node: Node) -> _Cluster | None:
        """Return a node as a cluster; None for one whose values are several operands each."""
        if any(v is not None and v.type.dtype in COUNTERS and v.type.num_elems > 1 for v in (*node.inputs[1:], *node.outputs)):
            return None
        chain = read_chain(str(node.attrs["chain"]))
        rows, columns = node.attrs["rows"], node.attrs["columns"]
        assert isinstance(rows, int) and isinstance(columns, int)
        cluster = _Cluster([node], rows, columns, {}, {}, {}, node.inputs[0])
        known: dict[str, Tree] = {}
        for operand, value in zip(chain.inputs, node.inputs[1:], strict=True):
            assert value is not None
            number = self._find_number(value)
            if number is None:
                cluster.inputs[value.id] = (value, operand.extent)
            known[operand.name] = Name(_name(value)) if number is None else Number(number)
        if not cluster.inputs:
            return None
        for target, tree in chain.assignments:
            name = f"t{next(self.names)}"
            cluster.body[name] = _substitute(tree, known)
            known[target] = Name(name)
        for operand, value in zip(chain.outputs, node.outputs, strict=True):
            made = known[operand.name]
            assert isinstance(made, Name)
            cluster.made[value.id] = (value, made.name)
        return cluster

    def _find_number(self, value: Value) -> float | None:
        """Return a constant as chains have numbers; None where it is none, or is beyond them."""
        node = self.constants.get(value.id)
        if node is None or value.type.dtype == "bool":
            return None
        number = float(np.asarray(node.attrs["value"]).astype(find_dtype(value.type.dtype)).astype(np.float64))
        exact = abs(number) < 2.0**24 if value.type.dtype in COUNTERS else np.isfinite(np.float32(number))
        return number if exact and number >= 0.0 else None

    def _find_outputs(self, cluster: _Cluster) -> None:
        own = {node.id for node in cluster.nodes}
        cluster.outputs = [
            v for v, _ in cluster.made.values() if v.id in self.kept or any(n.id not in own for n in self.uses.get(v.id, ()))
        ]

    # ---- merging

    def merge(self) -> None:
        """Merge until nothing more fits."""
        changed = True
        while changed:
            changed = False
            for first, second in self._list_pairs():
                if self._merge(first, second):
                    changed = True
                    break

    def _list_pairs(self) -> Iterator[tuple[_Cluster, _Cluster]]:
        """Yield what may be merged: makers with readers first, then neighbours of one element or with an array in common."""
        for second in self.clusters:
            for value_id in second.inputs:
                producer = self.producers.get(value_id)
                first = None if producer is None else self.home.get(producer.id)
                if first is not None and first is not second:
                    yield first, second
        sizes = [cluster.num_elems for cluster in self.clusters]
        singles = [i for i, size in enumerate(sizes) if size == 1]
        readers: dict[int, list[int]] = {}
        for i, cluster in enumerate(self.clusters):
            for value_id in cluster.inputs:
                readers.setdefault(value_id, []).append(i)
        for i, first in enumerate(self.clusters):
            shared = (readers[v] for v, (_, extent) in first.inputs.items() if extent is Extent.FULL)
            near = singles if sizes[i] == 1 else sorted(set(itertools.chain.from_iterable(shared)))
            yield from ((first, self.clusters[j]) for j in near if j > i and sizes[j] == sizes[i])

    def _merge(self, first: _Cluster, second: _Cluster) -> bool:
        if (pair := (id(first), id(second))) in self._refused:
            return False
        merged = self._join(first, second)
        if merged is None or self._makes_circle(first, second):
            self._refused[pair] = (first, second)
            return False
        self.clusters = [merged if c is second else c for c in self.clusters if c is not first]
        self.home |= {node.id: merged for node in merged.nodes}
        return True

    def _join(self, first: _Cluster, second: _Cluster) -> _Cluster | None:
        """Return two clusters as one; None where they do not fit each other, or the engine."""
        is_number = first.num_elems == 1 and second.num_elems > 1
        own = {node.id for node in (*first.nodes, *second.nodes)}
        if is_number:
            if first.counter is not None or any(v.type.dtype in COUNTERS for v, _ in first.inputs.values()):
                return None
            if any(v.id in self.kept or any(n.id not in own for n in self.uses.get(v.id, ())) for v, _ in first.made.values()):
                return None
        elif (first.rows, first.columns) != (second.rows, second.columns) and not (
            first.num_elems == second.num_elems and (first.is_flat or second.is_flat)
        ):
            return None
        if first.counter is not None and second.counter is not None:
            return None  # each has draws of its own
        grid = second if is_number or first.is_flat else first
        inputs = {i: (v, Extent.ONE if is_number else extent) for i, (v, extent) in first.inputs.items()}
        for i, (v, extent) in second.inputs.items():
            if i in first.made:
                continue
            if inputs.setdefault(i, (v, extent))[1] != extent and grid.num_elems > 1:
                return None
        merged = _Cluster([*first.nodes, *second.nodes], grid.rows, grid.columns, inputs, {}, first.made | second.made)
        merged.counter = first.counter or second.counter
        self._find_outputs(merged)
        words = [sum(2 if v.type.dtype in COUNTERS else 1 for v in vs) for vs in ((v for v, _ in inputs.values()), merged.outputs)]
        if not inputs or not 0 < words[1] <= MAX_OUTPUTS or words[0] > MAX_INPUTS:
            return None
        known = {_name(v): Name(made) for v, made in first.made.values()}
        merged.body = first.body | {name: _substitute(tree, known) for name, tree in second.body.items()}
        return merged

    def _makes_circle(self, first: _Cluster, second: _Cluster) -> bool:
        """Whether something else must run between the two, in either order."""
        return self._reaches(first, second) or self._reaches(second, first)

    def _reaches(self, source: _Cluster, target: _Cluster) -> bool:
        """Whether a path leads from the source to the target through a node of neither."""
        begun = {n.id for n in source.nodes}
        inside = begun | {n.id for n in target.nodes}
        open_, seen = [target.nodes], {n.id for n in target.nodes}
        while open_:
            for member in open_.pop():
                for value in member.inputs:
                    producer = None if value is None else self.producers.get(value.id)
                    if producer is None or producer.id in seen:
                        continue
                    if producer.id in begun:
                        if member.id not in inside:
                            return True
                        continue
                    cluster = self.home.get(producer.id)
                    open_.append([producer] if cluster is None else cluster.nodes)
                    seen.update(n.id for n in open_[-1])
        return False

    # ---- the graph again

    def finish(self) -> Graph:
        """Return the graph with a node per cluster, in an order that runs."""
        changed = [c for c in self.clusters if len(c.nodes) > 1 or len(c.inputs) < len(c.nodes[0].inputs) - 1]
        of = {node.id: c for c in changed for node in c.nodes}
        rewriter, done = Rewriter(self.graph), set[int]()

        def emit(node: Node) -> None:
            cluster = of.get(node.id)
            members = [node] if cluster is None else cluster.nodes
            if node.id in done:
                return
            done.update(n.id for n in members)
            for value in (v for n in members for v in n.inputs if v is not None):
                producer = self.producers.get(value.id)
                if producer is not None and producer.id not in done:
                    emit(producer)
            if cluster is None:
                rewriter.copy(node)
            else:
                self._write(rewriter, cluster)

        for node in self.graph.nodes:
            cluster = of.get(node.id)
            if cluster is None or node.id == max(cluster.nodes, key=lambda n: self._order[n.id]).id:
                emit(node)
        return rewriter.finish()

    def _write(self, rewriter: Rewriter, cluster: _Cluster) -> None:
        # A float first: its dtype is what T is.
        inputs = sorted(cluster.inputs.values(), key=lambda pair: (not pair[0].type.is_float, pair[1] is not Extent.FULL))
        generic = inputs[0][0].type.dtype
        renamed: dict[str, Tree] = {_name(v): Name(f"x{i}") for i, (v, _) in enumerate(inputs)}
        lines = []
        for i, (name, tree) in enumerate(self._find_needed(cluster)):
            lines.append(f"t{i} = {format_node(_substitute(tree, renamed))}")
            renamed[name] = Name(f"t{i}")
        lines += [f"y{i} = {format_node(renamed[cluster.made[v.id][1]])}" for i, v in enumerate(cluster.outputs)]
        left = [f"x{i}: {_write_type(v.type, generic)}{_EXTENTS[extent]}" for i, (v, extent) in enumerate(inputs)]
        right = [f"y{i}: {_write_type(v.type, generic)}" for i, v in enumerate(cluster.outputs)]
        attrs: dict[str, Attr] = {"chain": f"{', '.join(left)} -> {', '.join(right)}; {'; '.join(lines)}"}
        attrs |= {"rows": cluster.rows, "columns": cluster.columns, "results": "; ".join(str(v.type) for v in cluster.outputs)}
        rewriter.stand_for(*cluster.nodes)
        made = rewriter.call("elementwise", (cluster.counter, *(v for v, _ in inputs)), attrs)
        rewriter.replace(cluster.outputs, made)

    def _find_needed(self, cluster: _Cluster) -> Sequence[tuple[str, Tree]]:
        """Return the assignments that an output depends on, each behind what it reads."""
        needed = {cluster.made[v.id][1] for v in cluster.outputs}
        kept = []
        for name, tree in reversed(cluster.body.items()):
            if name in needed:
                needed |= set(_list_names(tree))
                kept.append((name, tree))
        return kept[::-1]


def _name(value: Value) -> str:
    return f"v{value.id}"


def _write_type(t: Type, generic: str) -> str:
    return "T" if t.dtype == generic and t.is_float else NAMES[t.dtype]


def _substitute(tree: Tree, known: Mapping[str, Tree]) -> Tree:
    if isinstance(tree, Name):
        return known.get(tree.name, tree)
    if isinstance(tree, Call):
        return Call(tree.function, tuple(_substitute(argument, known) for argument in tree.arguments), tree.draw)
    return tree


def _list_names(tree: Tree) -> Iterator[str]:
    if isinstance(tree, Name):
        yield tree.name
    elif isinstance(tree, Call):
        for argument in tree.arguments:
            yield from _list_names(argument)
