"""All that the framework knows about an op, in one value; and the builder for which gradient rules and lowerings are written.

A rule is a function from values to values: it calls ops through a :class:`Builder`, so that the same rule makes tensors in eager mode,
nodes in a graph, and PyTorch's tensors in the bridge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from aicf.opset.types import Attr, Attrs, Type, find_dtype

# A tensor, a value of a graph, a tensor of PyTorch: whatever the builder at hand makes.
V = Any
Types = Sequence[Type | None]
Arrays = Sequence[Any]
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "required"})()

# What mixed precision does with an op's floating inputs: casts them to the compute dtype, leaves them, or casts them to fp32.
Amp = Literal["always", "follow", "never"]


class Builder(ABC):
    """Calls ops on values of one kind."""

    @abstractmethod
    def call(self, op: str, inputs: Sequence[V | None], attrs: Attrs) -> tuple[V, ...]:
        """Return the outputs of an op."""

    @abstractmethod
    def type_of(self, value: V) -> Type:
        """Return a value's type."""

    def one(self, op: str, *inputs: V | None, **attrs: Attr) -> V:
        """Return the only output of an op."""
        (value,) = self.call(op, inputs, attrs)
        return value

    def each(self, function: str, *inputs: V) -> V:
        """Return an elementwise function of values, which broadcast."""
        return self.one("Elementwise", *inputs, function=function)

    def full(self, value: float, like: V) -> V:
        """Return a scalar of a value's dtype."""
        return self.one("Full", value=value, dtype=self.type_of(like).dtype, shape=())

    def add(self, a: V, b: V) -> V:
        """Return ``a + b``."""
        return self.each("add", a, b)

    def sub(self, a: V, b: V) -> V:
        """Return ``a - b``."""
        return self.each("sub", a, b)

    def mul(self, a: V, b: V) -> V:
        """Return ``a b``."""
        return self.each("mul", a, b)

    def div(self, a: V, b: V) -> V:
        """Return ``a / b``."""
        return self.each("div", a, b)

    def neg(self, a: V) -> V:
        """Return ``-a``."""
        return self.each("neg", a)

    def scale(self, a: V, factor: float) -> V:
        """Return ``factor a``."""
        return self.mul(a, self.full(factor, a))

    def shift(self, a: V, term: float) -> V:
        """Return ``a + term``."""
        return self.add(a, self.full(term, a))

    def cast(self, a: V, dtype: str) -> V:
        """Return the value in another dtype, itself where it has that."""
        return a if self.type_of(a).dtype == dtype else self.one("Cast", a, dtype=dtype)

    def reshape(self, a: V, shape: Sequence[int]) -> V:
        """Return the value in another shape, itself where it has that."""
        return a if self.type_of(a).shape == tuple(shape) else self.one("Reshape", a, shape=tuple(shape))

    def broadcast(self, a: V, shape: Sequence[int]) -> V:
        """Return the value repeated to a shape, itself where it has that."""
        return a if self.type_of(a).shape == tuple(shape) else self.one("Broadcast", a, shape=tuple(shape))

    def reduce(self, function: str, a: V, axes: Sequence[int], *, keep: bool = False) -> V:
        """Return a reduction over axes."""
        return self.one("Reduce", a, function=function, axes=tuple(axes), keep=keep)

    def sum_to(self, a: V, shape: Sequence[int]) -> V:
        """Return the sum of a value over the axes along which ``shape`` was broadcast to its own: broadcasting's gradient."""
        have = self.type_of(a).shape
        extra = len(have) - len(shape)
        axes = [*range(extra), *(i + extra for i, n in enumerate(shape) if n == 1 and have[i + extra] != 1)]
        return self.reshape(self.reduce("sum", a, axes), shape) if axes else a

    def total(self, values: Sequence[V | None]) -> V | None:
        """Return the sum of those values that are there, None where none is."""
        there = [v for v in values if v is not None]
        return None if not there else there[0] if len(there) == 1 else self.add(there[0], self.total(there[1:]))


