"""What is known of an op's kernels for one architecture, arranged so that a decision takes some tens of microseconds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aicf.errors import FrozenError
from aicf.registry.problems import Problem, Value
from aicf.registry.queries import Interface, Query
from aicf.registry.surveys import Survey
from aicf.registry.works import Cost
from contract.conditions import INT64_MAX, Condition, make_condition
from contract.frozen_set import FrozenOp, Row
from contract.kernels import FrozenKernel
from contract.layout import AXES

GROUP_AXES = AXES[:3]
_MAX_KERNELS = 64
Key = tuple[tuple[int, ...], tuple[Value, ...]]
Group = tuple[str | None, ...]
Axis = tuple[tuple[str, tuple[Condition, ...]], ...]


@dataclass(frozen=True)
class Points:
    """The measured problems of one group, in the order of their names, with the region of each ("": none).

    ``logs`` is [sizes, points], ``masks`` has a bit a kernel; ``rows`` holds by point (median in microseconds, kernel), the fastest first.
    """

    problems: tuple[str, ...]
    regions: NDArray[np.str_]
    logs: NDArray[np.float64]
    masks: NDArray[np.uint64]
    rows: tuple[tuple[tuple[float, int], ...], ...]


class _Fixed(NamedTuple):
    """What one setting of the attributes settles: kernels it leaves, a bit each, and classes, but for the axes that look at more."""

    legal: int
    classes: tuple[str | None, ...]
    open_axes: tuple[int, ...]


class Tables:
    """An op's kernels for one architecture, numbered in the order of their names, with the conditions, times and rates of each."""

    def __init__(self, frozen: FrozenOp, arch: str) -> None:
        self.arch = arch
        self.interface = Interface(frozen.name, frozen.interface)
        self.ties: tuple[Row, ...] = tuple(frozen.description.get("ties", ()))
        entries = [e for e in frozen.entries if e["bucket"]["arch"] == arch and frozen.kernels[e["kernel"]].arch == arch]
        names = sorted({e["kernel"] for e in entries})
        if len(names) > _MAX_KERNELS:
            raise FrozenError(f"{frozen.folder}: {len(names)} kernels for {arch}; at most {_MAX_KERNELS} are served")
        self.kernels: tuple[FrozenKernel, ...] = tuple(frozen.kernels[n] for n in names)
        self.everything = (1 << len(names)) - 1
        place = {n: i for i, n in enumerate(names)}
        winners = [(tuple(e["bucket"][a] for a in AXES), place[e["kernel"]]) for e in entries if e["role"] == "winner"]
        self.winners = tuple(sorted({kernel for _, kernel in winners}))
        self.bucket_winners = {bucket: tuple(sorted({k for b, k in winners if b == bucket})) for bucket, _ in winners}
        self.fallbacks = tuple(sorted({place[e["kernel"]] for e in entries if e["role"] == "fallback"}))
        self.roles = {i: sorted({e["role"] for e in entries if e["kernel"] == n}) for n, i in place.items()}
        self.statuses = {i: sorted({e["status"] for e in entries if e["kernel"] == n}) for n, i in place.items()}
        self.conditions = _collect_conditions(self.kernels)
        self._attribute_conditions = tuple(c for c in self.conditions if "attribute" in c[2])
        self._size_conditions = tuple(c for c in self.conditions if "attribute" not in c[2])
        self.axes, self._size_axes = _read_axes(frozen.description)
        self._fixed: dict[tuple[Value, ...], _Fixed] = {}
        # A fallback's times say nothing against winners that were not measured beside it.
        winning = {e["kernel"] for e in entries if e["role"] == "winner"}
        medians = [m for m in frozen.medians if m["arch"] == arch and m["kernel"] in winning]
        self.exact = self._read_exact(medians, place)
        self.near = self._read_near(medians, place)
        self.cost = Cost(frozen.description["cost"])
        self._l2_bytes_per_s = ((frozen.description["cost"] or {}).get("l2_bytes_per_s") or {}).get(arch, 0.0)
        self._rates: dict[tuple[Value, ...], tuple[_Rates, ...]] = {}
        self.survey = self._read_survey(frozen)

    def _read_survey(self, frozen: FrozenOp) -> Survey | None:
        row = frozen.surveys.get(self.arch)
        if row is None or frozen.description["cost"] is None:
            return None
        return Survey(row, self.kernels, self.interface, self.cost, self._l2_bytes_per_s)

    def has_surveyed(self, bucket: tuple[str | None, ...]) -> bool:
        """Return whether the survey knows all winners of a bucket (by its classes), so that none is passed over for want of times."""
        return self.survey is not None and all(self.survey.kernels >> k & 1 for k in self.bucket_winners.get(bucket, ()))

    def find_legal(self, query: Query) -> int:
        """Return the kernels whose domain holds, a bit each."""
        legal = self._find_fixed(query).legal
        for holds, mask, _ in self._size_conditions:
            if legal & mask and not holds(query):
                legal &= ~mask
        return legal

    def find_classes(self, query: Query) -> tuple[str | None, ...]:
        """Return the query's class on each axis."""
        fixed = self._find_fixed(query)
        classes = list(fixed.classes)
        for i in fixed.open_axes:
            classes[i] = find_class(self.axes[i], query)
        return tuple(classes)

    def _find_fixed(self, query: Query) -> _Fixed:
        fixed = self._fixed.get(query.values)
        if fixed is None:
            legal = self.everything
            for holds, mask, _ in self._attribute_conditions:
                if not holds(query):
                    legal &= ~mask
            classes = [None if i in self._size_axes else find_class(axis, query) for i, axis in enumerate(self.axes)]
            fixed = self._fixed[query.values] = _Fixed(legal, tuple(classes), self._size_axes)
        return fixed

    def estimate_us(self, query: Query, kernel: int) -> float:
        """Return the roofline's time of a kernel, its tiles' traffic included, stretched by how its blocks fill the chip.

        0 where the op has no cost.
        """
        flops, num_bytes, _, reads = self.cost.find(query)
        rate, bytes_per_s, slots, edges, again = self._find_rates(query)[kernel]
        time_s = num_bytes / bytes_per_s
        if rate > 0.0 and (compute_s := flops / rate) > time_s:
            time_s = compute_s
        if not edges:
            return time_s * 1e6
        sizes = query.sizes
        steps = [-(-sizes[place] // edge) for place, edge in edges]
        blocks = min(math.prod(steps), INT64_MAX)
        if again:
            traffic = 0.0
            for read, places in zip(reads, again):  # noqa: B905 - as many, and told so where they were made
                for place in places:
                    read *= steps[place]
                traffic += read
            traffic_s = traffic / self._l2_bytes_per_s
            if traffic_s > time_s:
                time_s = traffic_s
        return time_s * (float(min(-(-blocks // slots) * slots, INT64_MAX)) / float(blocks)) * 1e6

    def _find_rates(self, query: Query) -> tuple[_Rates, ...]:
        """Return by kernel what its estimate needs with the query's attributes."""
        found = self._rates.get(query.values)
        if found is None:
            unit, shapes = self.cost.find(query).unit, self.cost.list_shapes(query) if self._l2_bytes_per_s > 0.0 else ()
            places = {name: i for i, name in enumerate(self.interface.size_names)}
            found = self._rates[query.values] = tuple(_read_rates(k.manifest["prior"], unit, shapes, places) for k in self.kernels)
        return found

    def _read_exact(self, medians: list[Row], place: Mapping[str, int]) -> dict[Key, list[tuple[float, int]]]:
        table: dict[Key, list[tuple[float, int]]] = {}
        for row in medians:
            table.setdefault(self._key(row), []).append((float(row["median_us"]), place[row["kernel"]]))
        return {key: sorted(rows) for key, rows in table.items()}

    def _key(self, row: Row) -> Key:
        names = self.interface
        if sorted(row["sizes"]) != list(names.size_names) or sorted(row["attributes"]) != list(names.attribute_names):
            raise FrozenError(
                f"{names.op}: index.jsonl: the median of {row['kernel']} on {row['problem']} has other sizes or attributes than the op"
            )
        return tuple(row["sizes"][n] for n in names.size_names), tuple(row["attributes"][n] for n in names.attribute_names)

    def _read_near(self, medians: list[Row], place: Mapping[str, int]) -> dict[Group, Points]:
        groups: dict[Group, dict[str, list[tuple[float, int]]]] = {}
        sizes: dict[str, tuple[int, ...]] = {}
        regions: dict[str, str] = {}
        for row in medians:
            query = self.interface.make_query(Problem(row["sizes"], row["attributes"]))
            regions[row["problem"]] = find_class(self.axes[-1], query) or ""
            points = groups.setdefault(tuple(row["group"].split("/")), {})
            points.setdefault(row["problem"], []).append((float(row["median_us"]), place[row["kernel"]]))
            sizes[row["problem"]] = self._key(row)[0]
        made = {}
        for group, points in groups.items():
            problems = tuple(sorted(points))
            rows = tuple(tuple(sorted(points[p])) for p in problems)
            masks = np.array([sum(1 << k for k in {k for _, k in row}) for row in rows], np.uint64)
            # math.log2 is the C library's, as in the generated dispatcher; NumPy's own may round otherwise.
            logs = np.array([[math.log2(n) for n in sizes[p]] for p in problems]).T.copy()
            made[group] = Points(problems, np.array([regions[p] for p in problems]), logs, masks, rows)
        return made


def _collect_conditions(kernels: tuple[FrozenKernel, ...]) -> tuple[tuple[Condition, int, Row], ...]:
    """Return each different condition once, with the kernels that ask for it, a bit each."""
    found: dict[str, tuple[Row, int]] = {}
    for i, kernel in enumerate(kernels):
        for row in kernel.manifest["domain"]:
            key = json.dumps(row, sort_keys=True)
            found[key] = (row, found.get(key, (row, 0))[1] | 1 << i)
    return tuple((make_condition(row), mask, row) for _, (row, mask) in sorted(found.items()))


def _read_axes(description: Row) -> tuple[tuple[Axis, ...], tuple[int, ...]]:
    """Return the axes, and which of them look at more than attributes."""
    found = {axis["name"]: axis["classes"] for axis in description["axes"]}
    rows = [found.get(name, [{"name": "any", "when": []}]) for name in AXES]
    axes = tuple(tuple((c["name"], tuple(map(make_condition, c["when"]))) for c in classes) for classes in rows)
    return axes, tuple(i for i, classes in enumerate(rows) if any("attribute" not in w for c in classes for w in c["when"]))


def find_class(axis: Axis, query: Query) -> str | None:
    """Return the first class of an axis whose conditions all hold, None where there is none."""
    for name, conditions in axis:
        for holds in conditions:
            if not holds(query):
                break
        else:
            return name
    return None


class _Rates(NamedTuple):
    """What a kernel's estimate needs of the chip and of its tile.

    Peak rates, that of arithmetic 0 where the unit has none; the blocks that the chip runs at once; the tile's edges as (place among the
    sizes, length); and by input the edges that its shape does not name: for every step along one of them it is read again.
    """

    flops_per_s: float
    bytes_per_s: float
    slots: int
    edges: tuple[tuple[int, int], ...]
    again: tuple[tuple[int, ...], ...]


def _read_rates(prior: Row, unit: str, shapes: tuple[list[str], ...], places: Mapping[str, int]) -> _Rates:
    tile = sorted(prior["tile"].items())
    again = tuple(tuple(i for i, (name, _) in enumerate(tile) if name not in names) for names in shapes)
    edges = tuple((places[name], edge) for name, edge in tile)
    return _Rates(prior["flops_per_s"].get(unit, 0.0), prior["bytes_per_s"], prior["slots"], edges, again)
