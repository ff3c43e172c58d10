"""Attributes of eager calls, filled in once: calls with the same attributes share them, and what was found out about such calls."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aicf.opset import find_op
from aicf.opset.definition import OpDef
from aicf.opset.types import Attr, Attrs, freeze

_MAX_FILLED = 4096
_numbers = itertools.count()


class Filled(dict[str, Attr]):
    """An op's attributes with defaults, not to be changed. ``number`` stands for the op and them.

    ``recipes[count, needs]`` is how a call of so many inputs is recorded, None where it has no gradient; bit i of ``needs``: input i needs
    one.
    """

    __slots__ = ("number", "op", "recipes")

    def __init__(self, op: OpDef, attrs: Attrs) -> None:
        super().__init__(attrs)
        self.op = op
        self.number = next(_numbers)
        self.recipes = _Recipes(self)


class _Recipes(dict[tuple[int, int], "Recipe | None"]):
    """Recipes, each made when it is first asked for."""

    __slots__ = ("_attrs",)

    def __init__(self, attrs: Filled) -> None:
        super().__init__()
        self._attrs = attrs

    def __missing__(self, key: tuple[int, int]) -> Recipe | None:
        made = self[key] = _make_recipe(self._attrs, *key)
        return made


@dataclass(frozen=True, slots=True)
class Recipe:
    """What recording a call for a backward pass takes, where it is known which inputs need gradients.

    ``places`` are where those inputs stand; ``saves`` are the inputs, and ``keeps`` the outputs, that its rule reads: name and place.
    """

    attrs: Filled
    names: tuple[str, ...]
    needed: frozenset[str]
    places: tuple[int, ...]
    saves: tuple[tuple[str, int], ...]
    keeps: tuple[tuple[str, int], ...]


def fill(op: OpDef, attrs: Attrs) -> Filled:
    """Return attributes with defaults. Raises as :meth:`OpDef.fill`."""
    found = _fill(op, None, **attrs)
    return found if found is not None else _fill(op, freeze(attrs), **attrs)  # type: ignore[return-value]  # a key tells zeros apart


@lru_cache(maxsize=_MAX_FILLED, typed=True)  # True is not 1
def _fill(op: OpDef, key: tuple[Any, ...] | None, /, **attrs: Attr) -> Filled | None:
    """Return attributes with defaults; None where only a key tells them from others: zeros with and without a sign are equal."""
    if key is None and any(type(value) is float and value == 0.0 for value in attrs.values()):
        return None
    return Filled(op, op.fill(attrs))


@lru_cache(maxsize=_MAX_FILLED)
def fill_choice(op: str, name: str, choice: str) -> Filled:
    """Return attributes with defaults of an op of the framework's, of which one is given, a string. Raises as :meth:`OpDef.fill`."""
    return fill(find_op(op), {name: choice})


def _make_recipe(attrs: Filled, count: int, needs: int) -> Recipe | None:
    op = attrs.op
    if not op.has_gradient(attrs):
        return None
    names = op.input_names(count)
    needed = {name for i, name in enumerate(names) if needs >> i & 1}
    extended = op.extend(attrs, needed) if op.keeps else attrs
    filled = attrs if extended == attrs else fill(op, extended)
    wanted = op.saves(filled, needed)
    places = tuple(i for i, name in enumerate(names) if name in needed)
    saves, keeps = (tuple((name, i) for i, name in enumerate(each) if name in wanted) for each in (names, op.outputs))
    return Recipe(filled, names, frozenset(needed), places, saves, keeps)
