"""What the elements of an input may be: the domains that every input distribution respects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plain:
    """Any number of the tensor's dtype."""


@dataclass(frozen=True)
class Indices:
    """Integers from 0 to ``below - 1``, where ``below`` is a size by name, or a number; and those of ``also`` (an ignored index, say).

    ``wrong`` are values that the op must survive: they are drawn in every distribution but ``uniform``, which is timed, because a library
    that is timed beside the op ends the process on one.
    """

    below: str | int
    also: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()


@dataclass(frozen=True)
class Booleans:
    """0 and 1."""


@dataclass(frozen=True)
class Probabilities:
    """Numbers from 0 to 1; with ``rows_sum_to_one`` those of the last dimension add up to 1."""

    rows_sum_to_one: bool = False


@dataclass(frozen=True)
class Positive:
    """Numbers from ``low`` to ``high``, evenly over their logarithm."""

    low: float = 2.0**-10
    high: float = 2.0**10

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise ValueError(f"Positive({self.low}, {self.high}): needs 0 < low <= high")


@dataclass(frozen=True)
class Uniform:
    """Numbers from ``low`` to ``high``, both included; integers where the tensor has such."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"Uniform({self.low}, {self.high}): needs low <= high")


PLAIN = Plain()
Values = Plain | Indices | Booleans | Probabilities | Positive | Uniform
