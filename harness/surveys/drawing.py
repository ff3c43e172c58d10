"""Problems that nothing was measured on: of an op's population, or where it has none around those that it is benched on."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from contract.calls import Problem, Query
from contract.decision import DecisionCore
from harness.compare.drawn.drawing import draw_problems
from harness.domain import AttributeValue
from harness.spec import Op

# What keeps a drawn problem affordable: its operands fit many times over, and the slowest fallback takes well under a second.
_MAX_BYTES = 1 << 30
_MAX_FLOPS = 1.2e12
_Sample = tuple[dict[str, int], dict[str, AttributeValue]]


def draw_unmeasured(op: Op, core: DecisionCore, count: int, seed: int) -> list[Query]:
    """Return ``count`` different problems whose sizes and attributes have no median in the index, and which some kernel serves.

    They are drawn from the op's population, without its row strides, or around its problems of suite ``bench``.
    """
    drawn = _draw_population(op, 2 * count, seed) if op.population is not None else _draw_neighbours(op, 100 * count, seed)
    found: dict[tuple[object, ...], Query] = {}
    for sizes, values in drawn:
        if len(found) == count:
            break
        attributes = {name: value for name, value in values.items() if name in core.table.names.attributes}
        query = core.interface.make_query(Problem(sizes, attributes))
        asked = core.ask(query)
        is_affordable = asked.num_bytes <= _MAX_BYTES and asked.flops <= _MAX_FLOPS
        if asked.legal and is_affordable and not core.list_exact_times(asked):
            found.setdefault((query.sizes, query.values), query)
    return list(found.values())


def _draw_population(op: Op, count: int, seed: int) -> Iterator[_Sample]:
    for drawn in draw_problems(op, count, seed):
        yield dict(drawn.problem.sizes), dict(op.attribute_values(drawn.problem))


def _draw_neighbours(op: Op, count: int, seed: int) -> Iterator[_Sample]:
    """Yield bench problems with every size times a factor of 1/2 to 2, drawn evenly over its logarithm.

    Three in four are rounded to multiples of 8 where the size is at least 8, as sizes in use mostly are.
    """
    bench = op.select_problems("bench")
    generator = random.Random(seed)
    for _ in range(count):
        base = generator.choice(bench)
        is_round = generator.random() < 0.75
        yield {name: _draw_size(size, is_round, generator) for name, size in base.sizes.items()}, dict(op.attribute_values(base))


def _draw_size(size: int, is_round: bool, generator: random.Random) -> int:
    drawn = max(1, round(size * math.exp2(generator.uniform(-1, 1))))
    return drawn // 8 * 8 if is_round and drawn >= 8 else drawn
