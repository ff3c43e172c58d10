"""The arguments of an op: tensors, attributes, scalars; and sizes that follow from others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.errors import SpecError
from harness.spec.conditions import AttributeValue
from harness.spec.formulas import Formula
from harness.spec.problem import Problem
from harness.spec.values import PLAIN, Indices, Values

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*\Z")
SCALAR_DTYPES = ("float32", "float64", "int32", "int64")


def require_identifier(kind: str, name: str) -> None:
    """Raise :class:`SpecError` for a name that is no identifier in lower case."""
    if not _IDENTIFIER.match(name):
        raise SpecError(f"{kind} name {name!r}: use lower-case letters, digits and underscores, starting with a letter")


class Role(StrEnum):
    """Which way a tensor's data flows; an INOUT is read, and overwritten in place."""

    INPUT = "input"
    OUTPUT = "output"
    INOUT = "inout"


class Strides(StrEnum):
    """Which strides a tensor may have.

    ``PACKED``: row-major without gaps. ``ROWS``: the stride of its rows may exceed a row's length (leading dimension). ``OUTER``: each
    dimension but the last has a stride of its own, in any order; elements of the last are neighbours. ``ANY``: the last has one, too.
    No two elements share a place.
    """

    PACKED = "packed"
    ROWS = "rows"
    OUTER = "outer"
    ANY = "any"


def _always(_: Problem) -> bool:
    return True


Dimension = str | int


