"""Unmeasured problems: drawn from an op's population, or around the problems that it is benched on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from contract.calls import Problem, Query, Stride
from contract.decision import DecisionCore
from harness.compare.drawn.problems import draw_problems
from harness.errors import UseError
from harness.spec import AttributeValue, Op

# What keeps a drawn problem affordable: its operands fit many times over, and the slowest fallback takes well under a second.
_MAX_BYTES = 1 << 30
_MAX_FLOPS = 1.2e12
# So many are drawn for each that is wanted; where some are kept alone, of which there may be few.
_DRAWS, _FILTERED_DRAWS = 2, 50

_Drawn = tuple[Mapping[str, int], Mapping[str, AttributeValue], Mapping[str, Stride]]


def make_filter(op: Op, wanted: Sequence[str]) -> Callable[[Query], bool]:
    """Return what says whether a problem is as ``wanted``: all of "size=number", "size=least..most" (either may lack), "attribute=value".

    Raises :class:`UseError` for a name that is no size and no attribute of the op, for a value that the attribute cannot have, and for what
    is no number.
    """
    ranges: list[tuple[str, float, float]] = []
    values: list[tuple[str, str]] = []
    sizes, attributes = tuple(op.problems[0].sizes), {a.name: [str(choice) for choice in a.choices] for a in op.attributes}
    for each in wanted:
        name, equals, value = each.partition("=")
        if not equals or name not in (*sizes, *attributes):
            raise UseError(f"--where {each}: name=value, of the sizes {', '.join(sizes)} or the attributes {', '.join(attributes)}")
        if name in attributes:
            if value not in attributes[name]:
                raise UseError(f"--where {each}: {name} is one of {', '.join(attributes[name])}")
            values.append((name, value))
            continue
        least, _, most = value.partition("..") if ".." in value else (value, "", value)
        if not all(end == "" or end.isdecimal() for end in (least, most)):
            raise UseError(f"--where {each}: a number, or least..most, of which either may lack")
        ranges.append((name, int(least or 0), int(most) if most else math.inf))

    def keeps(query: Query) -> bool:
        given = dict(query.attributes)
        return all(least <= query.by_size[name] <= most for name, least, most in ranges) and all(str(given[n]) == v for n, v in values)

    return keeps


def draw_unmeasured(op: Op, core: DecisionCore, count: int, seed: int, keeps: Callable[[Query], bool] | None = None) -> list[Query]:
    """Return ``count`` different problems whose sizes and attributes have no median in the index, and which some kernel serves.

    They are drawn from the op's population; if it has none, around the problems of suite ``bench``. With ``keeps`` they are those of many
    more draws that it is true of, ``count`` or fewer.
    """
    found: dict[tuple[object, ...], Query] = {}
    for sizes, attributes, strides in _draw(op, count * (_DRAWS if keeps is None else _FILTERED_DRAWS), seed):
        if len(found) == count:
            break
        known = {name: value for name, value in attributes.items() if name in core.table.names.attributes}
        query = core.interface.make_query(Problem(sizes, known, strides))
        if keeps is not None and not keeps(query):
            continue
        asked = core.ask(query)
        is_affordable = asked.num_bytes <= _MAX_BYTES and asked.flops <= _MAX_FLOPS
        if asked.legal and is_affordable and not core.list_exact_times(asked):
            found.setdefault((query.sizes, query.values, *query.strides.items()), query)
    return list(found.values())


def _draw(op: Op, count: int, seed: int) -> Iterator[_Drawn]:
    if op.population is not None:
        drawn = (d.problem for d in draw_problems(op, count, seed))
        yield from ((p.sizes, op.attribute_values(p), op.find_facts(p).strides) for p in drawn)
        return
    generator = random.Random(seed)
    yield from (_draw_neighbour(op, generator) for _ in range(50 * count))


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
