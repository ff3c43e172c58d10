"""Problems that an op does not list, as large as its bench problems, or too large for 32-bit indices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from harness.spec import Op, Problem, Role, Tensor
from harness.spec.dtypes import find_dtype
from harness.verify.unlisted import Deck, find_unit, list_kinds, make_generator, settle_sizes

# Indices of 32 bits overflow beyond this many elements, signed or not.
_BEYOND_INDEX = 2**32
# Lengths of rows of so many elements: accesses of 16 bytes are fewer than 2^32, those of single elements are not.
_WHOLE_ROW, _ODD_ROW = 1024, 1021
# Whole numbers beyond this have no fp32 of their own.
_BEYOND_FLOAT = 2**24
# Results of a problem with such indices: more are no few numbers that are searched for.
_MOST_RESULTS = 16
# A size where blocks go round and round, and all of them can be run.
_MANY = 33 * 2**12
# What other sizes are beside one that is so large: of one class alone the loss is always 0. An op of many sizes has a product of them.
_BESIDE, _BESIDE_MANY = (2, 3), (1, 2)
# What is run whole is small: then the others are 1.
MOST_MANY_BYTES = 8e6
# Of sizes beyond this, no more than twice as large a one is drawn: blocks that take a part each would be too much work.
_WIDE = 2**22
# An op of more sizes than this has groups for a few of them in each way: for others in the next.
_MOST_STRETCHED, _FEW_STRETCHED = 5, 3


@dataclass(frozen=True)
class LargeProblems:
    """Problems as large as the op's bench problems, of which a part is run and judged. Of some there are several groups.

    ``stretched`` has one for each size (of many, for some in turn) that alone is a power of two as large as any that is benched, ``beyond``
    those in which it is larger, ``many`` those in which it is over twice 2^16 and all blocks can be run. ``bench`` are the
    bench problems themselves, ``distant`` those with row strides beyond indices of 32 bits, ``vast`` and ``odd`` those with more elements
    than such indices can tell apart, in rows of whole accesses of 16 bytes and others. ``searches`` are those whose results are places
    beyond the whole numbers of fp32, the smaller ones first.
    """

    stretched: list[list[Problem]]
    beyond: list[list[Problem]]
    many: list[list[Problem]]
    bench: list[Problem]
    distant: list[Problem]
    vast: list[Problem]
    odd: list[Problem]
    searches: list[list[Problem]]


def draw_large_problems(op: Op, seed: int) -> LargeProblems:
    """Return the large problems of an op, the same on every machine."""
    rng = make_generator(op, "large", seed)
    bench = _shuffle(rng, op.select_problems("bench"))
    most = _find_largest(op)
    deck = Deck(make_generator(op, "stretched", seed), len(most))
    groups = {way: [_stretch(op, rng, name, most[name], way) for name in _deal_names(deck, most)] for way in _Way}
    stretched, beyond, many = groups[_Way.POWER], groups[_Way.MORE], groups[_Way.MANY]
    # The last the other way round, so that of two tensors both have their turn.
    vast, odd = _draw_vast(op, rng, _WHOLE_ROW), _draw_vast(op, rng, _ODD_ROW)[::-1]
    return LargeProblems(stretched, beyond, many, bench, _draw_distant(op, rng), vast, odd, _draw_searches(op, seed))


def _draw_searches(op: Op, seed: int) -> list[list[Problem]]:
    """Return problems whose results are places beyond the whole numbers of fp32, in groups: one for each size that alone is so large.

    The smaller ones come first. An op whose results are no integers, or may be what its inputs hold, has none.
    """
    rng = make_generator(op, "searches", seed)
    kinds = [base for base in _shuffle(rng, list_kinds(op, "verify")) if any(_is_index(op, t, base) for t in op.outputs)]
    found: list[list[Problem]] = []
    for name in sorted({name for base in kinds for name in base.sizes}):
        group = []
        for base in kinds:
            # Even, so that the last place is odd.
            size = _BEYOND_FLOAT + 2 * int(rng.integers(1, 4096))
            problem = _enlarge(op, base, name, size, dict.fromkeys(base.sizes, 1))
            if problem is not None and _has_few_results(op, problem):
                group.append(problem)
        found.append(sorted(group, key=lambda p: op.cost(p).bytes_moved))
    return [group for group in found if group]


def _has_few_results(op: Op, problem: Problem) -> bool:
    return all(math.prod(t.resolve_shape(problem)) <= _MOST_RESULTS for t in op.outputs if t.present(problem))


def _is_index(op: Op, tensor: Tensor, problem: Problem) -> bool:
    if tensor.role is not Role.OUTPUT or not tensor.present(problem):
        return False
    dtype = tensor.resolve_dtype(problem)
    return find_dtype(dtype).kind in "iu" and all(t.resolve_dtype(problem) != dtype for t in op.inputs if t.present(problem))


def _shuffle(rng: np.random.Generator, problems: Sequence[Problem]) -> list[Problem]:
    return [problems[int(i)] for i in rng.permutation(len(problems))]


def _find_largest(op: Op) -> dict[str, int]:
    listed = op.select_problems("bench") or op.problems
    return {name: max(p.sizes.get(name, 1) for p in listed) for name in listed[0].sizes}


def _enlarge(op: Op, base: Problem, name: str, size: int, others: Mapping[str, int]) -> Problem | None:
    """Return a problem with the attributes of ``base`` in which one size is large; None where it follows from the others."""
    problem = settle_sizes(op, base, dict(others) | {name: size})
    return problem if problem is not None and problem.sizes[name] == size else None


def _deal_names(deck: Deck, most: Mapping[str, int]) -> list[str]:
    """Return the sizes that are stretched in one way: all, or some in turn where an op has many."""
    names = list(most)
    return names if len(names) <= _MOST_STRETCHED else [names[i] for i in sorted(deck.deal() for _ in range(_FEW_STRETCHED))]


class _Way(Enum):
    """How large a size is: a power of two, the largest up to any that is benched; larger than those; or over twice 2^16."""

    POWER = auto()
    MORE = auto()
    MANY = auto()


def _stretch(op: Op, rng: np.random.Generator, name: str, most: int, way: _Way) -> list[Problem]:
    """Return problems with one large size in all kinds of the op's attributes; ``most`` is the largest that is benched.

    Beyond that, where they may be run whole, those with the most outputs come first.
    """
    group = []
    is_beyond = way in (_Way.MORE, _Way.MANY)
    for base in _shuffle(rng, list_kinds(op, "verify")):
        span = _BESIDE if len(base.sizes) <= _MOST_STRETCHED else _BESIDE_MANY
        small = {other: int(rng.integers(*span, endpoint=True)) if is_beyond else 8 for other in base.sizes}
        more = int(rng.integers(most, most * (2 if most > _WIDE else 4), endpoint=True))
        many = int(rng.integers(_MANY, _MANY + _MANY // 32, endpoint=True))
        size = {_Way.POWER: 1 << (most.bit_length() - 1), _Way.MORE: more, _Way.MANY: many}[way]
        problem = _enlarge(op, base, name, size, small)
        if way is _Way.MANY and problem is not None and op.cost(problem).bytes_moved > MOST_MANY_BYTES:
            problem = _enlarge(op, base, name, size, dict.fromkeys(small, 1))
        group.append(problem)
    found = [p for p in group if p is not None]
    return sorted(found, key=lambda p: -sum(t.present(p) for t in op.outputs)) if is_beyond else found


def _draw_distant(op: Op, rng: np.random.Generator) -> list[Problem]:
    """Return problems of few elements whose last row begins more than 2^32 elements behind the first."""
    found = []
    for base in _shuffle(rng, list_kinds(op, "verify")):
        sizes = {name: 8 * int(rng.integers(1, 4, endpoint=True)) for name in base.sizes}
        problem = settle_sizes(op, base, sizes)
        if problem is None:
            continue
        padding: dict[str, int | tuple[int, ...]] = {}
        for tensor in op.tensors:
            shape = tensor.resolve_shape(problem) if tensor.present(problem) else ()
            unit = find_unit(tensor, problem) if shape else 1
            if tensor.can_pad_rows and math.prod(shape[:-1]) > 1:
                stride = -(-_BEYOND_INDEX // (math.prod(shape[:-1]) - 1)) + int(rng.integers(1, 1024))
                padding[tensor.name] = -(-stride // unit) * unit - shape[-1]
            elif tensor.is_strided and len(shape) > 1 and shape[0] > 1:
                inner = math.prod(shape[1:])
                stride = -(-_BEYOND_INDEX // (shape[0] - 1)) + int(rng.integers(1, 1024))
                padding[tensor.name] = (max(-(-stride // unit) * unit - inner, 0), *(0 for _ in shape[1:]))
        if padding:
            found.append(replace(problem, padding=padding))
    return found


def _draw_vast(op: Op, rng: np.random.Generator, length: int) -> list[Problem]:
    """Return problems of which a tensor has more than 2^32 elements, in rows of moderate ``length``."""
    found = []
    for base in _shuffle(rng, list_kinds(op, "verify")):
        for names in dict.fromkeys(tensor.name_sizes(base) for tensor in op.tensors if tensor.present(base)):
            if len(names) != 2:
                continue
            rows, columns = names
            if isinstance(rows, int) or isinstance(columns, int):
                continue
            sizes = dict.fromkeys(base.sizes, 64)
            sizes[columns] = length
            sizes[rows] = _BEYOND_INDEX // length + 8 * int(rng.integers(1, 128))
            found.append(settle_sizes(op, base, sizes))
    return [p for p in found if p is not None]
