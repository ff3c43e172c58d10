"""More or fewer units: widen, prune, and make copies different."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aicf.errors import RewriteError
from aicf.opset.updates import SCALES
from aicf.rewrite.dimensions import Units
from aicf.rewrite.draft import Draft
from aicf.rewrite.rules.rule import Rule


def move_units(draft: Draft, units: Units, index: NDArray[np.int64], shares: NDArray[np.float64]) -> None:
    """Take units along all coupled axes; whoever reads them takes each by its share."""
    for axes, is_read in ((units.carried, False), (units.summed, True)):
        for axis in axes:
            draft.carry(axis.owner, axis.dim, axis.find_elements(index, units.extent), axis.repeat(shares), is_read=is_read)


@dataclass(frozen=True)
class Widen(Rule):
    """Have ``to`` units in the place of those that ``owner`` makes: copies, drawn by a seed as evenly as can be.

    ``owner`` is the path of a module, whose output's last axis is meant, or of a parameter, whose first axis is. The network computes the
    same function, and training goes on as it would have: copies stay copies until :class:`Separate` makes them different.

    With ``heads``, here and in the other rules for units, the axis is one that the network reshapes to heads and a head's features, as
    that of an attention's queries; units are whole heads.
    """

    preserves: ClassVar[bool] = True
    owner: str
    to: int
    seed: int = 0
    heads: bool = False

    def change(self, draft: Draft) -> Rule:
        """Copy units."""
        units = draft.find_units(self.owner, heads=self.heads)
        if self.to <= units.extent:
            raise RewriteError(f"{self.owner}: has {units.extent} units, so it cannot be widened to {self.to}; Prune makes it narrower")
        if units.uniform and self.to % units.extent:
            raise RewriteError(
                f"{self.owner}: {units.uniform} takes a mean over its {units.extent} units, so all must be copied equally often; "
                f"widen to a multiple, such as {-(-self.to // units.extent) * units.extent}"
            )
        index = self._draw(units.extent)
        counts = np.bincount(index, minlength=units.extent)
        move_units(draft, units, index, 1.0 / counts[index])
        kept = tuple(range(units.extent))
        return Regroup(self.owner, kept, tuple(counts.astype(np.float64).tolist()), self.heads)

    def _draw(self, extent: int) -> NDArray[np.int64]:
        rng = np.random.Generator(np.random.Philox(key=self.seed))
        rounds = -(-(self.to - extent) // extent)
        drawn = [np.arange(extent), *(rng.permutation(extent) for _ in range(rounds))]
        return np.concatenate(drawn)[: self.to].astype(np.int64)


@dataclass(frozen=True)
class Prune(Rule):
    """Remove units, by their numbers. The function changes, unless they are dead."""

    owner: str
    units: tuple[int, ...]
    heads: bool = False

    def change(self, draft: Draft) -> Rule | None:
        """Keep the other units."""
        found = draft.find_units(self.owner, heads=self.heads)
        gone = _check_numbers(self.owner, self.units, found.extent)
        kept = np.array([i for i in range(found.extent) if i not in gone], np.int64)
        if not len(kept):
            raise RewriteError(f"{self.owner}: none of its {found.extent} units would be left")
        move_units(draft, found, kept, np.ones(len(kept)))
        return None


@dataclass(frozen=True)
class Regroup(Rule):
    """Have unit ``index[i]`` as unit i, and whoever reads it take ``shares[i]`` of what it took: what takes a widening back.

    The function stays as it is where the units that go are copies of those that stay, and shares say of how many.
    """

    owner: str
    index: tuple[int, ...]
    shares: tuple[float, ...]
    heads: bool = False

    def change(self, draft: Draft) -> Rule | None:
        """Take the units."""
        found = draft.find_units(self.owner, heads=self.heads)
        if len(self.shares) != len(self.index) or not self.index or not all(0 <= i < found.extent for i in self.index):
            raise RewriteError(f"{self.owner}: needs a share for each of at least one index below {found.extent}")
        move_units(draft, found, np.array(self.index, np.int64), np.array(self.shares))
        return None


@dataclass(frozen=True)
class Separate(Rule):
    """Make copies of units different from each other: noise on the weights that read them, which adds up to zero over a unit's copies.

    The function stays as it is, and the copies' gradients differ from then on. ``deviation`` is in units of the weights' root mean square.
    """

    preserves: ClassVar[bool] = True
    owner: str
    deviation: float = 0.1
    seed: int = 0
    heads: bool = False

    def change(self, draft: Draft) -> None:
        """Add the noise."""
        units = draft.find_units(self.owner, heads=self.heads)
        groups = find_copies(draft, units)
        if not groups:
            raise RewriteError(f"{self.owner}: none of its {units.extent} units is a copy of another")
        if not units.summed:
            raise RewriteError(f"{self.owner}: no parameter reads its units")
        rng = np.random.Generator(np.random.Philox(key=self.seed))
        for axis in units.summed:
            values = draft.values(axis.owner)
            made = axis.list_by_unit(values.astype(np.float64), units.extent).copy()
            size = self.deviation * float(np.sqrt(np.mean(made * made)))
            for members in groups:
                noise = rng.normal(scale=size, size=(*made.shape[:-1], len(members)))
                made[..., members] += noise - noise.mean(-1, keepdims=True)
            draft.put(axis.owner, axis.lay_back(made).astype(values.dtype), draft.state(axis.owner))


@dataclass(frozen=True)
class Release(Rule):
    """Train units at the full rate again: the scales of all parameters that make or read them are forgotten, moments stay.

    The function stays as it is; training no longer goes on as that of the network before would have.
    """

    preserves: ClassVar[bool] = True
    owner: str
    heads: bool = False

    def change(self, draft: Draft) -> None:
        """Remove the scales."""
        units = draft.find_units(self.owner, heads=self.heads)
        paths = [axis.owner for axis in (*units.carried, *units.summed) if draft.list_roles(axis.owner) & set(SCALES)]
        if not paths:
            raise RewriteError(f"{self.owner}: its units are trained at the full rate already")
        for path in paths:
            draft.keep_state(path, draft.list_roles(path) - set(SCALES))


def find_copies(draft: Draft, units: Units) -> list[list[int]]:
    """Return the numbers of units that are made by the same weights, bit for bit, in groups of at least two."""
    slices = [np.moveaxis(axis.list_by_unit(draft.values(axis.owner), units.extent), -1, 0) for axis in units.carried]
    groups: dict[bytes, list[int]] = {}
    for i in range(units.extent):
        groups.setdefault(b"".join(np.ascontiguousarray(s[i]).tobytes() for s in slices), []).append(i)
    return [members for members in groups.values() if len(members) > 1]


def _check_numbers(owner: str, numbers: Sequence[int], extent: int) -> set[int]:
    found = set(numbers)
    if not found or not all(0 <= i < extent for i in found):
        raise RewriteError(f"{owner}: units to remove are numbers from 0 to {extent - 1}, at least one; got {list(numbers)}")
    return found
