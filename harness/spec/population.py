"""The problems that users of an op bring, as groups to draw from: what an op is judged on besides the problems that it lists.

A population is data and plain functions. Drawing from it (:mod:`harness.compare.drawn.problems`) gives the same problems on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from types import MappingProxyType

from harness.spec.conditions import AttributeValue

Sizes = Mapping[str, int]
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*\Z")


def _always(_: Sizes) -> bool:
    return True


@dataclass(frozen=True)
class LogRange:
    """Sizes from ``low`` to ``high``, evenly over their logarithm (as many from 1 to 2 as from 64 to 128), multiples of ``multiple``."""

    low: int
    high: int
    multiple: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high or self.multiple < 1 or -(-self.low // self.multiple) * self.multiple > self.high:
            raise ValueError(f"LogRange({self.low}, {self.high}, {self.multiple}): holds no multiple of {self.multiple}")

    def pick(self, share: float) -> int:
        """Return the size at a share (0 to 1) of the range. Decimals give the same digits on every machine, which a C library need not."""
        with localcontext() as context:
            context.prec = 28
            at = Decimal(self.low) * (Decimal(self.high + 1) / Decimal(self.low)) ** Decimal(share)
        least = -(-self.low // self.multiple) * self.multiple
        return max(least, min(int(at), self.high) // self.multiple * self.multiple)

    def holds(self, size: int) -> bool:
        """Return whether a size can be picked."""
        return self.low <= size <= self.high and size % self.multiple == 0


# A size is drawn from a range or a list, or follows from the sizes before it.
SizeRule = LogRange | tuple[int, ...] | Callable[[Sizes], int]


@dataclass(frozen=True)
class Group:
    """One kind of problem.

    ``sizes`` are drawn in their order; ``attributes``, ``scalars``, ``padding`` (elements added to a row's stride, or to that of each
    dimension) and ``orders`` (of dimensions in memory) from lists; what is left out has the op's default, and rows follow each other. A
    drawn problem that ``keep`` refuses (one beyond a budget of bytes, say) is drawn again. ``peers`` are the libraries, by their names in
    ``peers.py``, the fastest of which the op is compared with. Of all problems a share of ``weight`` over the sum of all weights
    is drawn from the group.
    """

    name: str
    title: str
    sizes: Mapping[str, SizeRule]
    peers: tuple[str, ...]
    attributes: Mapping[str, tuple[AttributeValue, ...]] = field(default_factory=dict)
    padding: Mapping[str, tuple[int | tuple[int, ...], ...]] = field(default_factory=dict)
    weight: int = 1
    keep: Callable[[Sizes], bool] = _always
    scalars: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    orders: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _IDENTIFIER.match(self.name):
            raise ValueError(f"group name {self.name!r}: use lower-case letters, digits and underscores, starting with a letter")
        if self.weight < 1:
            raise ValueError(f"group {self.name}: weight {self.weight} must be at least 1")
        for attr in ("sizes", "attributes", "padding", "scalars", "orders"):
            object.__setattr__(self, attr, MappingProxyType(dict(getattr(self, attr))))

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Population:
    """All groups of an op."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        names = [g.name for g in self.groups]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"population: group {', '.join(twice)} is defined more than once")
        if not names:
            raise ValueError("population: it has no group")

    def find_group(self, name: str) -> Group:
        """Return the group of that name; raises KeyError."""
        return next(g for g in self.groups if g.name == name)
