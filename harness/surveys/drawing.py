"""Problems that nothing was measured on, drawn around those that an op is benched on."""

from __future__ import annotations

import math
import random

from contract.calls import Problem, Query
from contract.decision import DecisionCore
from harness.spec import Op

# What keeps a drawn problem affordable: its operands fit many times over, and the slowest fallback takes well under a second.
_MAX_BYTES = 1 << 30
_MAX_FLOPS = 1.2e12


def draw_neighbours(op: Op, core: DecisionCore, count: int, seed: int) -> list[Query]:
    """Return ``count`` different problems whose sizes and attributes have no median in the index, and which some kernel serves.

    Each is one of the op's problems of suite ``bench`` with every size times a factor of 1/2 to 2, drawn evenly over its logarithm; three
    in four are rounded to multiples of 8 where the size is at least 8, as sizes in use mostly are.
    """
    bench = op.select_problems("bench")
    generator = random.Random(seed)
    found: dict[tuple[object, ...], Query] = {}
    for _ in range(100 * count):
        if len(found) == count:
            break
        base = generator.choice(bench)
        is_round = generator.random() < 0.75
        sizes = {name: _draw_size(size, is_round, generator) for name, size in base.sizes.items()}
        attributes = {name: value for name, value in op.attribute_values(base).items() if name in core.table.names.attributes}
        query = core.interface.make_query(Problem(sizes, attributes))
        asked = core.ask(query)
        is_affordable = asked.num_bytes <= _MAX_BYTES and asked.flops <= _MAX_FLOPS
        if asked.legal and is_affordable and not core.list_exact_times(asked):
            found.setdefault((query.sizes, query.values), query)
    return list(found.values())


def _draw_size(size: int, is_round: bool, generator: random.Random) -> int:
    drawn = max(1, round(size * math.exp2(generator.uniform(-1, 1))))
    return drawn // 8 * 8 if is_round and drawn >= 8 else drawn
