"""Times of libraries on problems like a call, from the published record of drawn problems (``profiles/<op>/drawn.json``).

The record itself is read, wherever the frozen set lies beside it: a copy in the frozen set would be a second truth that goes stale, and
selection does not need it. Without the record nothing is said.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicf.errors import FrozenError
from contract.calls import Interface, Query

SCHEMA = 1
# Beyond this, in doublings over all sizes, a problem says nothing about a call.
MAX_DISTANCE = 1.0


@dataclass(frozen=True)
class LibraryTime:
    """The fastest library on a recorded problem, and the frozen kernel that was timed in the same rounds; microseconds, cold medians.

    ``distance`` is 0 where it is the call's own problem, else how many doublings of the sizes lie between. ``is_frozen``: the kernel is
    in the frozen set still; of another one the comparison says nothing about what a call gets.
    """

    problem: str
    distance: float
    library: str
    library_us: float
    kernel: str
    kernel_us: float
    where: str
    is_frozen: bool = True

    @property
    def speedup(self) -> float:
        """How many times as fast as the library the kernel was."""
        return self.library_us / self.kernel_us

    def describe(self) -> str:
        """Return one line."""
        at = "here" if self.distance == 0 else f"at {self.problem}, {self.distance:.2g} doublings away"
        times = f"{self.library} takes {self.library_us:.4g} us {at}, {self.kernel} {self.kernel_us:.4g} us"
        if not self.is_frozen:
            return f"{times}, which is frozen no more ({self.where})"
        who = "the library is" if self.speedup < 1 else "the frozen kernel is"
        factor = max(self.speedup, 1 / self.speedup)
        return f"{times}: {who} {factor:.2f} times as fast ({self.where})"


def find_library_time(profiles_dir: Path, interface: Interface, arch: str, query: Query) -> LibraryTime | None:
    """Return what is recorded nearest to a call: same attributes and paddings of rows, newest first; None where nothing is near.

    Raises :class:`FrozenError` where the record cannot be read.
    """
    path = profiles_dir / interface.op / "drawn.json"
    if not path.is_file():
        return None
    try:
        found = list(_list_times(json.loads(path.read_text()), interface, arch, query))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FrozenError(f"{path}: is not a record of drawn problems: {type(error).__name__}: {error}") from error
    return min(found, key=lambda pair: (pair[1].distance, -pair[0]), default=(0, None))[1]


def _list_times(document: Mapping[str, Any], interface: Interface, arch: str, query: Query) -> Iterator[tuple[int, LibraryTime]]:
    """Yield the times near a call, each with its run's number."""
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema {document['schema']} is not {SCHEMA}")
    padding = _find_padding(interface, query)
    for number, run in enumerate(document["runs"]):
        if run["arch"] != arch:
            continue
        where = f"{run['environment']['device_name']}, {run['started'][:10]}, {run['commit']}"
        for row in run["rows"]:
            attributes = {a["name"]: row["attributes"].get(a["name"], a["default"]) for a in interface.attributes}
            if not row["peer"] or row["ratio"] is None or attributes != query.attributes or row["padding"] != padding:
                continue
            distance = math.sqrt(sum(math.log2(query.by_size[name] / size) ** 2 for name, size in row["sizes"].items()))
            if distance <= MAX_DISTANCE:
                times = {c["name"]: c["us"] for c in row["contenders"]}
                library, kernel = row["peer"], row["judged"]
                yield number, LibraryTime(row["problem"], distance, library, times[library], kernel, times[kernel], where)


def _find_padding(interface: Interface, query: Query) -> dict[str, int] | None:
    """Return by how many elements row strides exceed the rows, where they do; None where dimensions have strides that are not packed."""
    padding = {}
    for layout in interface.find_layouts(query.values):
        packed, stride = layout.find_packed(query.by_size), query.strides.get(layout.name)
        if isinstance(stride, int) and isinstance(packed, int) and stride > packed:
            padding[layout.name] = stride - packed
        elif isinstance(stride, tuple) and stride != packed:
            return None
    return padding
