"""The arguments of a loose kernel, in the order of its parameters: arrays, sizes and scalars by value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.errors import SpecError
from harness.spec import PLAIN, Role, Values
from harness.spec.arguments import SCALAR_DTYPES, Scalar, require_identifier
from harness.spec.dtypes import find_dtype

_WHOLE = {"int32": "int", "int64": "long long", "uint32": "unsigned", "uint64": "unsigned long long"}
_LIMITS = {"int32": 2**31 - 1, "uint32": 2**32 - 1}


@dataclass(frozen=True, init=False)
class Array:
    """An array in device memory. Each dimension is a size, a number, or a formula of sizes such as ``"h + 16"``, outermost first.

    ``dtype`` is a name of NumPy's, or ``bfloat16``; ``values`` what the elements of an input may be.
    """

    shape: tuple[str | int, ...]
    dtype: str
    values: Values
    role: Role = field(default=Role.INPUT, init=False)

    def __init__(self, *shape: str | int, dtype: str = "float32", values: Values = PLAIN) -> None:
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "role", type(self)._ROLE)

    _ROLE = Role.INPUT


class In(Array):
    """An array that the kernel reads: ``In("rows", "columns")``."""


class Out(Array):
    """An array that the kernel writes whole; it holds anything before: ``Out("rows")``."""

    _ROLE = Role.OUTPUT


class InOut(Array):
    """An array that the kernel overwrites; the reference is given what it held before: ``InOut("n")``."""

    _ROLE = Role.INOUT


@dataclass(frozen=True)
class Size:
    """A size by value; the argument's own name where none is given: ``"n": Size()``."""

    of: str | None = None
    dtype: str = "int32"


@dataclass(frozen=True)
class Value:
    """A number by value, from ``low`` to ``high``, from which it is drawn when the kernel is proved: ``Value(2.0, 0.1, 10.0)``."""

    default: float
    low: float
    high: float
    dtype: str = "float32"


Argument = Array | Size | Value


@dataclass(frozen=True)
class Arguments:
    """A kernel's arguments by name, checked against its sizes."""

    items: Mapping[str, Argument]
    sizes: frozenset[str]

    def __post_init__(self) -> None:
        if not isinstance(self.items, Mapping) or not self.items:
            raise SpecError(
                'arguments: give a dict in the order of the kernel\'s parameters, e.g. {"y": Out("n"), "x": In("n"), "n": Size()}'
            )
        for name, argument in self.items.items():
            require_identifier("argument", name)
            _check_argument(name, argument, self.sizes)
        if not self.outputs:
            raise SpecError("arguments: no array is written; make one Out(...) or InOut(...)")

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays, in order."""
        return {name: a for name, a in self.items.items() if isinstance(a, Array)}

    @property
    def outputs(self) -> list[str]:
        """The names of the arrays that are written."""
        return [name for name, a in self.arrays.items() if a.role is not Role.INPUT]

    @property
    def scalars(self) -> dict[str, Scalar]:
        """The scalars, in order."""
        values = {name: a for name, a in self.items.items() if isinstance(a, Value)}
        return {name: Scalar(name, v.default, v.low, v.high, v.dtype) for name, v in values.items()}

    @property
    def limits(self) -> dict[str, int]:
        """The largest value that the kernel is given of each size, where its type has one."""
        found: dict[str, int] = {}
        for name, a in self.items.items():
            if isinstance(a, Size) and a.dtype in _LIMITS:
                size = a.of or name
                found[size] = min(_LIMITS[a.dtype], found.get(size, 2**63))
        return found

    def list_calls(self) -> list[str]:
        """Return the C++ expression that each parameter is given, from ``params``."""
        calls = []
        for name, a in self.items.items():
            if isinstance(a, Array):
                # Kernels in the wild take what they only read without const, too.
                calls.append(f"plain::Pointer{{params.{name}}}")
            elif isinstance(a, Size):
                calls.append(f"static_cast<{_WHOLE[a.dtype]}>(params.{(a.of or name).lower()})")
            else:
                calls.append(f"params.{name}")
        return calls


def _check_argument(name: str, argument: Argument, sizes: frozenset[str]) -> None:
    """Raise SpecError for what cannot be an argument, naming it and the remedy."""
    where = f"arguments: {name}"
    if not isinstance(argument, Array | Size | Value):
        raise SpecError(f"{where} is {argument!r}: give In, Out or InOut with a shape, Size(), or Value(default, low, high)")
    if isinstance(argument, Size):
        size = argument.of or name
        if size not in sizes:
            raise SpecError(f"{where} is the size {size!r}, which does not exist (sizes: {', '.join(sorted(sizes))}); write Size(of=...)")
        if argument.dtype not in _WHOLE:
            raise SpecError(f"{where} has dtype {argument.dtype!r}: a size is one of {', '.join(_WHOLE)}")
    elif isinstance(argument, Value):
        if argument.dtype not in SCALAR_DTYPES:
            raise SpecError(f"{where} has dtype {argument.dtype!r}: a value is one of {', '.join(SCALAR_DTYPES)}")
    else:
        if name in sizes:
            raise SpecError(f"{where} is an array and a size: rename one of them")
        try:
            find_dtype(argument.dtype)
        except TypeError as error:
            raise SpecError(f"{where} has dtype {argument.dtype!r}, which is neither a NumPy dtype nor bfloat16") from error
        if not all(isinstance(d, str) or (isinstance(d, int) and d >= 1) for d in argument.shape):
            raise SpecError(f"{where} has shape {argument.shape!r}: a dimension is a size, a formula of sizes, or a number from 1 on")
