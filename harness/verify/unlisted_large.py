"""Problems that an op does not list, as large as its bench problems, or too large for 32-bit indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.spec import Op, Problem
from harness.verify.unlisted import find_unit, list_kinds, make_generator, settle_sizes

# Indices of 32 bits overflow beyond this many elements, signed or not.
_BEYOND_INDEX = 2**32
# Of sizes beyond this, no more than twice as large a one is drawn: blocks that take a part each would be too much work.
_WIDE = 2**22


def draw_large_problems(op: Op, seed: int) -> list[list[Problem]]:
    """Return problems as large as the op's bench problems, of which a part is run and judged, in groups.

    A group for each size and each way in which it alone is as large as any that is benched, then the bench problems themselves, those
    with row strides beyond indices of 32 bits, and those with more elements than such indices can tell apart.
    """
    rng = make_generator(op, "large", seed)
    bench = _shuffle(rng, op.select_problems("bench"))
    return [*_draw_stretched(op, rng), bench, _draw_distant(op, rng), _draw_vast(op, rng)]


def _shuffle(rng: np.random.Generator, problems: Sequence[Problem]) -> list[Problem]:
    return [problems[int(i)] for i in rng.permutation(len(problems))]


def _find_largest(op: Op) -> dict[str, int]:
    listed = op.select_problems("bench") or op.problems
    return {name: max(p.sizes.get(name, 1) for p in listed) for name in listed[0].sizes}


def _draw_stretched(op: Op, rng: np.random.Generator) -> list[list[Problem]]:
    """Return problems with one large size: the largest that is benched, a power of two on the way there, and a larger one.

    Each group is one size and one of these, in all kinds of the op's attributes.
    """
    kinds = _shuffle(rng, list_kinds(op, "verify"))
    found = []
    for way in range(3):
        for name, most in _find_largest(op).items():
            group = []
            for base in _shuffle(rng, kinds):
                small = {other: int(rng.integers(1, 5, endpoint=True)) if way == 2 else 8 for other in base.sizes}
                power = 1 << int(rng.integers(max(most.bit_length() - 4, 1), most.bit_length()))
                size = (most, power, int(rng.integers(most, most * (2 if most > _WIDE else 4), endpoint=True)))[way]
                group.append(settle_sizes(op, base, small | {name: max(size, 1)}))
            found.append([p for p in group if p is not None])
    return found


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


def _draw_vast(op: Op, rng: np.random.Generator) -> list[Problem]:
    """Return problems of which a tensor has more than 2^32 elements, in rows of moderate length."""
    found = []
    for base in _shuffle(rng, list_kinds(op, "verify")):
        for names in dict.fromkeys(tensor.name_sizes(base) for tensor in op.tensors if tensor.present(base)):
            if len(names) != 2:
                continue
            rows, columns = names
            if isinstance(rows, int) or isinstance(columns, int):
                continue
            sizes = dict.fromkeys(base.sizes, 64)
            sizes[columns] = 1024
            sizes[rows] = _BEYOND_INDEX // 1024 + 8 * int(rng.integers(1, 128))
            found.append(settle_sizes(op, base, sizes))
    return [p for p in found if p is not None]
