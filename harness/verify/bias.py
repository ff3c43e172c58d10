"""Errors with the same sign: what their mean says. Pure.

Roundings go up as often as down, so that the errors of a right kernel nearly cancel in the mean. Were the errors of the rows of an output
independent, of mean zero and within the bound, then their mean over m rows would reach the share t of the bound with a chance below
2 exp(-m t^2 / 2) (W. Hoeffding, "Probability inequalities for sums of bounded random variables", JASA 58, 1963). Some right kernels do
have errors of a small mean: tensor cores cut off instead of rounding, and an approximate exponential has a sign. Hence two conditions: a
mean of half the bound, where half of what is allowed would be systematic, and rows enough that chance is ruled out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

LEAST_MEAN = 0.5
_CHANCE = 1e-9


@dataclass(frozen=True)
class Bias:
    """The mean over ``num_rows`` rows of the signed error (actual less expected), as a share of the bound."""

    mean: float = 0.0
    num_rows: int = 0

    def find_fault(self) -> str:
        """Return "" where roundings may explain the mean, else what it is."""
        chance = 2.0 * math.exp(-self.num_rows * self.mean**2 / 2.0)
        if abs(self.mean) < LEAST_MEAN or chance >= _CHANCE:
            return ""
        return (
            f"the mean signed error of {self.num_rows} rows is {self.mean:+.2f} of the bound: independent roundings reach that with a "
            f"chance of {chance:.1g}, and less than {LEAST_MEAN} is allowed"
        )


def pool(biases: Iterable[Bias]) -> Bias:
    """Return the bias of all rows together."""
    known = [b for b in biases if b.num_rows]
    num_rows = sum(b.num_rows for b in known)
    return Bias(sum(b.mean * b.num_rows for b in known) / num_rows, num_rows) if num_rows else Bias()
