"""Whether a library of others is faster for a call than the frozen kernel that was decided for: docs/frozen.md, "Libraries".

A row of the index has the library's measured times beside those of the kernel that was chosen then, in the same rounds. The frozen kernels
are decided among first, and without it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.kernels.external import Libraries, LibraryKernel, make_library_seal, name_library
from aicf.registry.problems import Preferences
from aicf.registry.tables import Tables
from contract.calls import Interface, Problem, Query
from contract.conditions import Condition, describe, make_condition
from contract.decision import Asked
from contract.libraries.adapters import MARGIN
from contract.structs import make_params

Row = Mapping[str, Any]
# As the survey weighs errors: what a point at distance 0 is taken to be away, squared, in doublings over all sizes.
_NEAREST = 0.3
# The weight of "as fast as the kernel", to which predictions are drawn: where nothing near was measured, the kernel is kept.
_LEVEL_WEIGHT = 0.1
# Within this squared distance of a problem where its result missed the op's bound, a library is not used.
_WRONG_DISTANCE = 1.0
_STAND_IN_BITS = 56


@dataclass(frozen=True)
class _Measured:
    """What is known of a library on tables: its conditions, and its measured problems in arrays.

    ``classes`` [points, axes] are those of all axes but the regions, ``logs`` [points, sizes] log2 of the sizes, ``ratios`` [points] the
    library's time over the kernel's, NaN where its result was wrong; ``names`` are of the problems. ``exact`` has the ratios of a call.
    """

    conditions: tuple[tuple[Row, Condition], ...]
    classes: NDArray[np.object_]
    logs: NDArray[np.float64]
    ratios: NDArray[np.float64]
    names: tuple[str, ...]
    exact: Mapping[tuple[Any, ...], list[float]]


@dataclass(frozen=True)
class LibraryVerdict:
    """A library of the index for one call. ``dropped`` is why it is not chosen, "" where it is faster than the kernel.

    ``predicted_us`` is in microseconds, None where its times were not asked for. ``kernel`` is what can be launched, None where it cannot
    be used for the call at all; ``here`` says whether the call's own problem was measured.
    """

    library: str
    dropped: str
    predicted_us: float | None = None
    kernel: LibraryKernel | None = None
    here: bool = False
    ratio: float | None = None

    def describe(self) -> str:
        """Return the reason of a choice."""
        assert self.ratio is not None and self.predicted_us is not None
        how = "measured here" if self.here else "by measured problems near it"
        return f"{self.library} takes {self.ratio:.2f} of the kernel's time, {how}: {self.predicted_us:.4g} us"


class LibraryChoice:
    """Judges the libraries of a registry's tables."""

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._measured: dict[tuple[int, str], _Measured] = {}
        self._found: dict[str, LibraryKernel | str] = {}

    def judge(
        self, tables: Tables, query: Query, asked: Asked, own: tuple[float | None, int], prefs: Preferences, refused: Mapping[str, str]
    ) -> list[LibraryVerdict]:
        """Return what each library of the index comes to for a call, in the order of the index.

        ``own`` is the time of the kernel that was decided for, and its workspace in bytes where it is preferred that this be small.
        ``refused`` are reasons by seal.
        """
        return [self._judge(tables, row, query, asked, own, prefs, refused) for row in tables.libraries]

    def _judge(
        self,
        tables: Tables,
        row: Row,
        query: Query,
        asked: Asked,
        own: tuple[float | None, int],
        prefs: Preferences,
        refused: Mapping[str, str],
    ) -> LibraryVerdict:
        name, (own_us, own_workspace) = name_library(row), own
        if why := _find_dislike(row, own_workspace, prefs):
            return LibraryVerdict(name, why)
        seal = make_library_seal(tables.interface.op, row)
        measured = self._measured.get((id(tables), seal)) or self._measure(tables, row, seal)
        if why := _find_broken(measured, query):
            return LibraryVerdict(name, why)
        if (reason := refused.get(seal)) is not None:
            return LibraryVerdict(name, f"it cannot be used here: {reason}")
        if seal not in self._found:
            self._found[seal] = self._libraries.find(tables.interface.op, row, tables.interface.row)
        kernel = self._found[seal]
        if isinstance(kernel, str):
            return LibraryVerdict(name, kernel)
        ratio, here, why = _predict(measured, tables, query, asked)
        if ratio is None or own_us is None:
            return LibraryVerdict(name, why or "the kernel's own time is not known", kernel=kernel)
        us = ratio * own_us
        if ratio > 1.0 - MARGIN:
            how = "takes" if here else "is predicted to take"
            return LibraryVerdict(name, f"{how} {ratio:.2f} of the kernel's time: {us:.4g} us", us, kernel, here, ratio)
        if why := kernel.find_fault(make_stand_in(tables.interface, query)):
            return LibraryVerdict(name, why, us)
        return LibraryVerdict(name, "", us, kernel, here, ratio)

    def _measure(self, tables: Tables, row: Row, seal: str) -> _Measured:
        """Return what is known of a library on tables, which stay as long as the registry; found out once."""
        interface = tables.interface
        calls = [interface.make_query(Problem(point["sizes"], point["attributes"])) for point in row["points"]]
        asked = [tables.core.ask(query) for query in calls]
        ratios = [_find_ratio(tables, point, each) for point, each in zip(row["points"], asked, strict=True)]
        exact: dict[tuple[Any, ...], list[float]] = {}
        for query, ratio in zip(calls, ratios, strict=True):
            if not math.isnan(ratio):
                exact.setdefault((query.sizes, query.values), []).append(ratio)
        self._measured[id(tables), seal] = found = _Measured(
            tuple((condition, make_condition(condition)) for condition in row["domain"]),
            np.array([_find_classes(tables, each) for each in asked], dtype=object).reshape(len(calls), -1),
            np.array([_find_logs(query) for query in calls]).reshape(len(calls), -1),
            np.array(ratios),
            tuple(point["problem"] for point in row["points"]),
            exact,
        )
        return found


