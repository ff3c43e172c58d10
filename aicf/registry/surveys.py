"""What a survey says of a call: times by a model of each kernel, fitted to measured times, and set right by what was measured near.

The model is a roofline with measured rates (S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009, gives the peaks) that
adds its terms: a launch, the waves of blocks, their arithmetic with what tiles pad, the least traffic of memory, and what tiles read.
``docs/frozen.md`` is its text, ``surveys.cpp`` the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aicf.building.native import load_extension
from aicf.errors import FrozenError
from aicf.registry.problems import Value
from aicf.registry.queries import Interface, Query
from aicf.registry.works import Cost
from contract.frozen_set import Row
from contract.kernels import FrozenKernel

NUM_TERMS = 5
NUM_GROUP_AXES = 2
_SOURCE = Path(__file__).with_suffix(".cpp")


class Survey:
    """An architecture's survey of an op.

    ``places`` are the numbers of its kernels among those of the architecture, ``kernels`` the same with a bit for each.
    """

    def __init__(self, row: Row, kernels: Sequence[FrozenKernel], interface: Interface, cost: Cost, l2_bytes_per_s: float) -> None:
        place = {k.name: i for i, k in enumerate(kernels)}
        self.places = [place[name] for name in sorted(row["weights"]) if name in place]
        self.kernels = sum(1 << i for i in self.places)
        self._names, self._cost = interface.size_names, cost
        chosen = [kernels[i] for i in self.places]
        self._priors = [k.manifest["prior"] for k in chosen]
        edges = np.array([[prior["tile"].get(name, 0) for name in self._names] for prior in self._priors], np.int64)
        slots, bytes_per_s = (np.array([prior[key] for prior in self._priors], np.float64) for key in ("slots", "bytes_per_s"))
        weights = np.array([row["weights"][k.name] for k in chosen], np.float64)
        self._settings: dict[tuple[Value, ...], int] = {}
        self._predictor: Any = None
        self._groups: dict[tuple[str | None, ...], int] = {}
        if chosen:
            predictor = load_extension(_SOURCE).Predictor
            self._predictor = predictor(len(self._names), len(chosen), edges, slots, bytes_per_s, l2_bytes_per_s, weights)
            at = {k.name: i for i, k in enumerate(chosen)}
            self._groups = {tuple(g["group"].split("/")): self._add_group(g, at, interface.op) for g in row["groups"]}

    def predict_us(self, query: Query, group: tuple[str | None, ...]) -> list[float]:
        """Return microseconds by kernel, in the order of ``places``; ``group`` is the call's class on the first axes."""
        flops, num_bytes, _, reads = self._cost.find(query)
        found: list[float] = self._predictor.predict(
            query.sizes, flops, num_bytes, reads, self._find_setting(query), self._groups.get(group, -1)
        )
        return found

    def find_terms(self, query: Query) -> list[tuple[float, ...]]:
        """Return the model's terms by kernel: a launch (1 us), waves, and microseconds of arithmetic, memory and tiles' reads."""
        flops, num_bytes, _, reads = self._cost.find(query)
        found: list[tuple[float, ...]] = self._predictor.terms(query.sizes, flops, num_bytes, reads, self._find_setting(query))
        return found

    def _find_setting(self, query: Query) -> int:
        found = self._settings.get(query.values)
        if found is None:
            unit = self._cost.find(query).unit
            rates = np.array([prior["flops_per_s"].get(unit, 0.0) for prior in self._priors], np.float64)
            bits = [sum(1 << i for i, name in enumerate(self._names) if name in shape) for shape in self._cost.list_shapes(query)]
            found = self._settings[query.values] = self._predictor.add_setting(rates, np.array(bits, np.uint64))
        return found

    def _add_group(self, row: Mapping[str, Any], at: Mapping[str, int], op: str) -> int:
        names, num_sizes = row["kernels"], len(self._names)
        try:
            table = np.array([[math.nan if x is None else x for x in point] for point in row["points"]], np.float64)
        except (TypeError, ValueError) as error:
            raise FrozenError(f"{op}: index.jsonl: survey: group {row['group']}: points must be lists of numbers of one length") from error
        if table.ndim != 2 or table.shape[1] != num_sizes + len(names) or not (table[:, :num_sizes] >= 1).all():
            raise FrozenError(f"{op}: index.jsonl: survey: group {row['group']}: a point has {num_sizes} sizes and an error by kernel")
        errors = np.full((len(table), len(at)), math.nan)
        for column, name in enumerate(names):
            if name in at:
                errors[:, at[name]] = table[:, num_sizes + column]
        # math.log2 is the C library's, as in the generated dispatcher; NumPy's own may round otherwise.
        logs = np.array([[math.log2(size) for size in point] for point in table[:, :num_sizes].tolist()], np.float64)
        number: int = self._predictor.add_group(len(table), logs, errors)
        return number
