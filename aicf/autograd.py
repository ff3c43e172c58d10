"""Backward passes: the calls that made a tensor, and their ops' gradient rules, run from the last call to the first."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

from aicf.errors import GradientError
from aicf.modes import find_place, no_grad, refuse_while_recording, say_place, set_grad_enabled
from aicf.opset import Attrs, Backward, Builder, OpDef, Type
from aicf.opset.filled import Recipe

__all__ = ["Node", "grad", "no_grad", "run_backward", "set_grad_enabled"]

_numbers = itertools.count()


class Version:
    """How often a tensor's memory was written in place, and whether others may write it unseen; views of one memory share it."""

    count = 0  # here, and not in an __init__: one is made for every output of every call
    is_exported = False


class Differentiable(Protocol):
    """What a backward pass needs of a tensor; :class:`aicf.tensor.Tensor` has it, and says what each is."""

    BUILDER: ClassVar[Builder]
    data: Any
    backend: Any
    type: Type
    version: Version
    grad: Any
    edge: tuple[Node, int] | None
    requires_grad: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""

    @classmethod
    def wrap(cls, data: Any, backend: Any, version: Version | None = None) -> Self:
        """Return a tensor of an array that a backend has made, without a copy."""


# Where a gradient goes: to an output of a node, or to a tensor that no call made.
Edge = tuple["Node", int] | Differentiable

# A value that a rule will read: its array, its version, and the count of in-place writes when it was saved.
_Saved = tuple[Any, Version, int]


class Node:
    """One call that was recorded; its floating outputs say so. ``backward`` runs its op's rule, whose values are kept until then."""

    __slots__ = ("_backend", "_is_freed", "_kind", "_place", "_recipe", "_saved", "_types", "edges", "num_outputs", "number", "op")

    def __init__(
        self,
        op: OpDef,
        recipe: Recipe,
        inputs: Sequence[Differentiable | None],
        arrays: Sequence[Any],
        outputs: Sequence[Differentiable],
    ) -> None:
        self.op = op
        self.number = next(_numbers)
        self._place = find_place(3)
        self._recipe = recipe
        edges: list[Edge | None] = [None] * len(inputs)
        for i in recipe.places:
            if (t := inputs[i]) is not None:
                edges[i] = t.edge or t
        types: list[Type | None] = []
        for t in inputs:
            types.append(None if t is None else t.type)  # noqa: PERF401  # a comprehension is a call, in Python 3.11
        saved: dict[str, _Saved] = {}
        for name, i in recipe.saves:
            if (t := inputs[i]) is not None:
                version = t.version
                saved[name] = arrays[i], version, version.count
        for name, i in recipe.keeps:
            if i < len(outputs):
                y = outputs[i]
                saved[name] = y.data, y.version, y.version.count
        index = 0
        for y in outputs:
            if (kind := y.type).is_float:
                y.edge, y.requires_grad = (self, index), True
            types.append(kind)
            index += 1
        self.edges, self._types, self._saved, self.num_outputs = edges, types, saved, index
        self._kind, self._backend = type(y), y.backend
        self._is_freed = False

    @property
    def source(self) -> str:
        """The user's line that made the call: ``file:line``."""
        return say_place(self._place)

    @property
    def attrs(self) -> Attrs:
        """The call's attributes, complete."""
        return self._recipe.attrs

    def backward(self, *dout: Differentiable | None) -> tuple[Differentiable | None, ...]:
        """Return the inputs' gradients, None where none is needed or goes; raises :class:`GradientError`."""
        if self._is_freed:
            raise GradientError(
                f"{self.source}: the graph of {self.op.name} was freed by an earlier backward pass; give that one retain_graph=True, "
                "or run the forward pass again"
            )
        if self.op.gradient is None:
            raise GradientError(f"{self.source}: {self.op.name} has no gradient; call it under aicf.no_grad()")
        names, needed = self._recipe.names, self._recipe.needed
        ends = {name: self.edges[i] for name, i in self._recipe.saves} | {name: (self, i) for name, i in self._recipe.keeps}
        values = {name: self._unpack(name, *saved, ends[name]) for name, saved in self._saved.items()}
        types = {name: t for name, t in zip((*names, *self.op.outputs), self._types, strict=False) if t is not None}
        g = Backward(self._kind.BUILDER, self.op, self.attrs, values, types, set(needed))
        found = self.op.gradient(g, *dout)
        return tuple(d if name in needed else None for name, d in itertools.zip_longest(names, found))

    def free(self) -> None:
        """Forget what was kept for the backward pass."""
        self._is_freed = True
        self._saved = {}
        self.edges = []

    def _unpack(self, name: str, data: Any, version: Version, count: int, edge: Edge | None) -> Differentiable:
        if version.count != count:
            raise GradientError(
                f"{self.source}: {self.op.name} needs its {name} for the backward pass, and that was changed in place since; "
                "change a copy (x.clone()), or change it after the backward pass"
            )
        if edge is not None and not isinstance(edge, tuple):
            return edge
        tensor = self._kind.wrap(data, self._backend, version)
        tensor.edge, tensor.requires_grad = edge, edge is not None
        return tensor


def find_edge(tensor: Differentiable) -> Edge | None:
    """Return where a tensor's gradient goes, None where it needs none."""
    if not tensor.requires_grad:
        return None
    return tensor.edge or tensor