class Backward(Builder):
    """What a gradient rule sees: the call that it differentiates (``g["x"]``), and a builder for the call's gradients.

    ``needed`` names the inputs whose gradient is wanted; a rule may return None for others.
    """

    def __init__(
        self, builder: Builder, op: OpDef, attrs: Attrs, values: Mapping[str, V], types: Mapping[str, Type], needed: set[str]
    ) -> None:
        self._builder = builder
        self._op = op
        self._values = values
        self._types = types
        self.attrs = attrs
        self.needed = needed

    def call(self, op: str, inputs: Sequence[V | None], attrs: Attrs) -> tuple[V, ...]:
        """Return the outputs of an op."""
        return self._builder.call(op, inputs, attrs)

    def type_of(self, value: V) -> Type:
        """Return a value's type."""
        return self._builder.type_of(value)

    def __getitem__(self, name: str) -> V:
        """Return an input or output of the call by name; one that the op does not declare as saved is an error in its rule."""
        if name not in self._values:
            raise KeyError(f"{self._op.name}: its gradient rule reads {name!r}, which it does not declare as saved")
        return self._values[name]

    def has(self, name: str) -> bool:
        """Whether the call has that input or output."""
        return name in self._types

    def of(self, name: str) -> Type:
        """Return the type of an input or output of the call."""
        return self._types[name]


Infer = Callable[[Types, Attrs], tuple[Type, ...]]
Meaning = Callable[[Arrays, Attrs], Sequence[NDArray[Any]]]
Gradient = Callable[..., Sequence[V | None]]
# Returns None for a call that no frozen op serves whatever its sizes are.
Lower = Callable[[Builder, Sequence[V | None], Attrs], Sequence[V] | None]
Saves = Callable[[Attrs, set[str]], set[str]]


