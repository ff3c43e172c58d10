"""Where two results differ, in words and as masks. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.verify.compare import Comparison
from harness.verify.findings import FaultKind


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


def find_different_bits(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which elements have other bits; of one shape and dtype."""
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return np.asarray(a.view(unsigned) != b.view(unsigned))