@dataclass(frozen=True)
class Tensor:
    """One array argument, row-major unless a problem orders it otherwise.

    ``shape`` names the sizes of a problem, outermost first (``("M", "K")``); a number is that many elements, and ``()`` one value in device
    memory (a step, a learning rate, a seed). ``dtype`` is a name of NumPy's or ``bfloat16``. Both, and ``values``, may be functions of the
    problem, where its attributes choose. ``present`` tells for which problems the tensor is passed at all; where it is not, the binding is
    given ``None``. ``strides`` says how it may lie in memory, which :attr:`Problem.padding` and :attr:`Problem.orders` exercise;
    ``can_pad_rows`` is short for ``Strides.ROWS``. ``values`` says what the elements of an input may be. ``since`` numbers the growths of
    an op whose kernels are frozen: fields of a later one lie behind all others, so that kernels sealed before still serve; ``is_added`` is
    short for ``since=1``.
    """

    name: str
    shape: tuple[Dimension, ...] | Callable[[Problem], tuple[Dimension, ...]]
    role: Role
    dtype: str | Callable[[Problem], str] = "float32"
    present: Callable[[Problem], bool] = _always
    can_pad_rows: bool = False
    strides: Strides = Strides.PACKED
    values: Values | Callable[[Problem], Values] = PLAIN
    since: int = 0
    is_added: bool = False

    def __post_init__(self) -> None:
        if self.can_pad_rows and self.strides is Strides.PACKED:
            object.__setattr__(self, "strides", Strides.ROWS)
        object.__setattr__(self, "can_pad_rows", self.strides is Strides.ROWS)
        if self.is_added and not self.since:
            object.__setattr__(self, "since", 1)
        object.__setattr__(self, "is_added", self.since > 0)

    @property
    def is_read(self) -> bool:
        """Whether kernels read what the caller put there."""
        return self.role is not Role.OUTPUT

    @property
    def is_written(self) -> bool:
        """Whether kernels write it."""
        return self.role is not Role.INPUT

    @property
    def is_strided(self) -> bool:
        """Whether dimensions have strides of their own."""
        return self.strides in (Strides.OUTER, Strides.ANY)

    def name_sizes(self, problem: Problem) -> tuple[Dimension, ...]:
        """Return the names of the sizes that are the shape for ``problem``, numbers where it has them."""
        return self.shape(problem) if callable(self.shape) else self.shape

    def resolve_shape(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape in elements for ``problem``."""
        return tuple(dim if isinstance(dim, int) else problem.sizes[dim] for dim in self.name_sizes(problem))

    def resolve_dtype(self, problem: Problem) -> str:
        """Return the name of the element type for ``problem``."""
        return self.dtype(problem) if callable(self.dtype) else self.dtype

    def resolve_values(self, problem: Problem) -> Values:
        """Return what the elements may be for ``problem``."""
        return self.values(problem) if callable(self.values) else self.values

    def find_strides(self, problem: Problem) -> tuple[int, ...]:
        """Return the strides in elements for ``problem``, outermost dimension first."""
        shape = self.resolve_shape(problem)
        pads = self._list_padding(problem, len(shape))
        strides = [1] * len(shape)
        step = 1
        for dim in reversed(problem.orders.get(self.name, range(len(shape)))):
            strides[dim] = step + pads[dim]
            step = strides[dim] * shape[dim]
        return tuple(strides)

    def _list_padding(self, problem: Problem, rank: int) -> tuple[int, ...]:
        padding = problem.padding.get(self.name, 0)
        if isinstance(padding, tuple):
            return padding
        return tuple(padding if dim == rank - 2 else 0 for dim in range(rank))

    def find_row_strides(self, problem: Problem) -> int | tuple[int, ...] | None:
        """Return what conditions on rows ask of: the row stride, or each dimension's where the tensor has these; None for a vector."""
        strides = self.find_strides(problem)
        if len(strides) < 2:
            return None
        return strides if self.is_strided else strides[-2]

    def check_problem(self, problem: Problem) -> str:
        """Return what is wrong with how a problem lays this tensor out, "" where nothing is."""
        rank = len(self.name_sizes(problem))
        padding, order = problem.padding.get(self.name, 0), problem.orders.get(self.name)
        if padding and self.strides is Strides.PACKED:
            return f"tensor {self.name} cannot have padded rows"
        if isinstance(padding, tuple) and (not self.is_strided or len(padding) != rank):
            return f"padding {self.name}={padding}: a number per dimension needs Strides.OUTER or ANY, and {rank} of them"
        if order is not None and (not self.is_strided or len(order) != rank):
            return f"order {self.name}={order}: needs Strides.OUTER or ANY, and each of {rank} dimensions"
        is_last_moved = (order is not None and order[-1] != rank - 1) or (isinstance(padding, tuple) and padding[-1:] > (0,))
        if is_last_moved and self.strides is Strides.OUTER:
            return f"tensor {self.name}: elements of its last dimension must be neighbours (Strides.OUTER)"
        values = self.resolve_values(problem)
        if isinstance(values, Indices) and isinstance(values.below, str) and values.below not in problem.sizes:
            return f"tensor {self.name}: its values are below size {values.below}, which does not exist"
        return ""


@dataclass(frozen=True)
class Attribute:
    """A choice that is not a tensor, with the values it accepts.

    ``passed`` is False for what the arrays tell: whether an optional tensor is there (:attr:`Tensor.present`), or the dtype of one; the
    binding then sees the tensors, and not the attribute. ``since`` is as for tensors. ``codes`` are what the C struct holds for choices
    among names, where these are not numbered in their order: kernels sealed before an order was changed go by them.
    """

    name: str
    choices: tuple[AttributeValue, ...]
    default: AttributeValue
    passed: bool = True
    since: int = 0
    codes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.codes and (len(set(self.codes)) != len(self.choices) or len(self.codes) != len(self.choices)):
            raise SpecError(f"attribute {self.name}: its {len(self.choices)} choices need as many different codes, not {self.codes}")


@dataclass(frozen=True)
class Scalar:
    """A number that a launch is given by value: an eps, a scale, a probability.

    It lies from ``low`` to ``high``, or is one of ``choices``. ``verify`` draws it (evenly over its logarithm where ``is_log``), and a
    problem names those that differ from ``default``.
    """

    name: str
    default: float
    low: float = -math.inf
    high: float = math.inf
    dtype: str = "float32"
    choices: tuple[float, ...] = ()
    is_log: bool = False

    def __post_init__(self) -> None:
        require_identifier("scalar", self.name)
        if self.dtype not in SCALAR_DTYPES:
            raise SpecError(f"scalar {self.name}: dtype {self.dtype!r} is not one of {', '.join(SCALAR_DTYPES)}")
        if not self.choices and not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise SpecError(f"scalar {self.name}: give it low and high, from which it is drawn, or choices")
        if self.is_log and self.low <= 0:
            raise SpecError(f"scalar {self.name}: a logarithm needs low > 0, not {self.low}")
        if fault := self.find_fault(self.default):
            raise SpecError(f"scalar {self.name}: its default is wrong: {fault}")

    @property
    def is_whole(self) -> bool:
        """Whether it is an integer."""
        return self.dtype.startswith("int")

    def find_fault(self, value: float) -> str:
        """Return what is wrong with a value, "" where nothing is."""
        if self.is_whole and value != int(value):
            return f"{self.name}={value!r} is not a whole number"
        if self.choices:
            return "" if value in self.choices else f"{self.name}={value!r} is not one of {list(self.choices)}"
        return "" if self.low <= value <= self.high else f"{self.name}={value!r} is not from {self.low!r} to {self.high!r}"


@dataclass(frozen=True)
class Derived:
    """A size that follows from others and from whole-number attributes: ``Derived("P", "(H + 2 * pad - R) // step + 1")``."""

    name: str
    formula: str

    def __post_init__(self) -> None:
        Formula(self.formula)

    def evaluate(self, sizes: Mapping[str, int], attributes: Mapping[str, Any]) -> int:
        """Return the size."""
        known = {name: value for name, value in attributes.items() if isinstance(value, int)}
        return Formula(self.formula).evaluate({**known, **sizes})
