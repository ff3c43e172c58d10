"""What a rewrite did, as data: which rule, what became of each parameter and of its optimizer state, and how to undo it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.plan.fields import require_fields
from contract.documents import parse_json

Numbers = tuple[float, ...] | None


@dataclass(frozen=True)
class Map:
    """Where the units of a parameter's axis come from, and by how much they are scaled; None stands for a scale of 1.

    Unit i is unit ``index[i]`` of before; without an index (a parameter that is new, or gone) ``dim`` is None. ``scale_p``, ``scale_m`` and
    ``scale_v`` are what parameter, first moment (or momentum) and second moment are multiplied by; ``lr_scale`` and ``eps_scale`` are
    factors of the rate and of eps, which come on top of those of earlier rewrites.
    """

    owner: str
    dim: int | None = None
    index: tuple[int, ...] | None = None
    scale_p: Numbers = None
    scale_m: Numbers = None
    scale_v: Numbers = None
    lr_scale: Numbers = None
    eps_scale: Numbers = None

    @cached_property
    def arrays(self) -> dict[int, NDArray[Any]]:
        """Its tuples as arrays, by their identity: :meth:`read` makes those that are not there."""
        return {}

    def read(self, numbers: tuple[float, ...]) -> NDArray[Any]:
        """Return one of its tuples as an array, which is made once."""
        if id(numbers) not in self.arrays:
            self.arrays[id(numbers)] = np.asarray(numbers)
        return self.arrays[id(numbers)]


@dataclass(frozen=True)
class RewriteRecord:
    """One rewrite. ``nodes`` has the present owner path of each parameter by its old one, None for one that is gone.

    ``delta`` is the largest difference of the network's results that was found by value, ``scale`` their largest magnitude. ``undo`` is the
    rule that takes the rewrite back, where there is one. ``evidence`` is what a policy decided by; ``compiled`` are
    kernels that were not in the cache, and with ``unfused`` chains run in parts since the fused ones were not. Times are in seconds.
    """

    step: int
    rule: Mapping[str, Any]
    nodes: Mapping[str, str | None]
    maps: tuple[Map, ...]
    preserves: bool
    delta: float
    scale: float
    undo: Mapping[str, Any] | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    compiled: tuple[str, ...] = ()
    unfused: bool = False

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RewriteRecord:
        """Return the record that a line of JSON holds; raises ValueError for a line that holds none."""
        try:
            read = parse_json(text, strict=False)
            maps = tuple(_read_map(each) for each in read.pop("maps"))
            compiled = tuple(read.pop("compiled", ()))
            return require_fields(cls(maps=maps, compiled=compiled, **read))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a rewrite's record: {error}") from None


def _read_map(data: Mapping[str, Any]) -> Map:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return require_fields(Map(**values))