def _find_dislike(row: Row, own_workspace: int, prefs: Preferences) -> str:
    """Return what of the preferences a library does not have, "" where it has all."""
    wanted = row["workspace_bytes"]
    if prefs.prefer == "own":
        return "the project's own kernels are preferred"
    if prefs.deterministic and not row["deterministic"]:
        return "its results may differ from run to run"
    if prefs.accumulate is not None and row.get("accumulate") != prefs.accumulate:
        return f"it is known to sum in {row.get('accumulate', 'nothing in particular')}, not in {prefs.accumulate}"
    if prefs.max_workspace_bytes is not None and wanted > prefs.max_workspace_bytes:
        return f"it may want {wanted} bytes of workspace, more than {prefs.max_workspace_bytes}"
    if prefs.prefer == "memory" and wanted > own_workspace:
        return f"it may want {wanted} bytes of workspace, and the kernel {own_workspace}"
    return ""


def _find_broken(measured: _Measured, query: Query) -> str:
    """Return what the first condition of its domain asks for that does not hold for a call, "" where all do."""
    return next((describe(row) for row, holds in measured.conditions if not holds(query)), "")


def _find_ratio(tables: Tables, point: Row, asked: Asked) -> float:
    """Return a point's ratio; the rival is the kernel that was timed with it, or today's choice where that is faster still."""
    if point["median_us"] is None:
        return math.nan
    own_us: float = point["kernel_us"]
    decided = tables.core.decide(asked, asked.legal)
    if decided is not None and decided.us is not None and tables.kernels[decided.kernel].name != point["kernel"]:
        own_us = min(own_us, decided.us)
    return float(point["median_us"] / own_us)


def _find_classes(tables: Tables, asked: Asked) -> tuple[str | None, ...]:
    """Return a call's classes on all axes but those that divide by size."""
    axes = tables.core.table.names.axes
    found = tables.core.find_classes(asked)
    return tuple(found[name] for name in axes.names[: axes.num_group])


def _find_logs(query: Query) -> tuple[float, ...]:
    return tuple(math.log2(size) for size in query.sizes)


def _predict(measured: _Measured, tables: Tables, query: Query, asked: Asked) -> tuple[float | None, bool, str]:
    """Return the library's time over the kernel's, whether the call's own problem was measured, and why there is no prediction.

    The mean of what was measured at the call's own problem; otherwise an average over all points, with a weight that falls with the square
    of their squared distance, drawn towards 1. A class that differs (another dtype, layout or epilogue) counts as one doubling.
    """
    classes = np.array(_find_classes(tables, asked), dtype=object)
    distances = (measured.classes != classes).sum(axis=1) + ((measured.logs - np.array(_find_logs(query))) ** 2).sum(axis=1)
    is_wrong = np.isnan(measured.ratios)
    if (near := is_wrong & (distances <= _WRONG_DISTANCE)).any():
        return None, False, f"its result missed the op's bound at {measured.names[int(np.argmax(near))]}"
    if (exact := measured.exact.get((query.sizes, query.values))) is not None:
        return sum(exact) / len(exact), True, ""
    weights = np.where(is_wrong, 0.0, (_NEAREST + distances) ** -2.0)
    total = float(weights @ np.where(is_wrong, 0.0, measured.ratios - 1.0))
    return 1.0 + total / (_LEVEL_WEIGHT + float(weights.sum())), False, ""


def make_stand_in(interface: Interface, query: Query) -> Any:
    """Return the op's C struct for a call, with addresses that nobody minds for tensors whose own are not known."""
    layouts = interface.find_layouts(query.values)
    addresses = {layout.name: query.addresses.get(layout.name) or (i + 1) << _STAND_IN_BITS for i, layout in enumerate(layouts)}
    return make_params(interface.row, query.by_size, query.attributes, addresses, query.strides, query.scalars)
