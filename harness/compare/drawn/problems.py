"""Drawing problems from an op's population: a function of op, seed and number, the same on every machine.

Each group has a stream of its own, seeded by op, group and seed, so that a group that is added or removed moves no other's problems; and
groups take turns by their weights, so that the first of many problems are those that fewer would be, and a run that is cut short has met
every group.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.spec import Group, LogRange, Op, Problem, SpecError
from harness.spec.conditions import Facts

_MAX_TRIES = 2000
_T = TypeVar("_T")


@dataclass(frozen=True)
class DrawnProblem:
    """A problem and the group that it was drawn from."""

    group: Group
    problem: Problem


def draw_problems(op: Op, count: int, seed: int, groups: Sequence[str] = ()) -> list[DrawnProblem]:
    """Return ``count`` different problems, none of which the op lists itself; of the groups that are named, or of all.

    Raises :class:`SpecError` where the op has no population or no such group, or a group gives no further problem.
    """
    if op.population is None:
        raise SpecError(f"op {op.name} has no population to draw from: give its op.py one (docs/adding-an-op.md)")
    known = [g.name for g in op.population.groups]
    if unknown := sorted(set(groups) - set(known)):
        raise SpecError(f"--group {unknown[0]}: the population of {op.name} has no such group; it has: {', '.join(known)}")
    seen = {identify(op, p) for p in op.problems}
    streams = {g.name: random.Random(f"{op.name}/{g.name}/{seed}") for g in op.population.groups}
    drawn: list[DrawnProblem] = []
    turns = _take_turns([g for g in op.population.groups if not groups or g.name in groups])
    while len(drawn) < count:
        group = next(turns)
        drawn.append(DrawnProblem(group, _draw_new(op, group, streams[group.name], seen)))
    return drawn


def identify(op: Op, problem: Problem) -> tuple[Any, ...]:
    """Return what makes two problems the same: sizes, attributes and scalars with the defaults filled in, and strides."""
    padding = {k: v for k, v in problem.padding.items() if v}
    parts = (problem.sizes, op.attribute_values(problem), padding, op.scalar_values(problem), problem.orders)
    return tuple(tuple(sorted(values.items())) for values in parts)


def _take_turns(groups: Sequence[Group]) -> Iterator[Group]:
    """Yield groups for ever, each as often as its weight says, those of one round as far apart as they can be."""
    rounds = max(g.weight for g in groups)
    while True:
        for turn in range(rounds):
            yield from (g for g in groups if g.weight > turn)


def _draw_new(op: Op, group: Group, stream: random.Random, seen: set[tuple[Any, ...]]) -> Problem:
    for _ in range(_MAX_TRIES):
        problem = _draw(op, group, stream)
        if problem is not None and (key := identify(op, problem)) not in seen:
            seen.add(key)
            return problem
    raise SpecError(f"op {op.name}, group {group.name}: {_MAX_TRIES} draws gave no new problem that fits the group; widen its ranges")


def _draw(op: Op, group: Group, stream: random.Random) -> Problem | None:
    """Draw once; None where the group does not keep it, or the op's ties leave nothing of the op."""
    sizes: dict[str, int] = {}
    for name, rule in group.sizes.items():
        if isinstance(rule, LogRange):
            sizes[name] = rule.pick(stream.random())
        else:
            sizes[name] = _pick(stream, rule) if isinstance(rule, tuple) else rule(sizes)
    attributes = {name: _pick(stream, values) for name, values in group.attributes.items()}
    padding = {name: _pick(stream, values) for name, values in group.padding.items()}
    scalars = {name: _pick(stream, values) for name, values in group.scalars.items()}
    orders = {name: _pick(stream, values) for name, values in group.orders.items()}
    if not group.keep(sizes):
        return None
    defaults = {a.name: a.default for a in op.attributes}
    agreed = op.settle(sizes, defaults | attributes)
    given = {name: value for name, value in agreed.attributes.items() if name in attributes or value != defaults[name]}
    usual = {s.name: s.default for s in op.scalars}
    problem = Problem(
        agreed.sizes,
        given,
        {t: pad for t, pad in padding.items() if pad and _is_present(op, t, agreed)},
        frozenset({"drawn"}),
        scalars={name: value for name, value in scalars.items() if value != usual[name]},
        orders={t: order for t, order in orders.items() if order != tuple(range(len(order))) and _is_present(op, t, agreed)},
    )
    op.check_problem(problem)
    return problem


def _is_present(op: Op, tensor: str, agreed: Facts) -> bool:
    return next(t for t in op.tensors if t.name == tensor).present(Problem(agreed.sizes, agreed.attributes))


def _pick(stream: random.Random, values: Sequence[_T]) -> _T:
    # Random.choice may take another way through the stream in another version of Python.
    return values[int(stream.random() * len(values))]


def describe_problem(problem: Problem) -> Mapping[str, Any]:
    """Return a problem as plain values; :func:`read_problem` reads them."""
    rare = {"scalars": dict(problem.scalars), "orders": {name: list(order) for name, order in problem.orders.items()}}
    padding = {name: list(pad) if isinstance(pad, tuple) else pad for name, pad in problem.padding.items()}
    row = {"sizes": dict(problem.sizes), "attributes": dict(problem.attributes), "padding": padding}
    return row | {name: values for name, values in rare.items() if values}


def read_problem(row: Mapping[str, Any]) -> Problem:
    """Return what :func:`describe_problem` wrote."""
    padding = {name: tuple(pad) if isinstance(pad, list) else pad for name, pad in row["padding"].items()}
    orders = {name: tuple(order) for name, order in row.get("orders", {}).items()}
    return Problem(row["sizes"], row["attributes"], padding, frozenset({"drawn"}), scalars=row.get("scalars", {}), orders=orders)
