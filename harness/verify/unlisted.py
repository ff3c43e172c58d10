"""Problems that an op does not list, drawn from those that it does: sizes, row strides, base addresses.

A kernel that is right for what is listed and wrong elsewhere is wrong for a reason that its author did not have in mind, so that what is
run must not be chosen by hand either. Draws are seeded by the op's name and a number, thus the same on every machine; what is drawn from
is dealt like cards, so that a few draws have some of everything.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness.spec import Op, Problem, Scalar, SpecError, Strides, Tensor
from harness.spec.dtypes import find_dtype

# What vector accesses and tensor copies ask of rows and base addresses.
_VECTOR_BYTES = 16
# Row padding may not make a tensor larger than this, but where strides are drawn for their size.
_MAX_SPAN_BYTES = 2**22
_ROUND = (10, 96, 100, 128, 1000, 1024)
_MAX_TRIES = 24


class Deck:
    """Deals the numbers below ``size`` in random order, each once before any comes again."""

    def __init__(self, rng: np.random.Generator, size: int) -> None:
        self._rng = rng
        self._size = size
        self._left: list[int] = []

    def deal(self) -> int:
        """Return the next number."""
        if not self._left:
            self._left = [int(i) for i in self._rng.permutation(self._size)]
        return self._left.pop()


def make_generator(op: Op, what: str, seed: int) -> np.random.Generator:
    """Return the random numbers for one kind of draw."""
    digest = hashlib.sha256(f"{what}\0{op.name}\0{seed}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def _draw_extent(rng: np.random.Generator, kind: int, limit: int) -> int:
    """Return a size from 1 to ``limit``: of any order of magnitude, a power of two, next to one, round, or any."""
    bits = int(rng.integers(0, limit.bit_length()))
    some = int(rng.integers(1 << bits, min(limit, (2 << bits) - 1), endpoint=True))
    if kind == 1:
        return 1 << bits
    if kind == 2:
        return min(max((1 << bits) + int(rng.choice([-3, -1, 1, 3])), 1), limit)
    if kind == 3:
        unit = int(rng.choice([u for u in _ROUND if u <= limit] or [1]))
        return max(some // unit, 1) * unit
    return some if kind == 0 else int(rng.integers(1, limit, endpoint=True))


_NUM_EXTENTS, _NUM_PADDINGS, _NUM_OFFSETS, _NUM_ALIGNMENTS = 5, 6, 4, 4


def _draw_padding(rng: np.random.Generator, kind: int, row: int) -> int:
    """Return what is added to a row of ``row`` elements: nothing, little, up to a row, several rows, or up to a power of two."""
    if kind == 2:
        return int(rng.integers(1, 7, endpoint=True))
    if kind == 3:
        return int(rng.integers(1, row + 64, endpoint=True))
    if kind == 4:
        return row * int(rng.integers(1, 8, endpoint=True)) + int(rng.integers(65, 80))
    return (1 << row.bit_length()) - row if kind == 5 else 0


def _draw_offset(rng: np.random.Generator, kind: int) -> int:
    if kind == 0:
        return 0
    return int(rng.integers(1, 3, endpoint=True)) if kind == 1 else 2 * int(rng.integers(2, 31)) + kind % 2


def list_kinds(op: Op, suite: str) -> list[Problem]:
    """Return a problem of the suite for each set of attributes there is, the first listed."""
    kinds: dict[tuple[tuple[str, object], ...], Problem] = {}
    for problem in op.select_problems(suite):
        kinds.setdefault(tuple(sorted(op.attribute_values(problem).items())), problem)
    return list(kinds.values())


class _Drawer:
    """Draws problems of one op; what kernels need of alignment is asked of a quarter of them in full."""

    def __init__(self, op: Op, what: str, seed: int) -> None:
        self.op = op
        self.rng = make_generator(op, what, seed)
        self._extents = {name: Deck(self.rng, _NUM_EXTENTS) for name in sorted({n for p in op.problems for n in p.sizes})}
        self._paddings = {t.name: Deck(self.rng, _NUM_PADDINGS) for t in op.tensors}
        self._offsets = {t.name: Deck(self.rng, _NUM_OFFSETS) for t in op.tensors}

    def draw(self, base: Problem, limits: Mapping[str, int], alignment: int, max_bytes: float, max_flops: float) -> Problem | None:
        """Return a problem with the attributes of ``base``, None where none was found that is small enough."""
        aligned_rows, aligned_bases = alignment in (0, 1), alignment in (0, 2)
        for _ in range(_MAX_TRIES):
            sizes = {name: _draw_extent(self.rng, self._extents[name].deal(), limits[name]) for name in base.sizes}
            if alignment == 0:  # what is asked of rows is often asked of sizes
                sizes = {name: -(-size // 8) * 8 for name, size in sizes.items()}
            problem = settle_sizes(self.op, base, sizes, draw_scalars(self.op, self.rng))
            if problem is None:
                continue
            cost = self.op.cost(problem)
            if cost.bytes_moved <= max_bytes and cost.flops <= max_flops:
                return self._place(problem, aligned_rows=aligned_rows, aligned_bases=aligned_bases)
        return None

    def _place(self, problem: Problem, *, aligned_rows: bool, aligned_bases: bool) -> Problem:
        padding: dict[str, int | tuple[int, ...]] = {}
        offsets, orders = {}, {}
        for tensor in self.op.tensors:
            if not tensor.present(problem):
                continue
            unit, shape = find_unit(tensor, problem), tensor.resolve_shape(problem)
            if tensor.is_strided and len(shape) > (tensor.strides is Strides.OUTER):
                kind = self._paddings[tensor.name].deal()
                order, pads = _draw_strides(self.rng, kind, tensor, shape, unit if aligned_rows else 1)
                if order != tuple(range(len(shape))):
                    orders[tensor.name] = order
                if any(pads):
                    padding[tensor.name] = pads
            elif tensor.can_pad_rows and len(shape) > 1:
                pad = _draw_padding(self.rng, self._paddings[tensor.name].deal(), shape[-1])
                stride = shape[-1] + pad
                stride = -(-stride // unit) * unit if aligned_rows else stride
                if stride * math.prod(shape[:-1]) * _VECTOR_BYTES // unit <= _MAX_SPAN_BYTES:
                    padding[tensor.name] = stride - shape[-1]
            offset = _draw_offset(self.rng, self._offsets[tensor.name].deal())
            offsets[tensor.name] = offset * unit if aligned_bases else offset
        return replace(problem, padding=padding, offsets=offsets, orders=orders)


def _draw_strides(
    rng: np.random.Generator, kind: int, tensor: Tensor, shape: tuple[int, ...], unit: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return an order of dimensions in memory and what is added to their strides; outer ones are multiples of ``unit``."""
    rank = len(shape)
    fixed = 1 if tensor.strides is Strides.OUTER else 0
    # As they are written, turned round (heads inside of rows), or any.
    order = list(range(rank))
    if kind % 3 == 1:
        order = [*order[: rank - 1 - fixed][::-1], *order[rank - 1 - fixed :]] if rank > 2 else order
    elif kind % 3 == 2:
        order = [*(int(i) for i in rng.permutation(rank - fixed)), *order[rank - fixed :]]
    pads, step = [0] * rank, 1
    for place, dim in enumerate(reversed(order)):
        is_inner = place == 0
        if is_inner:
            pads[dim] = int(rng.integers(1, 3)) if not fixed and kind == 5 and unit == 1 else 0
        else:
            wanted = step + (int(rng.integers(0, 8)) if kind in (1, 3, 4) else 0)
            pads[dim] = -(-wanted // unit) * unit - step
        if (step + pads[dim]) * shape[dim] * _VECTOR_BYTES > _MAX_SPAN_BYTES * max(unit, 1):
            pads[dim] = 0 if unit == 1 or is_inner else pads[dim]
        step = (step + pads[dim]) * shape[dim]
    return tuple(order), tuple(pads)


def draw_scalars(op: Op, rng: np.random.Generator) -> dict[str, float]:
    """Return a value for each scalar, where it may differ from its default, never that."""
    drawn = {s.name: _draw_scalar(s, rng) for s in op.scalars}
    return {s.name: drawn[s.name] for s in op.scalars if drawn[s.name] != s.default}


def _draw_scalar(scalar: Scalar, rng: np.random.Generator) -> float:
    if scalar.choices:
        others = [c for c in scalar.choices if c != scalar.default] or list(scalar.choices)
        return others[int(rng.integers(len(others)))]
    # The ends are where formulas break: each of them is drawn once in eight times.
    kind = int(rng.integers(8))
    share = (0.0, 1.0)[kind] if kind < 2 else float(rng.random())
    span = scalar.high - scalar.low
    value = scalar.low * (scalar.high / scalar.low) ** share if scalar.is_log else scalar.low + span * share
    # A few digits suffice, and are read in a problem's name.
    short = round(value) if scalar.is_whole else float(f"{value:.3g}")
    return min(max(short, scalar.low), scalar.high)


def settle_sizes(op: Op, base: Problem, sizes: Mapping[str, int], scalars: Mapping[str, float] | None = None) -> Problem | None:
    """Return a problem of these sizes with the attributes of ``base``, as the op's ties and derived sizes ask; None where there is none."""
    attributes = op.attribute_values(base)
    try:
        return Problem(
            op.settle(sizes, attributes).sizes,
            base.attributes,
            suites=frozenset({"drawn"}),
            scalars=base.scalars if scalars is None else scalars,
        )
    except SpecError:
        return None  # a window larger than the image, say: the derived size would be 0


def find_unit(tensor: Tensor, problem: Problem) -> int:
    """Return how many elements of a tensor are a vector of 16 bytes."""
    return max(_VECTOR_BYTES // find_dtype(tensor.resolve_dtype(problem)).itemsize, 1)


def draw_problems(op: Op, seed: int, count: int, max_bytes: float, max_flops: float) -> list[Problem]:
    """Return up to ``count`` problems of at most ``max_bytes`` and ``max_flops``, none of which the op lists."""
    bases = list_kinds(op, "verify")
    if not bases:
        return []
    listed = op.select_problems("verify")
    limits = {name: max(p.sizes[name] for p in listed) for name in bases[0].sizes}
    drawer = _Drawer(op, "drawn", seed)
    deck = Deck(drawer.rng, len(bases))
    names = {p.name for p in op.problems}
    found: dict[str, Problem] = {}
    for index in range(0, count, _NUM_ALIGNMENTS):
        base = bases[deck.deal()]
        for alignment in range(min(_NUM_ALIGNMENTS, count - index)):
            problem = drawer.draw(base, limits, alignment, max_bytes, max_flops)
            if problem is not None and problem.name not in names:
                found[problem.name] = problem
    return list(found.values())