@dataclass(frozen=True, eq=False)  # an op is a key by what it is: a project's own may be another one of the same name
class OpDef:
    """One op. Inputs whose name ends in ``?`` may be None; one that ends in ``*`` stands for any number.

    ``infer`` is pure and raises TypeError or ValueError for what the op does not take. ``meaning`` gets float64 for floating inputs, and
    its results are rounded once, to the dtypes that ``infer`` says; an op that ``moves`` elements and computes nothing gets its inputs as
    they are. ``gradient`` is given a :class:`Backward` and the outputs' gradients, and returns the inputs'. ``saves`` names what it reads.
    Calls that are constant almost everywhere (comparisons, steps) say so in ``has_gradient``. ``lower`` writes the op as frozen ones; an op
    that ``is_frozen`` is one itself. ``in_place`` tells which output takes the memory of which input (``takes`` does so for an op of any
    number of outputs), and ``keeps`` which attribute makes a call return an output that its rule reads. Mixed precision leaves inputs
    named in ``any_float`` (``*``: all of them) as they come, and runs an op in fp32 that ``needs_range``, whose results float16
    cannot hold. A view (``is_view``) needs no launch.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    infer: Infer
    meaning: Meaning
    attributes: Attrs = field(default_factory=dict)
    gradient: Gradient | None = None
    saves: Saves = lambda attrs, needed: set()
    has_gradient: Callable[[Attrs], bool] = lambda attrs: True
    amp: Amp = "follow"
    lower: Lower | None = None
    moves: bool = False
    is_view: bool = False
    is_frozen: bool = False
    in_place: Mapping[str, str] = field(default_factory=dict)
    keeps: Mapping[str, str] = field(default_factory=dict)
    takes: Callable[[int, int, Attrs], int | None] | None = None
    any_float: tuple[str, ...] = ()
    needs_range: bool = False

    def find_taken(self, output: int, num_inputs: int, attrs: Attrs) -> int | None:
        """Return which input's memory an output takes, both by their places in a call; None where it has its own."""
        if self.takes is not None:
            return self.takes(output, num_inputs, attrs)
        name = self.in_place.get(self.outputs[output]) if self.in_place else None
        return None if name is None else self.input_names(num_inputs).index(name)

    def input_names(self, count: int) -> tuple[str, ...]:
        """Return the names of a call's inputs; an op whose only name ends in ``*`` takes any number, ``x*``: x0, x1, ..."""
        if self.inputs and self.inputs[-1].endswith("*"):
            head, stem = self.inputs[:-1], self.inputs[-1].removesuffix("*")
            return (*(name.removesuffix("?") for name in head), *(f"{stem}{i}" for i in range(count - len(head))))
        return tuple(name.removesuffix("?") for name in self.inputs)

    def fill(self, attrs: Attrs) -> dict[str, Attr]:
        """Return a call's attributes with defaults; raises TypeError for one that the op does not have or that is missing."""
        if unknown := [name for name in attrs if name not in self.attributes]:
            raise TypeError(f"{self.name}: no attribute {unknown[0]!r}; there are: {', '.join(self.attributes) or 'none'}")
        filled = {**self.attributes, **attrs}
        if missing := [name for name, value in filled.items() if value is REQUIRED]:
            raise TypeError(f"{self.name}: attribute {missing[0]!r} is missing")
        return filled

    def extend(self, attrs: Attrs, needed: set[str]) -> dict[str, Attr]:
        """Return attributes under which a call returns all that its gradient rule reads, behind what it returns without."""
        wanted = self.saves(attrs, needed) if needed else set()
        return {**attrs, **{attribute: True for name, attribute in self.keeps.items() if name in wanted}}

    def find_types(self, types: Types, attrs: Attrs) -> tuple[Type, ...]:
        """Return the types of a call's outputs; raises TypeError or ValueError naming the op, the argument and what is expected."""
        if not (self.inputs and self.inputs[-1].endswith("*")) and len(types) != len(self.inputs):
            raise TypeError(f"{self.name}: takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), got {len(types)}")
        for name, found in zip(self.inputs, types, strict=False):
            if found is None and name[-1] not in "?*":
                raise TypeError(f"{self.name}: input {name} is missing")
        return self.infer(types, attrs)

    def evaluate(self, inputs: Sequence[NDArray[Any] | None], attrs: Attrs) -> tuple[NDArray[Any], ...]:
        """Return a call's outputs as NumPy has them: in float64, rounded once."""
        types = [None if a is None else Type(a.dtype.name, a.shape) for a in inputs]
        results = self.find_types(types, attrs)
        if self.moves:
            return tuple(self.meaning(inputs, attrs))
        wide = [
            a if a is None or t is None or not t.is_float else a.astype(np.float64, copy=False) for a, t in zip(inputs, types, strict=True)
        ]
        with np.errstate(all="ignore"):  # infinities and NaN are results like others
            made = self.meaning(wide, attrs)
            outputs = [round_to(value, wanted) for value, wanted in zip(made, results, strict=True)]
        # What came out as it went in is still an array of its own: one may be overwritten without the other.
        return tuple(y.copy() if any(x is not None and np.may_share_memory(x, y) for x in inputs) else y for y in outputs)


def round_to(value: Any, wanted: Type) -> NDArray[Any]:
    """Return an array in the dtype of a type, rounded once; its shape must be the type's."""
    made = np.asarray(value).astype(find_dtype(wanted.dtype), copy=False)
    if made.shape != wanted.shape:
        raise ValueError(f"an op's meaning has shape {made.shape}, and its rule says {wanted.shape}")
    return made


def same_floats(op: str, names: Sequence[str], types: Types) -> str:
    """Return the dtype that the given floating inputs share; raises TypeError naming the first that differs."""
    there = [(name, t) for name, t in zip(names, types, strict=True) if t is not None]
    first_name, first = there[0]
    for name, found in there:
        if not found.is_float:
            raise TypeError(f"{op}: {name}: expected a floating dtype, got {found.dtype}")
        if found.dtype != first.dtype:
            raise TypeError(f"{op}: {name} is {found.dtype} and {first_name} is {first.dtype}; cast one of them: x.cast({first.dtype!r})")
    return first.dtype
