"""Plans of one program for other shapes: made when they are first called for, kept within bounds, the last used ones.

Rows are padded where that is legal: the number of rows is rounded up, so that a few plans serve all numbers, and what comes out is cut
off again. Every compilation says in the log why it was needed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aicf.errors import PlanError
from aicf.ir.rows import find_row_outputs, find_varying_number
from aicf.opset import Type, type_of
from aicf.plan import Plan
from aicf.plan.data import STATE
from aicf.tensor import Tensor
from aicf.train.compiled import Compiled
from aicf.train.recipe import Bounds, Recipe

if TYPE_CHECKING:
    from aicf.ir import Graph

_log = logging.getLogger("aicf.train")
Key = tuple[Type, ...]
_MAX_REMEMBERED = 4096


@dataclass(frozen=True)
class Served:
    """How a call is served: by a program, as it is (``rows`` is None) or with as many rows of a larger number."""

    program: Compiled
    rows: int | None = None
    row_outputs: tuple[bool, ...] = ()


class Variants:
    """The programs of other shapes than ``first`` was compiled for."""

    def __init__(self, first: Compiled, recipe: Recipe, bounds: Bounds, *, pads_rows: bool) -> None:
        self._first, self._recipe, self._bounds, self._pads_rows = first, recipe, bounds, pads_rows
        self._first_types = first.plan.given_types
        self._kept: OrderedDict[Key, Compiled] = OrderedDict()
        self._served: dict[Key, Served] = {}
        self._dropped: set[Key] = set()

    @classmethod
    def of(cls, first: Compiled, recipe: Recipe, *, pads_rows: bool) -> Variants | None:
        """Return a program's variants; None where none may be kept: other shapes are refused then."""
        bounds = recipe.options.bounds
        return cls(first, recipe, bounds, pads_rows=pads_rows) if bounds.num_plans else None

    @property
    def num_bytes(self) -> int:
        """The bytes of all plans that are kept, without states."""
        return sum(_count_bytes(each.plan) for each in self._kept.values())

    @property
    def shapes(self) -> list[str]:
        """The inputs of the plans that are kept, the last used one at the end."""
        return [_name(key) for key in self._kept]

    def run(self, arrays: Sequence[Any]) -> tuple[Tensor, ...]:
        """Run the plan for these arrays; raises ValueError for dtypes that the program was not compiled for."""
        served = self._find(tuple(type_of(a) for a in arrays))
        program = served.program
        is_foreign = program is not self._first and not program.shares_states
        if is_foreign:
            program.take_over()
        outputs = program.run(arrays) if served.rows is None else program.run_leading(arrays, served.rows, served.row_outputs)
        if is_foreign and program.writes_states:
            self._first.take_over()
        return outputs

    def _find(self, types: Key) -> Served:
        served = self._served.get(types)
        if served is None:
            if len(self._served) >= _MAX_REMEMBERED:
                self._served.clear()
            served = self._served[types] = self._serve(types)
        key = served.program.plan.given_types
        if key in self._kept:
            self._kept.move_to_end(key)
        return served

    def _serve(self, types: Key) -> Served:
        for i, (mine, theirs) in enumerate(zip(self._first_types, types, strict=True)):
            if mine.dtype != theirs.dtype:
                raise ValueError(f"{self._first.plan.name}: x{i}: compiled for {mine}, got {theirs}; cast it to {mine.dtype}")
        padded, row_outputs, why = self._pad(types)
        program = self._first if padded == self._first_types else self._kept.get(padded)
        if program is None:
            program = self._compile(padded, f"{_name(types)} was called, {why}")
        return Served(program) if padded == types else Served(program, _count_rows(types, self._first_types), row_outputs)

    # ---- padding

    def _pad(self, types: Key) -> tuple[Key, tuple[bool, ...], str]:
        """Return the types to compile for, which outputs have rows, and why rows are padded or not."""
        if not self._pads_rows:
            return types, (), "and a step is compiled for each shape"
        changed = [i for i, (a, b) in enumerate(zip(types, self._first_types, strict=True)) if a != b]
        rows, first_rows = _count_rows(types, self._first_types), _count_rows(self._first_types, types)
        if rows is None or first_rows is None:
            return types, (), "which differs in more than the number of rows"
        wanted = _round_up(rows, first_rows)
        padded = tuple(t.reshape((wanted, *t.shape[1:])) if i in changed else t for i, t in enumerate(types))
        if wanted == rows:
            return types, (), "with rows that are not padded"
        exact, more = (self._recipe.record(each).graph for each in (types, padded))
        found = find_varying_number(exact, more) or find_row_outputs(more, _find_inputs(more, changed))
        if isinstance(found, str):
            return types, (), f"whose rows cannot be padded: {found}"
        return padded, tuple(found), f"padded from {rows} to {wanted} rows"

    # ---- the cache

    def _compile(self, types: Key, why: str) -> Compiled:
        again = types in self._dropped
        remark = "; it was dropped before to keep within bounds: raise cache_plans or cache_bytes" if again else ""
        _log.log(logging.WARNING if again else logging.INFO, "%s: compiled for %s: %s%s", self._first.plan.name, _name(types), why, remark)
        made = self._recipe.make(self._recipe.record(types))
        self._make_room(_count_bytes(made.plan), types)
        first = self._first
        # A copy of a run has random counters of its own.
        tensors = {key: first.tensors.get(key, tensor) for key, tensor in made.tensors.items()}
        program = type(first)(made.plan, tensors, made.recorded, made.graph, made.log, first)
        self._kept[types] = program
        return program

    def _make_room(self, num_bytes: int, types: Key) -> None:
        """Drop the programs that were used longest ago until one more of that size is within bounds."""
        limit = self._bounds.num_bytes
        if limit is not None and num_bytes > limit:
            raise PlanError(f"{self._first.plan.name}: the plan for {_name(types)} needs {num_bytes} bytes, more than cache_bytes={limit}")
        while len(self._kept) >= self._bounds.num_plans or (limit is not None and self.num_bytes + num_bytes > limit):
            key, dropped = self._kept.popitem(last=False)
            self._served = {t: served for t, served in self._served.items() if served.program is not dropped}
            self._dropped.add(key)
            _log.info("%s: dropped the plan for %s, which was used longest ago", self._first.plan.name, _name(key))


def _find_inputs(graph: Graph, places: Sequence[int]) -> list[int]:
    return [graph.inputs[i][1].id for i in places]


def _count_rows(types: Key, others: Key) -> int | None:
    """Return the number of rows of those types that differ from others in nothing else; None where there is no one number."""
    found = set()
    for own, other in zip(types, others, strict=True):
        if own != other:
            if not own.shape or own.shape[1:] != other.shape[1:] or len(own.shape) != len(other.shape):
                return None
            found.add(own.shape[0])
    return found.pop() if len(found) == 1 else None


def _round_up(rows: int, first: int) -> int:
    """Return the next power of two, or the rows that the program was compiled for where these are fewer."""
    power = 1 << max(rows - 1, 0).bit_length()
    return min(power, first) if first >= rows > 0 else power if rows > 0 else rows


def _count_bytes(plan: Plan) -> int:
    return sum(size for region, size in plan.sizes.items() if region != STATE)


def _name(types: Key) -> str:
    return ", ".join(map(str, types))
