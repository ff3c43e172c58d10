"""The axes of an op's buckets: those that pool survey errors, those within which times are interchangeable, those that divide by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from contract.errors import FrozenError

Row = Mapping[str, Any]

# What an axis is for, in the order in which an op's axes stand: a survey pools its errors by the classes of the first kind; measured times
# stand for each other within the classes of the first two; the last divide by size, and a border of theirs is crossed when nothing is near.
PARTS = ("survey", "group", "region")
# The axes that need not say their part. An op that has no others has all four of them, those that it leaves out with one class.
PART_OF = {"dtypes": "survey", "layout": "survey", "epilogue": "group", "region": "region"}
COMMON = tuple(PART_OF)
# The class of an axis that an op does not divide, and of every axis for a fallback.
ANY = "any"
MAX_AXES = 8


@dataclass(frozen=True)
class Axes:
    """An op's axes by name, in order: the first ``num_survey`` are of part ``survey``, and the first ``num_group`` of no region."""

    names: tuple[str, ...]
    num_survey: int
    num_group: int

    @classmethod
    def of(cls, axes: Sequence[Row]) -> Axes:
        """Return those of rows ``{name, part?}``; raises :class:`FrozenError` where they cannot stand so."""
        names = tuple(str(axis["name"]) for axis in axes)
        parts = [_find_part(axis) for axis in axes]
        if len(names) > MAX_AXES:
            raise FrozenError(f"{len(names)} axes; at most {MAX_AXES} are supported")
        if set(names) <= set(COMMON):
            names, parts = COMMON, list(PART_OF.values())
        elif "arch" in names:
            raise FrozenError("axis arch: every bucket has it already")
        for i, (before, part) in enumerate(pairwise(parts)):
            if PARTS.index(part) < PARTS.index(before):
                raise FrozenError(f"axis {names[i + 1]}, of part {part}, must stand before {names[i]}, of part {before}")
        return cls(names, parts.count("survey"), len(parts) - parts.count("region"))

    def name_group(self, classes: Mapping[str, str | None]) -> str:
        """Return what problems have in common whose times may stand for each other."""
        return _join(classes, self.names[: self.num_group])

    def list_survey_classes(self, classes: Mapping[str, str | None]) -> tuple[str, ...]:
        """Return what problems have in common by which a survey pools its errors: a class of each of its axes."""
        return tuple(str(classes[name]) for name in self.names[: self.num_survey])

    def pool(self, groups: Sequence[Sequence[str]]) -> str:
        """Return the name of survey groups, given by their classes, whose problems speak for each other: they differ on one axis."""
        return "/".join("+".join(dict.fromkeys(each)) for each in zip(*groups, strict=True)) or ANY

    def name_apart(self, classes: Mapping[str, str | None]) -> str:
        """Return the name of a call's bucket without the architecture, by which a survey leaves it out."""
        return _join(classes, self.names)


def split_survey_group(name: str) -> list[list[str]]:
    """Return the classes of a survey's group by axis, ``[["bfloat16", "float16"], ["nk"]]`` for ``bfloat16+float16/nk``."""
    return [part.split("+") for part in name.split("/")]


def _join(classes: Mapping[str, str | None], names: Sequence[str]) -> str:
    return "/".join(str(classes[name]) for name in names) or ANY


def _find_part(axis: Row) -> str:
    name, part = str(axis["name"]), axis.get("part")
    if part is None and name not in PART_OF:
        raise FrozenError(f"axis {name}: must say its part, one of {', '.join(PARTS)}: only {', '.join(COMMON)} have one of their own")
    if part is not None and part != PART_OF.get(name, part):
        raise FrozenError(f"axis {name}: is of part {PART_OF[name]}, not {part}")
    return str(part or PART_OF[name])


def name_bucket(bucket: Mapping[str, str]) -> str:
    """Return a bucket's name, ``sm_90a/bfloat16/nk_whole/smooth/outputs_beyond``; axes of the op's own stand in alphabetical order."""
    own = COMMON if set(bucket) == {"arch", *COMMON} else sorted(set(bucket) - {"arch"})
    return "/".join(bucket[key] for key in ("arch", *own))
