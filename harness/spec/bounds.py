"""Error bounds that ops share: rounding errors of a dtype, of sums in any order, of CUDA's functions. An op's ``tolerance`` adds them up.

A bound is derived from the arithmetic, never guessed; a probabilistic one holds for all results of a problem with probability 1 - 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

# Largest relative error of rounding to nearest.
UNIT_ROUNDOFF: Mapping[str, float] = MappingProxyType({"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8})
SMALLEST_NORMAL: Mapping[str, float] = MappingProxyType(
    {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
)
SMALLEST_SUBNORMAL: Mapping[str, float] = MappingProxyType(
    {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
)
# Largest errors of fp32 functions in units of the last place (CUDA C++ Programming Guide, "Mathematical Functions"); one is two roundings.
_TWO_ULPS = ("expf", "exp2f", "tanhf", "erff", "rsqrtf", "sinf", "cosf")
ULPS: Mapping[str, float] = MappingProxyType({"logf": 1.0, "log2f": 1.0, "log1pf": 1.0, "expm1f": 1.0} | dict.fromkeys(_TWO_ULPS, 2.0))
# Chance that a right kernel breaks a bound anywhere in one problem.
FAILURE_PROBABILITY = 1e-9


def count_roundings(num_terms: int, num_results: int) -> float:
    """Return how many roundings of one size a sum of ``num_terms`` amounts to, whatever its order: at most one per term.

    The errors of single additions are as good as independent and of mean zero: with probability 1 - 1e-9, ``num_results`` such sums are
    all within l sqrt(n) (N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41, 2019, Theorem 2.4).
    """
    spread = math.sqrt(2.0 * math.log(2.0 * num_terms * num_results / FAILURE_PROBABILITY))
    return min(float(num_terms), spread * math.sqrt(num_terms))


def find_sum_factor(num_roundings: int, num_results: int, dtype: str = "float32") -> float:
    """Return g such that ``num_roundings`` successive roundings err by at most g times the sum of the terms' magnitudes.

    The smaller of the deterministic n u / (1 - n u) and the probabilistic exp(l sqrt(n) u + n u^2 / (1 - u)) - 1 (ibid.), whatever the
    order of the sum, fused or not. The deterministic one does not hold from n u = 1 on.
    """
    n, u = num_roundings, UNIT_ROUNDOFF[dtype]
    spread = math.sqrt(2.0 * math.log(2.0 * max(n, 1) * num_results / FAILURE_PROBABILITY))
    likely = math.expm1(spread * math.sqrt(n) * u + n * u * u / (1.0 - u))
    return min(n * u / (1.0 - n * u), likely) if n * u < 1.0 else likely


def bound_sum(magnitudes: NDArray[np.float64], num_terms: int, num_results: int, dtype: str = "float32") -> NDArray[np.float64]:
    """Return the bound of sums of ``num_terms``, by the sums of their terms' magnitudes; subnormal terms may be flushed to zero."""
    return np.asarray(find_sum_factor(num_terms, num_results, dtype) * magnitudes + (num_terms + 1) * SMALLEST_NORMAL[dtype])


def bound_rounding(values: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Return the bound of rounding values to a dtype: u times each of them, and half of the distance of its subnormals."""
    return np.asarray(UNIT_ROUNDOFF[dtype] * np.abs(values) + 0.5 * SMALLEST_SUBNORMAL[dtype])


def add_rounding(error: NDArray[np.float64], values: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Return the bound of an fp32 result with a bound of its own that is stored in ``dtype``; fp32 itself costs nothing more."""
    if dtype == "float32":
        return error
    return np.asarray(error * (1.0 + UNIT_ROUNDOFF[dtype]) + bound_rounding(values, dtype))
