"""Problems that nothing was measured on: an op's population, or drawn around those that it is benched on."""

from __future__ import annotations

import math
import random
from typing import Any

from aicf.registry import Problem
from aicf.registry.tables import Tables
from harness.discover import find_op
from harness.drawn.drawing import draw_problems as draw_from_population
from harness.spec import Op

# What keeps a drawn problem affordable: its operands fit many times over, and the slowest fallback takes well under a second.
_MAX_BYTES = 1 << 30
_MAX_FLOPS = 1.2e12


def draw_problems(op: str, tables: Tables, count: int, seed: int) -> list[Problem]:
    """Return ``count`` different problems whose sizes and attributes have no median in the index, and which some kernel serves.

    They are drawn from the op's population, without its row strides; where it has none around the problems of suite ``bench``.
    """
    spec = find_op(op).op
    generator = random.Random(seed)
    drawn = (
        ((d.problem.sizes, spec.attribute_values(d.problem)) for d in draw_from_population(spec, 2 * count, seed))
        if spec.population is not None
        else (_draw_neighbour(spec, generator) for _ in range(100 * count))
    )
    known = {a["name"] for a in tables.interface.attributes}
    found: dict[Any, Problem] = {}
    for sizes, attributes in drawn:
        if len(found) == count:
            break
        problem = Problem(sizes, {n: v for n, v in attributes.items() if n in known})
        query = tables.interface.make_query(problem)
        work = tables.cost.find(query)
        key = (query.sizes, query.values)
        is_served = tables.find_legal(query) != 0
        if is_served and key not in tables.exact and work.num_bytes <= _MAX_BYTES and work.flops <= _MAX_FLOPS:
            found.setdefault(key, problem)
    return list(found.values())


def _draw_neighbour(spec: Op, generator: random.Random) -> tuple[dict[str, int], dict[str, Any]]:
    """Return a bench problem with every size times a factor of 1/2 to 2, drawn evenly over its logarithm.

    Three in four are rounded to multiples of 8 where the size is at least 8, as sizes in use mostly are.
    """
    base = generator.choice(spec.select_problems("bench"))
    is_round = generator.random() < 0.75
    return {name: _draw_size(size, is_round, generator) for name, size in base.sizes.items()}, dict(spec.attribute_values(base))


def _draw_size(size: int, is_round: bool, generator: random.Random) -> int:
    drawn = max(1, round(size * math.exp2(generator.uniform(-1, 1))))
    return drawn // 8 * 8 if is_round and drawn >= 8 else drawn
