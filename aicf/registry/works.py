"""An op's least work, by call: flops, bytes, and what of them each input is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aicf.registry.problems import Value, find_row
from aicf.registry.queries import Query
from contract.frozen_set import Row


class Work(NamedTuple):
    """A call's least work, the unit of its flops ("" where the op has no cost), and the bytes of each input where it says them."""

    flops: float
    num_bytes: float
    unit: str
    reads: tuple[float, ...]


_NO_WORK = Work(0.0, 0.0, "", ())
Sum = Callable[[Query], float]


class Cost:
    """An op's least work, as sums of products of sizes."""

    def __init__(self, row: Row | None) -> None:
        self._row = row
        self._known: dict[tuple[Value, ...], tuple[Sum, Sum, str, tuple[Sum, ...], tuple[list[str], ...]]] = {}
        # Estimates of several kernels are asked for on one query.
        self._last: tuple[Query | None, Work] = (None, _NO_WORK)

    def find(self, query: Query) -> Work:
        """Return the work of a call."""
        last, work = self._last
        if self._row is None or last is query:
            return work
        flops, moved, unit, reads, _ = self._find_known(query, self._row)
        work = Work(flops(query), moved(query), unit, tuple(read(query) for read in reads))
        self._last = (query, work)
        return work

    def list_shapes(self, query: Query) -> tuple[list[str], ...]:
        """Return the names of each input's sizes, in the order of ``reads``."""
        return () if self._row is None else self._find_known(query, self._row)[4]

    def _find_known(self, query: Query, row: Row) -> tuple[Sum, Sum, str, tuple[Sum, ...], tuple[list[str], ...]]:
        known = self._known.get(query.values)
        if known is None:
            flops, moved, unit = (find_row(row[name], query.attributes) for name in ("flops", "bytes_moved", "flop_unit"))
            reads = find_row(row["reads"], query.attributes) or () if "reads" in row else ()
            sums = tuple(_make_sum([term]) for term in reads)
            known = (_make_sum(flops or ()), _make_sum(moved or ()), unit or "", sums, tuple(term[1] for term in reads))
            self._known[query.values] = known
        return known


def _make_sum(terms: Sequence[Any]) -> Callable[[Query], float]:
    def evaluate(query: Query) -> float:
        total = 0.0
        for coefficient, names in terms:
            term = float(coefficient)
            for name in names:
                term *= float(query.by_size[name])
            total += term
        return total

    return evaluate
