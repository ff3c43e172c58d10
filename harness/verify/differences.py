"""Where two results differ, in words and as masks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.verify.compare import Comparison, compare, find_different_bits
from harness.verify.findings import FaultKind, Tally
from harness.verify.reference import Part


def classify_mismatch(
    result: Comparison, bad: NDArray[np.bool_], unwritten: NDArray[np.bool_], actual: NDArray[Any], earlier: NDArray[Any] | None
) -> FaultKind:
    """Return the keyword for wrong elements (``bad``): never written, those of ``earlier`` inputs, NaN, or just wrong."""
    if bool((unwritten & bad).any()):
        return FaultKind.NOT_WRITTEN
    if earlier is not None and not find_different_bits(actual, earlier)[bad].any():
        return FaultKind.STALE_OUTPUT
    return FaultKind.NAN if result.num_nan == result.num_mismatched else FaultKind.MISMATCH


def describe_unwritten(bad: NDArray[np.bool_], unwritten: NDArray[np.bool_]) -> str:
    """Say how many of the ``bad`` elements still hold the poison, "" when none does."""
    count = int((bad & unwritten).sum())
    return f"; {count} elements still hold the poison they had before the run" if count else ""


def describe_difference(what: str, name: str, before: NDArray[Any], now: NDArray[Any], differs: NDArray[np.bool_]) -> str:
    """Say how many elements of output ``name`` have other bits ``now`` than ``before``, and where the first one is."""
    index = [int(i) for i in np.unravel_index(int(np.argmax(differs)), differs.shape)]
    return (
        f"{what} in {int(differs.sum())} of {differs.size} elements of {name}; first at {index}: "
        f"{before[tuple(index)]!r} before, {now[tuple(index)]!r} now"
    )


def compare_places(
    tally: Tally,
    check: str,
    name: str,
    grid: Sequence[NDArray[np.intp]],
    actual: NDArray[Any],
    part: Part,
    known: NDArray[np.bool_],
) -> None:
    """Compare the ``known`` elements of an output at a grid of places, given per axis, and put what is wrong into the tally."""
    if not known.any():
        return
    knows_all = bool(known.all())
    if knows_all:
        result = part.compare(name, actual)
    else:
        expected = part.outputs[name]
        result = compare(actual[known], expected[known], np.broadcast_to(part.bounds[name], expected.shape)[known])
    tally.note_comparison(result)
    if result.ok:
        return
    assert result.first_bad_index is not None
    index = result.first_bad_index if knows_all else np.argwhere(known)[result.first_bad_index[0]]
    where = [int(axis[i]) for axis, i in zip(grid, index, strict=True)]
    kind = FaultKind.NAN if result.num_nan == result.num_mismatched else FaultKind.MISMATCH
    detail = (
        f"{name}: {result.num_mismatched} of {result.num_elems} sampled elements wrong; first at {where}: got {result.actual!r}, "
        f"expected {result.expected!r}, error {abs(result.actual - result.expected):.3g} where {result.bound:.3g} is allowed"
    )
    tally.add(kind, check, detail)
