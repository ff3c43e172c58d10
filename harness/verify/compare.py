"""Comparison of a kernel's output with the float64 reference, element by element, written so that NaN fails.

An element is right when ``|actual - expected| <= bound`` with the difference taken in float64; where the reference, rounded to the
output's dtype, is NaN or infinite, the element must be NaN or the same infinity. The bound is the op's own, derived from the arithmetic
(:attr:`harness.spec.Op.tolerance`); nothing is added to it here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.spec.dtypes import find_largest, is_float
from harness.verify.bias import Bias


@dataclass(frozen=True)
class Comparison:
    """How far an output is from its reference.

    ``max_error_ratio`` is the largest error divided by the bound allowed there (at most 1 when ``ok``); ``max_ulp`` is the largest error
    in units of the output dtype's spacing at the reference value. Errors are over elements whose reference is finite in the output's dtype;
    one that is not finite itself counts as an infinite error. ``bias`` is the mean over rows of the signed error, as a share of the bound.
    ``first_bad_index`` is in row-major order, None when ``ok``.
    """

    ok: bool
    shape: tuple[int, ...]
    num_mismatched: int
    num_nan: int
    max_abs_error: float
    max_error_ratio: float
    max_ulp: float
    bias: Bias = field(default_factory=Bias)
    first_bad_index: tuple[int, ...] | None = None
    actual: float = 0.0
    expected: float = 0.0
    bound: float = 0.0

    @property
    def num_elems(self) -> int:
        """Elements compared."""
        return int(np.prod(self.shape, dtype=np.int64))

    def describe(self, name: str) -> str:
        """Say in one line what is wrong with tensor ``name``, or how close it is."""
        size = "x".join(map(str, self.shape))
        if self.ok:
            figures = f"{self.max_error_ratio:.2f} of the bound, {self.max_ulp:.3g} ulp"
            return f"{name} [{size}]: largest error {self.max_abs_error:.3g} ({figures})"
        nans = f", {self.num_nan} of them NaN" if self.num_nan else ""
        where = list(self.first_bad_index or ())
        error = abs(self.actual - self.expected)
        return (
            f"{name} [{size}]: {self.num_mismatched} of {self.num_elems} elements wrong{nans}; first at {where}: "
            f"got {self.actual!r}, expected {self.expected!r}, error {error:.3g} where {self.bound:.3g} is allowed"
        )


def _round(expected: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Return a reference as the output's dtype has it: what is beyond the largest number is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return expected.astype(dtype).astype(np.float64) if is_float(dtype) else expected


def find_mismatches(actual: NDArray[Any], expected: NDArray[np.float64], bound: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return True per element of ``actual`` that is wrong. Shapes must agree; ``bound`` broadcasts."""
    if actual.shape != expected.shape:
        raise ValueError(f"output has shape {actual.shape}, the reference {expected.shape}")
    allowed = np.broadcast_to(bound, actual.shape)
    got = actual.astype(np.float64)
    rounded = _round(expected, actual.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        within = np.abs(got - expected) <= allowed
    right = np.where(np.isfinite(rounded), within & np.isfinite(got), (got == rounded) | (np.isnan(got) & np.isnan(rounded)))
    return ~right


def is_right(actual: NDArray[Any], expected: NDArray[np.float64], bound: NDArray[np.float64]) -> bool:
    """Return whether no element of ``actual`` is wrong: what :func:`find_mismatches` says, in a fraction of its time for a right output."""
    if actual.shape == expected.shape and (not is_float(actual.dtype) or np.abs(expected).max(initial=0.0) <= find_largest(actual.dtype)):
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.abs(actual.astype(np.float64) - expected)
            if error.max(initial=0.0) < np.inf and bool((error <= bound).all()):
                return True
    # Infinities and NaN that are expected, or something is wrong.
    return not find_mismatches(actual, expected, bound).any()


def find_different_bits(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which elements have other bits; of one shape and dtype."""
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return np.asarray(a.view(unsigned) != b.view(unsigned))


def _find_spacing(expected: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    if not is_float(dtype):
        return np.ones_like(expected)
    limit = find_largest(dtype)
    return np.asarray(np.abs(np.spacing(np.clip(expected, -limit, limit).astype(dtype)).astype(np.float64)))


def _find_bias(signed: NDArray[np.float64]) -> Bias:
    """Return the mean of signed error ratios, which are those of a right output."""
    if not signed.size:
        return Bias()
    return Bias(float(signed.mean()), signed.size // signed.shape[-1] if signed.ndim else 1)


def _compare_right(actual: NDArray[Any], expected: NDArray[np.float64], bound: NDArray[np.float64]) -> Comparison | None:
    """Return what :func:`compare` does for an output that is right and finite, None for others: in a fraction of the time."""
    if actual.shape != expected.shape or (is_float(actual.dtype) and not np.abs(expected).max(initial=0.0) <= find_largest(actual.dtype)):
        return None
    got = actual.astype(np.float64)
    if (bound >= 0).all() and np.array_equal(got, expected):  # elements that were moved
        return Comparison(True, tuple(actual.shape), 0, 0, 0.0, 0.0, 0.0, bias=_find_bias(np.broadcast_to(0.0, got.shape)))
    with np.errstate(over="ignore", invalid="ignore"):
        signed = got - expected
    error = np.abs(signed)
    if not (error.max(initial=0.0) < np.inf and (error <= bound).all()):
        return None
    is_off, shares, ulp = error > 0, np.zeros(error.shape), np.zeros(error.shape)
    np.divide(signed, bound, out=shares, where=is_off)
    np.divide(error, _find_spacing(expected, actual.dtype), out=ulp, where=is_off)
    return Comparison(
        ok=True,
        shape=tuple(actual.shape),
        num_mismatched=0,
        num_nan=0,
        max_abs_error=float(error.max(initial=0.0)),
        max_error_ratio=float(np.abs(shares).max(initial=0.0)),
        max_ulp=float(ulp.max(initial=0.0)),
        bias=_find_bias(shares),
    )


def compare(actual: NDArray[Any], expected: NDArray[np.float64], bound: NDArray[np.float64]) -> Comparison:
    """Compare an output in its own dtype with a float64 reference of the same shape under an absolute bound per element."""
    return _compare_right(actual, expected, bound) or _compare_any(actual, expected, bound)


def _compare_any(actual: NDArray[Any], expected: NDArray[np.float64], bound: NDArray[np.float64]) -> Comparison:
    bad = find_mismatches(actual, expected, bound)
    allowed = np.broadcast_to(bound, actual.shape)
    got = actual.astype(np.float64)
    finite = np.isfinite(_round(expected, actual.dtype))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.where(finite, np.abs(got - expected), 0.0)
        error = np.where(np.isnan(error), np.inf, error)
        ratio = np.where(error > 0, error / allowed, 0.0)
        ulp = np.where(error > 0, error / _find_spacing(np.where(finite, expected, 0.0), actual.dtype), 0.0)
    result = Comparison(
        ok=not bad.any(),
        shape=tuple(actual.shape),
        num_mismatched=int(np.count_nonzero(bad)),
        num_nan=int(np.count_nonzero(bad & np.isnan(got))),
        max_abs_error=float(error.max(initial=0.0)),
        max_error_ratio=float(np.where(np.isnan(ratio), np.inf, ratio).max(initial=0.0)),
        max_ulp=float(ulp.max(initial=0.0)),
    )
    if result.ok:
        return replace(result, bias=_find_bias(np.where(got < expected, -ratio, ratio)))
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    return replace(result, first_bad_index=index, actual=float(got[index]), expected=float(expected[index]), bound=float(allowed[index]))
