"""Unmeasured problems: drawn from an op's population, or around the problems that it is benched on."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

from contract.calls import Problem, Query, Stride
from contract.decision import DecisionCore
from harness.compare.drawn.problems import draw_problems
from harness.spec import AttributeValue, Op

# What keeps a drawn problem affordable: its operands fit many times over, and the slowest fallback takes well under a second.
_MAX_BYTES = 1 << 30
_MAX_FLOPS = 1.2e12

_Drawn = tuple[Mapping[str, int], Mapping[str, AttributeValue], Mapping[str, Stride]]


def draw_unmeasured(op: Op, core: DecisionCore, count: int, seed: int) -> list[Query]:
    """Return ``count`` different problems whose sizes and attributes have no median in the index, and which some kernel serves.

    They are drawn from the op's population; if it has none, around the problems of suite ``bench``.
    """
    found: dict[tuple[object, ...], Query] = {}
    for sizes, attributes, strides in _draw(op, count, seed):
        if len(found) == count:
            break
        known = {name: value for name, value in attributes.items() if name in core.table.names.attributes}
        query = core.interface.make_query(Problem(sizes, known, strides))
        asked = core.ask(query)
        is_affordable = asked.num_bytes <= _MAX_BYTES and asked.flops <= _MAX_FLOPS
        if asked.legal and is_affordable and not core.list_exact_times(asked):
            found.setdefault((query.sizes, query.values, *query.strides.items()), query)
    return list(found.values())


def _draw(op: Op, count: int, seed: int) -> Iterator[_Drawn]:
    if op.population is not None:
        drawn = (d.problem for d in draw_problems(op, 2 * count, seed))
        yield from ((p.sizes, op.attribute_values(p), op.find_facts(p).strides) for p in drawn)
        return
    generator = random.Random(seed)
    yield from (_draw_neighbour(op, generator) for _ in range(100 * count))


def _draw_neighbour(op: Op, generator: random.Random) -> _Drawn:
    """Return a bench problem with every size times a factor of 1/2 to 2, drawn evenly over its logarithm.

    Three in four are rounded to multiples of 8 where the size is at least 8, as sizes in use mostly are.
    """
    base = generator.choice(op.select_problems("bench"))
    is_round = generator.random() < 0.75
    return {name: _draw_size(size, is_round, generator) for name, size in base.sizes.items()}, op.attribute_values(base), {}


def _draw_size(size: int, is_round: bool, generator: random.Random) -> int:
    drawn = max(1, round(size * math.exp2(generator.uniform(-1, 1))))
    return drawn // 8 * 8 if is_round and drawn >= 8 else drawn
