"""Attributes of eager calls, filled in once: calls with the same attributes share them, and what was found out about such calls."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from aicf.opset.definition import OpDef
from aicf.opset.types import Attr, Attrs, freeze

_MAX_FILLED = 4096
_numbers = itertools.count()
_known: dict[tuple[Any, ...], Filled] = {}


class Filled(dict[str, Attr]):
    """An op's attributes with defaults, not to be changed. ``number`` stands for the op and them."""

    __slots__ = ("number", "op", "recipes")

    def __init__(self, op: OpDef, attrs: Attrs) -> None:
        super().__init__(attrs)
        self.op = op
        self.number = next(_numbers)
        self.recipes: dict[tuple[int, int], Recipe | None] = {}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What recording a call for a backward pass takes, where it is known which inputs need gradients.

    ``saves`` are the inputs, and ``keeps`` the outputs, that its rule reads: name and place.
    """

    attrs: Filled
    names: tuple[str, ...]
    needed: frozenset[str]
    saves: tuple[tuple[str, int], ...]
    keeps: tuple[tuple[str, int], ...]


def fill(op: OpDef, attrs: Attrs) -> Filled:
    """Return attributes with defaults. Raises as :meth:`OpDef.fill`."""
    values = attrs.values()
    # True is not 1. Zeros with and without a sign are equal here: calls with one are known by the longer key alone.
    short = (op.name, *attrs, *values, *map(type, values))
    found = _known.get(short)
    if found is not None and found.op is op:  # a project's own op may be another one of the same name
        return found
    key = (op.name, *freeze(attrs))
    found = _known.get(key)
    if found is None or found.op is not op:
        if len(_known) >= _MAX_FILLED:
            _known.clear()
        found = _known[key] = Filled(op, op.fill(attrs))
    if not any(type(value) is float and value == 0.0 for value in values):
        _known[short] = found
    return found


def find_recipe(attrs: Filled, count: int, needs: int) -> Recipe | None:
    """Return how a call of so many inputs is recorded; None where it has no gradient. Bit i of ``needs``: input i needs one."""
    key = (count, needs)
    if key not in attrs.recipes:
        attrs.recipes[key] = _make_recipe(attrs, count, needs)
    return attrs.recipes[key]


def _make_recipe(attrs: Filled, count: int, needs: int) -> Recipe | None:
    op = attrs.op
    if not op.has_gradient(attrs):
        return None
    names = op.input_names(count)
    needed = {name for i, name in enumerate(names) if needs >> i & 1}
    extended = op.extend(attrs, needed) if op.keeps else attrs
    filled = attrs if extended == attrs else fill(op, extended)
    wanted = op.saves(filled, needed)
    saves = tuple((name, i) for i, name in enumerate(names) if name in wanted)
    return Recipe(filled, names, frozenset(needed), saves, tuple((name, i) for i, name in enumerate(op.outputs) if name in wanted))
