"""The space of a kernel's tunables: every binding that its constraints allow, and a sample of it for a sweep."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence

from harness.spec import Kernel, Op, Problem, Variant


def list_space(kernel: Kernel) -> Iterator[Variant]:
    """Yield every variant of a kernel that its constraints allow, in the order of its tunables' values."""
    names = [t.name for t in kernel.tunables]
    for row in itertools.product(*(t.values for t in kernel.tunables)):
        values = dict(zip(names, row, strict=True))
        if all(rule.holds(values) for rule in kernel.constraints):
            yield Variant(kernel.name, tuple(values.items()))


def sample_space(op: Op, per_kernel: int) -> tuple[Variant, ...]:
    """Return up to ``per_kernel`` variants of each kernel of an op: the listed ones, then others in the order of a hash of their names.

    The choice is the same on every machine, and a larger sample holds a smaller one: a hash knows no order of tunables, as a random
    choice does not, and needs no seed.
    """
    chosen: list[Variant] = []
    for kernel in op.kernels:
        listed = [kernel.bind(bound) for bound in kernel.variants]
        known = set(listed)
        others = sorted((v for v in list_space(kernel) if v not in known), key=_hash_name)
        chosen += [*listed, *others][: max(per_kernel, len(listed))]
    return tuple(chosen)


def order_grid(op: Op) -> tuple[Variant, ...]:
    """Return all variants of an op: the listed ones, then the others, all kernels among each other, in the order of a hash of their names.

    In the tunables' order the slow ones come in a row. So something fast is known early, and they can be given up early.
    """
    listed = dict.fromkeys(op.variants)
    others = (v for kernel in op.kernels for v in list_space(kernel) if v not in listed)
    return (*listed, *sorted(others, key=_hash_name))


def _hash_name(variant: Variant) -> bytes:
    return hashlib.sha256(variant.name.encode()).digest()


def select_sweep_problems(op: Op, names: Sequence[str] = ()) -> tuple[Problem, ...]:
    """Return the problems that a sweep is timed on: those named, or of suite ``sweep``, or where there are none of suite ``bench``."""
    return op.select_problems("sweep", names) or op.select_problems("bench")
