"""A problem: the sizes, attributes and layout of one call of an op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from harness.errors import SpecError
from harness.spec.conditions import AttributeValue

Arrays = Mapping[str, NDArray[np.generic]]
# Elements added to the row stride, or to the stride of each dimension.
Padding = int | tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """Sizes (elements), attribute values, scalars, and per tensor how it lies in memory.

    ``padding`` is added to a tensor's strides, in elements: a number to the stride of its rows, a tuple to the stride of each dimension,
    outermost first. ``orders`` lists a tensor's dimensions from the slowest to the fastest in memory, ``(0, 2, 1, 3)`` say; as they are
    written where there is none. An offset is in elements beyond an address that is a multiple of 256 bytes. ``scalars`` holds those that
    differ from their defaults.

    ``suites`` says where the problem is used: ``"verify"`` problems are small and ragged, ``"bench"`` problems are timed on a GPU,
    ``"emulated"`` problems stand in for them on the emulated device, where only counts are taken; ``"sweep"`` problems are those that a
    sweep of the tunables is timed on.
    """

    sizes: Mapping[str, int]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    padding: Mapping[str, Padding] = field(default_factory=dict)
    suites: frozenset[str] = frozenset({"verify"})
    offsets: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    orders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, size in self.sizes.items():
            if size < 1:
                raise SpecError(f"size {name}={size}: must be at least 1")
        for name, pad in self.padding.items():
            if min(_listed(pad), default=0) < 0:
                raise SpecError(f"padding {name}={pad}: must not be negative")
        for name, offset in self.offsets.items():
            if offset < 0:
                raise SpecError(f"offset {name}={offset}: must not be negative")
        for name, order in self.orders.items():
            if sorted(order) != list(range(len(order))):
                raise SpecError(f"order {name}={order}: must name each dimension once, from the slowest to the fastest in memory")
        for attr in ("sizes", "attributes", "padding", "offsets", "scalars", "orders"):
            object.__setattr__(self, attr, MappingProxyType(dict(getattr(self, attr))))

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def name(self) -> str:
        """A stable, readable id: sizes, attributes, scalars, strides, offsets (``M128_N64_K32-act=relu-bias-eps=0.1-pad_a=3-at_b=1``)."""
        parts = ["_".join(f"{k}{v}" for k, v in self.sizes.items())]
        for key, value in self.attributes.items():
            if value is True:
                parts.append(key)
            elif value is not False:
                parts.append(f"{key}={value}")
        parts += [f"{k}={v!r}" for k, v in self.scalars.items()]
        parts += [f"pad_{k}={_join(v)}" for k, v in self.padding.items() if v and v != (0,) * len(_listed(v))]
        parts += [f"order_{k}={_join(v)}" for k, v in self.orders.items()]
        parts += [f"at_{k}={v}" for k, v in self.offsets.items() if v]
        return "-".join(parts)


def _join(value: Padding) -> str:
    return ".".join(map(str, _listed(value)))


def _listed(value: Padding) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)
