"""The problems on which a loose kernel is verified and counted, derived from the sizes on which it is timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.errors import SpecError

Sizes = Mapping[str, int]
# One element, and numbers that are no multiple of a warp or tile, or one more; by how many sizes there are.
_ODD: Mapping[int, tuple[tuple[int, ...], ...]] = {
    1: ((1,), (31,), (257,), (1021,), (4100,)),
    2: ((1, 1), (7, 19), (65, 37), (33, 128), (130, 131)),
    3: ((1, 1, 1), (5, 7, 3), (33, 17, 65), (64, 65, 16), (70, 33, 40)),
}
_MORE = ((1, 1), (3, 5), (9, 4), (17, 8))
# What is counted on the emulated device beside ``bench``: so many operations or bytes at most.
_MAX_EMULATED = 8e6


def read_sizes(sizes: Any) -> tuple[dict[str, int], ...]:
    """Return the problems that are timed; raises SpecError for what is no size."""
    listed = [sizes] if isinstance(sizes, Mapping) else list(sizes) if isinstance(sizes, Sequence) and not isinstance(sizes, str) else []
    if not listed or not all(isinstance(s, Mapping) and s for s in listed):
        raise SpecError('sizes: give a dict such as {"n": 1 << 20}, or a list of them for several problems')
    names = tuple(listed[0])
    for each in listed:
        if set(each) != set(names):
            raise SpecError(f"sizes: {dict(each)} has other names than {dict(listed[0])}; each problem names all sizes")
        for name, size in each.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise SpecError(f"sizes: {name!r} is not a valid name; use letters, digits and underscores")
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise SpecError(f"sizes: {name} is {size!r}; give a whole number of at least 1")
    lowered = [name.lower() for name in names]
    if twice := sorted({n for n in lowered if lowered.count(n) > 1}):
        raise SpecError(f"sizes: {twice[0]} occurs in upper and lower case; rename one of them")
    return tuple({name: int(each[name]) for name in names} for each in listed)


def choose_proving_sizes(timed: Sequence[Sizes], steps: Mapping[str, int]) -> tuple[dict[str, int], ...]:
    """Return small sizes for the proof: odd ones, brought up to multiples of ``steps``, which is what the kernel serves."""
    names = list(timed[0])
    rows = _ODD.get(len(names)) or tuple(tuple(pair[i % 2] + i // 2 for i in range(len(names))) for pair in _MORE)
    found = {}
    for row in rows:
        sizes = {name: _round_up(size, steps.get(name, 1)) for name, size in zip(names, row, strict=True)}
        found[tuple(sizes.values())] = sizes
    return tuple(found.values())


def shrink(sizes: Sizes, steps: Mapping[str, int], find_work: Callable[[Sizes], float]) -> dict[str, int]:
    """Return sizes that the emulated device counts in seconds: the largest are halved until the work is small."""
    found = dict(sizes)
    while find_work(found) > _MAX_EMULATED:
        name = max(found, key=lambda n: found[n] / steps.get(n, 1))
        smaller = _round_up(max(1, found[name] // 2), steps.get(name, 1))
        if smaller >= found[name]:
            break
        found[name] = smaller
    return found


def _round_up(size: int, step: int) -> int:
    return math.ceil(size / step) * step
