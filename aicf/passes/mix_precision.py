"""Mixed precision: an op's class says whether it runs in the compute dtype (always), in that of its inputs (follow) or in fp32 (never).

Parameters stay in fp32 and are cast where they are read; what the graph returns and what states become keeps its dtype. Nodes that
:mod:`aicf.passes.guard_precision` has found to be too far from the truth stay in fp32 too.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import find_op
from aicf.passes.context import Context

COMPUTE_DTYPES = ("bfloat16", "float16")
_WIDE = "float32"


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph in mixed precision, where that is asked for; raises ValueError for a dtype that it does not know."""
    if context.amp is None:
        return graph
    check_dtype(context.amp)
    rewriter = _mix(graph, context.amp, context.wide)
    context.note(f"{rewriter.num_casts} casts to {context.amp} or back")
    outputs = [rewriter.take(v, v.type.dtype) for v in graph.outputs]
    updates = [(state, rewriter.take(new, new.type.dtype)) for state, new in graph.updates]
    return rewriter.rewriter.finish(outputs, updates)


def check_dtype(amp: str) -> None:
    """Raise ValueError for a dtype that mixed precision does not compute in."""
    if amp not in COMPUTE_DTYPES:
        raise ValueError(f"amp: expected one of {', '.join(COMPUTE_DTYPES)}, got {amp!r}")


def find_narrow(graph: Graph, compute: str) -> set[int]:
    """Return the ids of the nodes that mixed precision runs in the compute dtype."""
    return _mix(graph, compute, ()).narrow


def _mix(graph: Graph, compute: str, wide: Container[int]) -> _Mixer:
    mixer = _Mixer(graph, compute, wide)
    for node in graph.nodes:
        mixer.add(node)
    return mixer


class _Mixer:
    """Holds what each value has become, and casts that have been made. Nodes that are ``wide`` stay in fp32."""

    def __init__(self, graph: Graph, compute: str, wide: Container[int]) -> None:
        self.rewriter = Rewriter(graph)
        self.narrow: set[int] = set()
        self._compute, self._wide = compute, wide
        self._made: dict[int, Value] = {}
        self._casts: dict[tuple[int, str], Value] = {}
        self.num_casts = 0

    def take(self, value: Value, dtype: str) -> Value:
        """Return what a value has become, in a dtype where it is a float."""
        made = self._made.get(value.id, value)
        if not made.type.is_float or made.type.dtype == dtype:
            return made
        key = (made.id, dtype)
        if key not in self._casts:
            self._casts[key] = self.rewriter.cast(made, dtype)
            self.num_casts += 1
        return self._casts[key]

    def add(self, node: Node) -> None:
        """Add a node in the precision of its class."""
        self.rewriter.stand_for(node)
        wanted = self._find_dtype(node)
        if wanted is None:
            self.rewriter.copy(node)
            return
        if wanted == self._compute:
            self.narrow.add(node.id)
        op = find_op(node.op)
        pairs = zip(op.input_names(len(node.inputs)), node.inputs, strict=True)
        kept = {n for n in op.input_names(len(node.inputs)) if n in op.any_float or "*" in op.any_float}
        inputs = [None if v is None else self._made.get(v.id, v) if n in kept else self.take(v, wanted) for n, v in pairs]
        types = op.find_types([None if v is None else v.type for v in inputs], node.attrs)
        outputs = tuple(Value(old.id, t) for old, t in zip(node.outputs, types, strict=True))
        self.rewriter.copy(replace(node, inputs=tuple(inputs), outputs=outputs))
        self._made |= {v.id: v for v in outputs}

    def _find_dtype(self, node: Node) -> str | None:
        """Return the dtype of a node's floating inputs, None for one that has none or is in float64, which stays."""
        there = [self._made.get(v.id, v) for v in node.inputs if v is not None]
        floats = [v for v in there if v.type.is_float]
        if not floats or any(v.type.dtype == "float64" for v in floats):
            return None
        if node.id in self._wide:
            return _WIDE
        amp = find_op(node.op).amp
        if node.op == "Reduce" and node.attrs["function"] == "sum" and node.differentiates is not None:
            # A gradient, which is added up in fp32 and rounded once, like those that products make, of what these read.
            is_cast = self._compute == "float16" and any((v.id, self._compute) in self._casts for v in floats)
            amp = "always" if is_cast else "follow"
        if amp == "always":
            return self._compute
        if self._compute == "float16" and find_op(node.op).needs_range:
            return _WIDE
        # An op that follows runs in the compute dtype where all that it reads, constants aside, is in that.
        tensors = [v for v in floats if self.rewriter.find_producer(v, "Full") is None]
        narrow = amp == "follow" and bool(tensors) and all(v.type.dtype == self._compute for v in tensors)
        return self._compute if narrow and node.op != "Cast" else _WIDE
