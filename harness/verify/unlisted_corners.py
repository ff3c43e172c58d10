"""Problems in which one thing is special and nothing else is: sizes that are equal, one tensor alone whose base address is not aligned.

Where everything is drawn at once, what two things do together is met by luck. These are dealt one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness.spec import Op, Problem
from harness.verify.unlisted import find_unit, list_kinds, make_generator, settle_sizes

# Rows of some length, of several blocks and vectors; other sizes are small, so that the whole stays cheap.
_LONG = (129, 384)
_SHORT = (3, 16)
_EQUAL = (17, 120)
_STEP = 8  # what is asked of rows is often asked of sizes
_MAX_TRIES = 8


def draw_corner_problems(op: Op, seed: int, max_bytes: float, max_flops: float) -> list[list[Problem]]:
    """Return problems of at most ``max_bytes`` and ``max_flops``: a group for each thing that is special, in all kinds of attributes.

    A variant may serve a few of these kinds, and is to meet each thing.
    """
    rng = make_generator(op, "corners", seed)
    kinds = list_kinds(op, "verify")
    limits = {name: max(p.sizes.get(name, 1) for p in op.problems) for name in (kinds[0].sizes if kinds else ())}
    tensors, names = {t.name: t for t in op.tensors}, {p.name for p in op.problems}
    found = []
    for way in _list_ways(op):
        bases = [k for k in (kinds[int(i)] for i in rng.permutation(len(kinds))) if not way[0] or tensors[way[0]].present(k)]
        drawn = (_draw(op, rng, base, way, limits, max_bytes, max_flops) for base in bases)
        found.append(list({p.name: p for p in drawn if p is not None and p.name not in names}.values()))
    return found


def _list_ways(op: Op) -> list[tuple[str, int]]:
    """Return a tensor's name and a share of a vector by which its address is off, 0 for an odd element; no name is for equal sizes."""
    has_several = any(len(p.sizes) > 1 for p in op.problems)
    equal = [("", 1), ("", _STEP)] if has_several else []
    return [*equal, *((tensor.name, share) for share in (0, 2) for tensor in op.tensors)]


def _draw(
    op: Op, rng: np.random.Generator, base: Problem, way: tuple[str, int], limits: Mapping[str, int], max_bytes: float, max_flops: float
) -> Problem | None:
    name, share = way
    tensor = next((t for t in op.tensors if t.name == name), None)
    shape = () if tensor is None else tensor.name_sizes(base)
    for shrink in range(_MAX_TRIES):
        if tensor is None:
            sizes = _draw_equal(rng, share, shrink, limits)
        else:
            sizes = {n: _draw_multiple(rng, _LONG if shape and n == shape[-1] else _SHORT, shrink) for n in base.sizes}
        problem = settle_sizes(op, base, sizes)
        if problem is None or (cost := op.cost(problem)).bytes_moved > max_bytes or cost.flops > max_flops:
            continue
        if tensor is None:
            return problem
        unit = find_unit(tensor, problem)
        off = unit // 2 if share else 1 + 2 * int(rng.integers(max(unit // 2, 1)))
        return replace(problem, offsets={name: off}) if off % unit else None
    return None


def _draw_equal(rng: np.random.Generator, step: int, shrink: int, limits: Mapping[str, int]) -> dict[str, int]:
    """Return sizes that are equal where the op's problems leave room; others, of heads say, are as large as they may be, or small."""
    low, high = _EQUAL
    room = min((limit for limit in limits.values() if limit >= low), default=low)
    size = int(rng.integers(low, max(min(high >> shrink, room), low) + 1))
    # Odd, or a multiple of the step.
    size = max(size // step, 1) * step if step > 1 else size - 1 + size % 2
    return {name: size if limit >= low else min(2, limit) for name, limit in limits.items()}


def _draw_multiple(rng: np.random.Generator, span: tuple[int, int], shrink: int) -> int:
    low, high = (max(bound >> shrink, 1) for bound in span)
    return -(-int(rng.integers(low, high + 1)) // _STEP) * _STEP
