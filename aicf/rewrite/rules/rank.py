"""Low rank: a linear layer as two with fewer units between them, and two as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from aicf.errors import RewriteError
from aicf.frontends.imported import Part
from aicf.ir.graph import PARAMETER
from aicf.nn import Linear, Module, Parameter, Sequential
from aicf.opset import find_op
from aicf.rewrite.blocks import make_linear
from aicf.rewrite.copying import find_module, replace_module
from aicf.rewrite.draft import Draft
from aicf.rewrite.records import Map
from aicf.rewrite.rules.rule import Rule
from aicf.rewrite.transport import POWERS


@dataclass(frozen=True)
class Split(Rule):
    """Have two linear layers of ``rank`` units between them in the place of one: the nearest of that rank, by singular values.

    The function changes by what the smaller singular values carry. The gradient of either factor is the weight's times the other factor,
    so first moments and momenta are carried exactly; second moments are as if the gradients of the weight's elements did not
    depend on each other.
    """

    owner: str
    rank: int

    def change(self, draft: Draft) -> Rule:
        """Split the layer."""
        layer = find_layer(draft, self.owner)
        path, weight = check_weight(draft, self.owner, layer)
        if not 1 <= self.rank <= min(weight.shape):
            raise RewriteError(
                f"{self.owner}: its weight is {weight.shape[0]} x {weight.shape[1]}; rank={self.rank} must be from 1 to {min(weight.shape)}"
            )
        left, sizes, right = np.linalg.svd(weight.astype(np.float64), full_matrices=False)
        roots = np.sqrt(sizes[: self.rank])
        outer, inner = left[:, : self.rank] * roots, roots[:, None] * right[: self.rank]
        group, state = draft.stop_training(path)
        pair = Sequential(make_linear(inner.astype(weight.dtype), None), make_linear(outer.astype(weight.dtype), layer.bias))
        replace_module(draft.model, self.owner, pair)
        made: tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]] = ({}, {})
        for role, values in state.items():
            a, b, wide = inner, outer, values.astype(np.float64)
            if POWERS[role] == 2:
                a, b = a * a, b * b
            made[0][role], made[1][role] = (b.T @ wide).astype(values.dtype), (wide @ a.T).astype(values.dtype)
        for number in (0, 1):
            draft.train(f"{self.owner}.{number}.weight", group, made[number])
            draft.maps.append(Map(f"{self.owner}.{number}.weight"))
        draft.maps.append(Map(path))
        return Merge(self.owner)


@dataclass(frozen=True)
class Merge(Rule):
    """Have one linear layer in the place of a Sequential of two: the function stays as it is. Moments of its weight begin at zero."""

    preserves: ClassVar[bool] = True
    owner: str

    def change(self, draft: Draft) -> None:
        """Merge the layers."""
        pair = find_module(draft.model, self.owner)
        layers = list(pair) if type(pair) is Sequential else []
        if len(layers) != 2 or any(type(each) is not Linear for each in layers):
            raise RewriteError(f"{self.owner}: only a Sequential of two Linear and nothing else can be merged")
        first, second = layers
        assert isinstance(first, Linear) and isinstance(second, Linear)
        names = [name for name, _ in pair.children()]
        paths, weights = zip(
            *(check_weight(draft, f"{self.owner}.{n}", m) for n, m in zip(names, (first, second), strict=True)), strict=True
        )
        bias: Parameter | NDArray[Any] | None = second.bias
        group = draft.find_group(paths[1])
        inner, outer = (w.astype(np.float64) for w in weights)
        new = make_linear((outer @ inner).astype(weights[1].dtype), bias)
        trained = [f"{self.owner}.weight"]
        if first.bias is not None:
            shift = outer @ first.bias.numpy().astype(np.float64)
            if second.bias is None:
                new = make_linear(new.weight.numpy(), shift.astype(weights[1].dtype))
                trained.append(f"{self.owner}.bias")
            else:
                path = f"{self.owner}.{names[1]}.bias"
                moved = (second.bias.numpy() + shift).astype(weights[1].dtype)
                draft.put(path, moved, draft.state(path))
                new.bias = second.bias
            draft.maps.append(Map(f"{self.owner}.{names[0]}.bias"))
        for path in paths:
            draft.stop_training(path)
            draft.maps.append(Map(path))
        replace_module(draft.model, self.owner, new)
        for path in trained:
            draft.train(path, group, {})
            draft.maps.append(Map(path))


def find_layer(draft: Draft, owner: str) -> Linear:
    """Return a linear layer; a part of an imported network that is one becomes one. Raises :class:`RewriteError` for another module."""
    found = find_module(draft.model, owner)
    if isinstance(found, Part) and _is_layer(draft, owner):
        parameters = draft.parameters
        layer = make_linear(parameters[f"{owner}.weight"].numpy()[:0], parameters.get(f"{owner}.bias"))
        layer.weight = parameters[f"{owner}.weight"]
        replace_module(draft.model, owner, layer)
        return layer
    if not isinstance(found, Linear):
        raise RewriteError(f"{owner}: is {type(found).__name__}; only a linear layer can be split")
    return found


def _is_layer(draft: Draft, owner: str) -> bool:
    """Whether a module is a linear layer of its own parameters, as it was recorded."""
    nodes = [node for node in draft.graph.nodes if node.owner == owner or node.owner.startswith(f"{owner}.")]
    held = {state.value.id: state.owner for state in draft.graph.states if state.role == PARAMETER}
    if len(nodes) != 1 or nodes[0].op != "Linear" or nodes[0].attrs != find_op("Linear").attributes:
        return False
    names = {held.get(value.id) for value in nodes[0].inputs[1:] if value is not None}
    return {f"{owner}.weight"} <= names <= {f"{owner}.weight", f"{owner}.bias"}


def check_weight(draft: Draft, owner: str, layer: Module) -> tuple[str, NDArray[Any]]:
    """Return a layer's weight and its path; raises :class:`RewriteError` for one that is used elsewhere, is frozen, or has scales."""
    assert isinstance(layer, Linear)
    users = [module for _, module in draft.model.modules() for held in vars(module).values() if held is layer.weight]
    path = next(path for path, p in draft.parameters.items() if p is layer.weight)
    if len(users) > 1 or path != f"{owner}.weight":
        raise RewriteError(f"{owner}: its weight is used by {len(users)} modules, which must stay the same")
    if any(p in draft.resting for p in draft.parameters if p.startswith(f"{owner}.")):
        raise RewriteError(f"{owner}: is frozen; thaw it first")
    if unknown := sorted(draft.list_roles(path) - POWERS.keys()):
        raise RewriteError(f"{owner}: its weight has {unknown[0]}, the scales of copied units, which a product of two cannot carry")
    return path, layer.weight.numpy()