def run_backward(
    roots: Sequence[Differentiable],
    grads: Sequence[Differentiable | None],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    wanted: Sequence[Differentiable] | None = None,
) -> list[Differentiable | None] | None:
    """Run the rules from the roots to the leaves.

    Gradients are added to the leaves' ``grad``; with ``wanted``, tensors of the graph, theirs are returned instead and no ``grad`` changes.
    Raises :class:`GradientError`, naming the source line, for a graph that was freed or whose values were changed in place.
    """
    refuse_while_recording("backward() was called", "aicf.compile_step differentiates the loss itself")
    builder = roots[0].BUILDER
    sums = _Sums(builder.add)
    seeds = []
    for root, seed in zip(roots, grads, strict=True):
        edge = find_edge(root)
        if edge is None:
            raise GradientError(
                "backward() was called on a tensor that needs no gradient: nothing that it was made of requires one, or it was made under "
                "no_grad() or from x.detach()"
            )
        if seed is None and root.shape != ():
            raise GradientError(f"backward() needs a scalar or a gradient, got shape {root.shape}; reduce it: x.sum().backward()")
        seeds.append(builder.broadcast(builder.full(1.0, root), root.shape) if seed is None else seed)
        sums.add(edge, seeds[-1])
    keys = None if wanted is None else [_key_of(find_edge(t)) for t in wanted]
    kept: dict[Any, Differentiable] = {}
    with set_grad_enabled(create_graph):
        while (node := sums.pop()) is not None:
            douts = sums.take(node)
            kept |= {(id(node), i): d for i, d in enumerate(douts) if d is not None and keys is not None and (id(node), i) in keys}
            for edge, gradient in zip(node.edges, node.backward(*douts), strict=True):
                if edge is not None and gradient is not None:
                    sums.add(edge, gradient)
            if not retain_graph and not create_graph:
                node.free()
        if keys is not None:
            return [sums.leaves[key][1] if key in sums.leaves else kept.get(key) for key in keys]
        _add_to_leaves(sums.leaves.values(), builder, seeds)
    return None


def _add_to_leaves(found: Iterable[tuple[Differentiable, Differentiable]], builder: Builder, seeds: Iterable[Differentiable]) -> None:
    """Add gradients to leaves, each of which gets memory of its own: a rule may pass one array on to several, or that of a seed."""
    held = {id(seed.version) for seed in seeds}
    for leaf, gradient in found:
        if leaf.grad is not None:
            leaf.grad = builder.add(leaf.grad, gradient)
            continue
        leaf.grad = builder.one("Copy", gradient) if id(gradient.version) in held else gradient
        held.add(id(gradient.version))


def _key_of(edge: Edge | None) -> Any:
    if edge is None:
        raise GradientError(
            "a gradient was asked for with respect to a tensor that needs none; set requires_grad=True before the forward pass"
        )
    return (id(edge[0]), edge[1]) if isinstance(edge, tuple) else id(edge)


class _Sums:
    """Gradients on their way: sums per node output and per leaf, and the nodes still to run, the latest call first."""

    def __init__(self, add: Callable[[Differentiable, Differentiable], Differentiable]) -> None:
        self._add = add
        self._heap: list[tuple[int, Node]] = []
        self._at: dict[Node, list[Differentiable | None]] = {}
        self.leaves: dict[int, tuple[Differentiable, Differentiable]] = {}

    def add(self, edge: Edge, gradient: Differentiable) -> None:
        if not isinstance(edge, tuple):
            known = self.leaves.get(id(edge))
            self.leaves[id(edge)] = (edge, gradient if known is None else self._add(known[1], gradient))
            return
        node, index = edge
        if node not in self._at:
            self._at[node] = [None] * node.num_outputs
            heapq.heappush(self._heap, (-node.number, node))
        before = self._at[node][index]
        self._at[node][index] = gradient if before is None else self._add(before, gradient)

    def pop(self) -> Node | None:
        return heapq.heappop(self._heap)[1] if self._heap else None

    def take(self, node: Node) -> list[Differentiable | None]:
        return self._at.pop(node)


def _check_tensor(what: str, value: Any) -> None:
    if not hasattr(value, "requires_grad") or not hasattr(value, "BUILDER"):
        raise TypeError(f"grad: {what}: expected a tensor, got {type(value).__name__}; Tensor(values) makes one")


def grad(function: Callable[..., Differentiable], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Return a function that gives the gradient of a scalar function with respect to one argument, or to several as a tuple.

    It can be differentiated again: ``grad(grad(f))``. Raises TypeError for an argument or a result that is not a tensor.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def differentiate(*args: Any, **kwargs: Mapping[str, Any]) -> Any:
        inner = list(args)
        with set_grad_enabled(True):
            for number in numbers:
                if not -len(args) <= number < len(args):
                    raise TypeError(f"grad: argument {number} is to be differentiated, and {len(args)} were given by position")
                _check_tensor(f"argument {number}", args[number])
                inner[number] = args[number].alias()
            result = function(*inner, **kwargs)
            _check_tensor("the function's result", result)
            found = run_backward([result], [None], create_graph=True, wanted=[inner[n] for n in numbers])
        assert found is not None
        missing = [args[n].BUILDER.scale(args[n], 0.0) if d is None else d for n, d in zip(numbers, found, strict=True)]
        return missing[0] if isinstance(argnums, int) else tuple(missing)

    return differentiate
