"""The decision: an exact hit, the survey, neighbours and estimates in the bucket, beyond it, the fallback: see ``docs/frozen.md``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from aicf.registry.queries import Query
from aicf.registry.surveys import NUM_GROUP_AXES
from aicf.registry.tables import GROUP_AXES, Points, Tables

MAX_DISTANCE = 9.0


class How(StrEnum):
    """Which step of the decision found the kernel."""

    MEASURED = "measured"
    SURVEYED = "surveyed"
    NEAR = "near"
    PRIOR = "prior"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class Decision:
    """The kernel by number, which step found it, its time where one is known or estimated, and the reason in words."""

    kernel: int
    how: How
    predicted_us: float | None
    reason: str


def decide(tables: Tables, query: Query, legal: int) -> Decision | None:
    """Return the decision among the kernels of ``legal`` (a bit each); None where there is none."""
    for us, kernel in tables.exact.get((query.sizes, query.values), ()):
        if legal >> kernel & 1:
            return Decision(kernel, How.MEASURED, us, f"the least time measured at these sizes and attributes: {us:.4g} us")
    classes = tables.find_classes(query)
    if (predicted := predict(tables, query, legal, classes)) is not None:
        us, kernel = min((us, kernel) for kernel, us in predicted.items() if legal >> kernel & 1)
        return Decision(kernel, How.SURVEYED, us, f"the least time that the survey predicts: {us:.4g} us")
    points = tables.near.get(classes[: len(GROUP_AXES)])
    for is_own, place in ((True, "its bucket"), (False, "any bucket")):
        if points is not None and (found := find_nearest(points, query, legal, (classes[-1] or "") if is_own else None)) is not None:
            at, distance = found
            us, kernel = next(row for row in points.rows[at] if legal >> row[1] & 1)
            where = f"{points.problems[at]}, in {place}, {math.sqrt(distance):.2g} doublings away"
            return Decision(kernel, How.NEAR, us, f"the least time at the nearest measured problem, {where}: {us:.4g} us")
        winners = tables.bucket_winners.get(classes, ()) if is_own else tables.winners
        times = [(tables.estimate_us(query, kernel), kernel) for kernel in winners if legal >> kernel & 1]
        if times:
            us, kernel = min(times)
            if not tables.cost.find(query).unit:
                reason = f"nothing near was measured, and the index has no cost to estimate by; the first by name of the winners of {place}"
                return Decision(kernel, How.PRIOR, None, reason)
            return Decision(kernel, How.PRIOR, us, f"nothing near was measured; the least estimate of the winners of {place}: {us:.4g} us")
    for kernel in tables.fallbacks:
        if legal >> kernel & 1:
            return Decision(kernel, How.FALLBACK, None, "no winner serves this call; this is the first fallback that does")
    return None


def predict(tables: Tables, query: Query, legal: int, classes: tuple[str | None, ...]) -> dict[int, float] | None:
    """Return the microseconds that the survey predicts, by kernel; None where it is not asked, or knows none of the legal ones."""
    survey = tables.survey
    if survey is None or not survey.kernels & legal or not tables.has_surveyed(classes):
        return None
    return dict(zip(survey.places, survey.predict_us(query, classes[:NUM_GROUP_AXES]), strict=True))


def find_nearest(points: Points, query: Query, legal: int, region: str | None = None) -> tuple[int, float] | None:
    """Return the nearest point with a legal kernel, the first by name of those equally near, and its squared distance in doublings.

    With a region only points in it are looked at. None where nothing is near enough.
    """
    total: NDArray[np.float64] | float = 0.0
    for logs, size in zip(points.logs, query.sizes, strict=True):
        difference = logs - math.log2(size)
        difference *= difference
        total = total + difference
    barred = (points.masks & np.uint64(legal)) == 0
    if region is not None:
        barred |= points.regions != region
    total = np.where(barred, math.inf, total)
    at = int(total.argmin())
    distance = float(total[at])
    return (at, distance) if distance <= MAX_DISTANCE else None
