"""Writes expected.txt: by how much a value may be off, and the network of main.cpp in NumPy's float64, one value per line."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BATCH, INPUTS, HIDDEN, OUTPUTS = 64, 96, 256, 32


def make_values(seed: int, shape: tuple[int, ...], scale: float) -> NDArray[np.float64]:
    """Return the values of main.cpp's generator: every one of them is a float32."""
    values = np.empty(int(np.prod(shape)))
    for i in range(values.size):
        seed = (seed * 1664525 + 1013904223) % 2**32
        values[i] = ((seed >> 23) / 256.0 - 1.0) * scale
    return values.reshape(shape)


def find_rounding_factor(num_roundings: int, num_elems: int) -> float:
    """Return g such that that many fp32 roundings err by at most g times the sum of magnitudes, all elements together with chance 1 - 1e-9.

    N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41, 2019, Theorem 2.4.
    """
    u = 2.0**-24
    spread = math.sqrt(2.0 * math.log(2.0 * num_roundings * num_elems / 1e-9))
    return math.expm1(spread * math.sqrt(num_roundings) * u + num_roundings * u * u / (1.0 - u))


def compute() -> tuple[NDArray[np.float64], float]:
    """Return y [64, 32], and the most by which an fp32 result may be off.

    The bounds of the ops, propagated: GELU has a slope of at most 1.13 and 12 roundings of its own; a softmax value moves by at most
    y times the sum of the largest and the mean error of its row's logits, and by its exponential, sum and quotient.
    """
    u = 2.0**-24
    x, w1, b1 = make_values(1, (BATCH, INPUTS), 1.0), make_values(2, (INPUTS, HIDDEN), 0.125), make_values(3, (HIDDEN,), 0.5)
    w2, b2 = make_values(4, (HIDDEN, OUTPUTS), 0.125), make_values(5, (OUTPUTS,), 0.5)
    z = x @ w1 + b1
    z_error = find_rounding_factor(INPUTS + 1, z.size) * (np.abs(x) @ np.abs(w1) + np.abs(b1))
    hidden = 0.5 * z * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (z + 0.044715 * z**3)))
    hidden_error = 1.13 * z_error + 12.0 * u * np.abs(z)
    logits = hidden @ w2 + b2
    own_error = find_rounding_factor(HIDDEN + 1, logits.size) * (np.abs(hidden) @ np.abs(w2) + np.abs(b2))
    logits_error = hidden_error @ np.abs(w2) + own_error
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    y = weights / weights.sum(axis=1, keepdims=True)
    relative = 2.0 * logits_error.max(axis=1, keepdims=True) + (OUTPUTS + 16.0) * u * (1.0 + np.ptp(logits, axis=1, keepdims=True))
    return y, float((y * np.expm1(relative)).max())


def render() -> str:
    """Return the text of expected.txt."""
    y, tolerance = compute()
    return "".join(f"{v:.17g}\n" for v in (tolerance, *y.ravel()))


if __name__ == "__main__":
    Path(__file__).with_name("expected.txt").write_text(render())
