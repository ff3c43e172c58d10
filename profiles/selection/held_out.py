"""Problems that nothing was measured on, drawn around those that an op is benched on."""

from __future__ import annotations

import math
import random
from typing import Any

from aicf.registry import Problem
from aicf.registry.tables import Tables
from harness.discover import find_op

# What keeps a drawn problem affordable: its operands fit many times over, and the slowest fallback takes well under a second.
_MAX_BYTES = 1 << 30
_MAX_FLOPS = 1.2e12


def draw_problems(op: str, tables: Tables, count: int, seed: int) -> list[Problem]:
    """Return ``count`` different problems whose sizes and attributes have no median in the index, and which some kernel serves.

    Each is one of the op's problems of suite ``bench`` with every size times a factor of 1/2 to 2, drawn evenly over its logarithm; three
    in four are rounded to multiples of 8 where the size is at least 8, as sizes in use mostly are.
    """
    spec = find_op(op).op
    bench = spec.select_problems("bench")
    generator = random.Random(seed)
    found: dict[Any, Problem] = {}
    for _ in range(100 * count):
        if len(found) == count:
            break
        base = generator.choice(bench)
        is_round = generator.random() < 0.75
        sizes = {name: _draw_size(size, is_round, generator) for name, size in base.sizes.items()}
        known = {a["name"] for a in tables.interface.attributes}
        problem = Problem(sizes, {n: v for n, v in spec.attribute_values(base).items() if n in known})
        query = tables.interface.make_query(problem)
        work = tables.cost.find(query)
        key = (query.sizes, query.values)
        is_served = tables.find_legal(query) != 0
        if is_served and key not in tables.exact and work.num_bytes <= _MAX_BYTES and work.flops <= _MAX_FLOPS:
            found.setdefault(key, problem)
    return list(found.values())


def _draw_size(size: int, is_round: bool, generator: random.Random) -> int:
    drawn = max(1, round(size * math.exp2(generator.uniform(-1, 1))))
    return drawn // 8 * 8 if is_round and drawn >= 8 else drawn
