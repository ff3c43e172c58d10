"""The decision in words: what the core (:mod:`contract.decision`) chose, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aicf.registry.tables import Tables
from contract.decision import Asked, Decided, How


@dataclass(frozen=True, slots=True)
class Decision:
    """The kernel by number, which step found it, its time where one is known or estimated, and the reason in words."""

    kernel: int
    how: How
    predicted_us: float | None
    reason: str


def decide(tables: Tables, asked: Asked, legal: int) -> Decision | None:
    """Return the decision among the kernels of ``legal`` (a bit each); None where there is none."""
    found = tables.core.decide(asked, legal)
    return None if found is None else Decision(found.kernel, found.how, found.us, _describe(tables, found))


def _describe(tables: Tables, found: Decided) -> str:
    place = "its bucket" if found.in_bucket else "any bucket"
    if found.how is How.MEASURED:
        return f"the least time measured at these sizes and attributes: {found.us:.4g} us"
    if found.how is How.SURVEYED:
        return f"the least time that the survey predicts: {found.us:.4g} us"
    if found.how is How.NEAR:
        where = f"{tables.core.table.problems[found.point]}, in {place}, {math.sqrt(found.distance):.2g} doublings away"
        return f"the least time at the nearest measured problem, {where}: {found.us:.4g} us"
    if found.how is How.FALLBACK:
        return "no winner serves this call; this is the first fallback that does"
    if found.us is None:
        return f"nothing near was measured, and the index has no cost to estimate by; the first by name of the winners of {place}"
    return f"nothing near was measured; the least estimate of the winners of {place}: {found.us:.4g} us"
