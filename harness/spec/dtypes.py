"""Element types of tensors: NumPy's, and bfloat16, which NumPy lacks (the package ``ml_dtypes`` adds it)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def find_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of that name; raises TypeError for one that is not known."""
    return _BFLOAT16 if name == "bfloat16" else np.dtype(name)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether values of ``dtype`` are rounded: bfloat16 counts, whose ``kind`` is not "f"."""
    return dtype.kind == "f" or dtype == _BFLOAT16


def find_largest(dtype: np.dtype[Any]) -> float:
    """Return the largest finite value of a floating dtype."""
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]


def find_smallest_normal(dtype: np.dtype[Any]) -> float:
    """Return the smallest positive normal value of a floating dtype."""
    return float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]
