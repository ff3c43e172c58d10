"""Whole blocks: make a network deeper, remove a block, replace an activation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aicf.errors import RewriteError
from aicf.frontends.imported import Part
from aicf.nn import Module, Sequential
from aicf.rewrite.blocks import ACTIVATIONS, FUNCTIONS, Identity, Residual, make_linear, name_activation
from aicf.rewrite.copying import find_module, replace_module, require_function, walk
from aicf.rewrite.draft import Draft
from aicf.rewrite.records import Map
from aicf.rewrite.rules.rule import Rule

RESIDUAL, IDENTITY = "residual", "identity"


@dataclass(frozen=True)
class Deepen(Rule):
    """Put a block behind a module that computes nothing at first, and is trained from then on.

    A ``residual`` block is ``x + W2 f(W1 x + b1) + b2`` with W2 and b2 zero and ``hidden`` units, by default as many as x has; the function
    stays as it is. An ``identity`` block is ``f(W x + b)`` with the identity and zero: exact where f leaves its input as it is, as relu
    does behind another relu, and refused elsewhere. Moments begin at zero.
    """

    preserves: ClassVar[bool] = True
    owner: str
    kind: str = RESIDUAL
    activation: str = "relu"
    hidden: int = 0
    seed: int = 0

    def change(self, draft: Draft) -> Rule:
        """Insert the block."""
        if self.kind not in (RESIDUAL, IDENTITY) or self.activation not in ACTIVATIONS or self.hidden < 0:
            raise RewriteError(
                f"{self.owner}: a block is {RESIDUAL} or {IDENTITY}, with one of {', '.join(ACTIVATIONS)}, and has at least 1 hidden unit; "
                f"got {self.kind}, {self.activation}, {self.hidden}"
            )
        old = find_module(draft.model, self.owner)
        try:
            made = draft.dimensions.find_output(self.owner).type
        except KeyError:
            raise RewriteError(f"{self.owner}: computes nothing, so no block can be inserted after it") from None
        if not made.shape or not made.is_float:
            raise RewriteError(f"{self.owner}: makes {made}; a block needs features in its last axis")
        block = self._make(made.shape[-1], made.dtype)
        group = next((draft.find_group(path) for path in draft.parameters if path.startswith(f"{self.owner}.")), 0)
        path = insert_behind(draft.model, self.owner, old, block)
        for name, p in block.named_parameters():
            found = next(there for there, held in draft.parameters.items() if held is p)
            draft.train(found, group, {})
            draft.maps.append(Map(f"{path}.{name}"))
        return Remove(path)

    def _make(self, features: int, dtype: str) -> Module:
        activation = ACTIVATIONS[self.activation]()
        zeros = np.zeros(features, dtype)
        if self.kind == IDENTITY:
            return Sequential(make_linear(np.eye(features, dtype=dtype), zeros), activation)
        rng, hidden = np.random.Generator(np.random.Philox(key=self.seed)), self.hidden or features
        bound = 1.0 / np.sqrt(features)
        up = make_linear(rng.uniform(-bound, bound, (hidden, features)).astype(dtype), np.zeros(hidden, dtype))
        return Residual(up, activation, make_linear(np.zeros((features, hidden), dtype), zeros))


@dataclass(frozen=True)
class Remove(Rule):
    """Remove a block: its input goes on in the place of its output. The function changes, unless the block computes nothing."""

    owner: str

    def change(self, draft: Draft) -> None:
        """Remove the block; one that does not return what it takes is refused when the network is evaluated."""
        old = find_module(draft.model, self.owner)
        if old is draft.model:
            raise RewriteError("the whole model cannot be removed; name a module of it")
        require_function(old, self.owner)
        before = list(draft.parameters)
        for _, owner, name, child in list(walk(draft.model)):
            if child is old and type(owner) is Sequential:
                delattr(owner, name)
            elif child is old:
                setattr(owner, name, Identity())
        if isinstance(old, Part):
            old.give_up()
        draft.maps += [Map(path) for path in before if path not in draft.parameters]


@dataclass(frozen=True)
class ReplaceActivation(Rule):
    """Have another activation in the place of one: relu, gelu, gelu_tanh, silu, tanh or sigmoid. The function changes."""

    owner: str
    to: str

    def change(self, draft: Draft) -> Rule:
        """Replace the module."""
        before = name_activation(find_module(draft.model, self.owner)) or FUNCTIONS.get(draft.find_function(self.owner), "")
        if not before:
            kind = type(find_module(draft.model, self.owner)).__name__
            raise RewriteError(f"{self.owner}: is {kind}; only an activation can be replaced by another")
        if self.to not in ACTIVATIONS or self.to == before:
            raise RewriteError(f"{self.owner}: is {before}, to be replaced by another one of {', '.join(ACTIVATIONS)}; got {self.to!r}")
        replace_module(draft.model, self.owner, ACTIVATIONS[self.to]())
        return ReplaceActivation(self.owner, before)


def insert_behind(model: Module, path: str, old: Module, block: Module) -> str:
    """Put a block behind a module, wherever that is used; returns its path. All others keep theirs where a Sequential runs the module."""
    if old is model:
        raise RewriteError("a block is inserted after a module of the model; name one")
    require_function(old, path)
    found = ""
    for where, owner, name, child in list(walk(model)):
        if child is not old:
            continue
        if type(owner) is Sequential:
            items = list(vars(owner).items())
            new = next(f"{name}_{i}" for i in range(1, len(items) + 2) if not hasattr(owner, f"{name}_{i}"))
            vars(owner).clear()
            for key, value in items:
                vars(owner)[key] = value
                if key == name:
                    vars(owner)[new] = block
            found = found or (f"{where.rpartition('.')[0]}.{new}" if "." in where else new)
        else:
            setattr(owner, name, Sequential(old, block))
            found = found or f"{where}.1"
    return found
