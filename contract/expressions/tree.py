"""What a chain is once it is read: operands, trees of calls, assignments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import sha256

# float32 by the dtype of the first input, or the dtype itself.
GENERIC = "T"
DTYPES: Mapping[str, str] = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "bool": "bool", "i64": "int64"}
_KINDS: Mapping[str, str] = {"bool": "bool", "i64": "int"}
# Bit for bit, but for which of two NaN comes out.
_COMMUTATIVE = ("add", "mul", "max", "min", "eq", "ne")


class Extent(StrEnum):
    """Which elements of [rows, columns] have a value of their own."""

    FULL = "full"
    COLUMNS = "columns"
    ROWS = "rows"
    ONE = "one"


@dataclass(frozen=True)
class Operand:
    """An input or output: its name, its type (``T``, ``f32``, ``bf16``, ``f16``, ``bool``, ``i64``) and its extent."""

    name: str
    type: str
    extent: Extent = Extent.FULL

    @property
    def kind(self) -> str:
        """``float``, ``bool`` or ``int``."""
        return _KINDS.get(self.type, "float")

    @property
    def words(self) -> tuple[Operand, ...]:
        """What the engine has for it: itself, or the lower and the upper word of a counter."""
        if self.kind != "int":
            return (self,)
        return tuple(Operand(f"{self.name}_{half}", "f32", self.extent) for half in ("low", "high"))

    @property
    def shape(self) -> tuple[str | int, str | int]:
        """The names of its two sizes; 1 where it has one value alone."""
        return (
            "rows" if self.extent in (Extent.FULL, Extent.ROWS) else 1,
            "columns" if self.extent in (Extent.FULL, Extent.COLUMNS) else 1,
        )

    def find_dtype(self, generic: str) -> str:
        """Return the name of the dtype where ``T`` is ``generic``."""
        return generic if self.type == GENERIC else DTYPES[self.type]

    def __str__(self) -> str:
        """Return it as it is written."""
        extent = {Extent.FULL: "", Extent.COLUMNS: "[columns]", Extent.ROWS: "[rows]", Extent.ONE: "[]"}[self.extent]
        return f"{self.name}: {self.type}{extent}"


@dataclass(frozen=True)
class Number:
    """A constant, as fp32 has it."""

    value: float


@dataclass(frozen=True)
class Name:
    """The value of an input, or of an assignment before."""

    name: str


@dataclass(frozen=True)
class Call:
    """A function of the table, a comparison, ``and``, ``or``, ``not``, ``where``, or ``keep`` (then ``draw`` says which of the chain's)."""

    function: str
    arguments: tuple[Node, ...]
    draw: int = 0


Node = Number | Name | Call


@dataclass(frozen=True)
class Chain:
    """A chain that was read: its operands, and what is assigned, in order."""

    name: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    assignments: tuple[tuple[str, Node], ...]
    num_draws: int
    body: str

    @property
    def text(self) -> str:
        """The chain as it is written, in the one way that all spellings of it share."""
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}; {self.body}"

    @cached_property
    def key(self) -> str:
        """The hash of what the chain says, whatever it is called."""
        return sha256(self.text.encode()).hexdigest()

    def has_share(self, index: int) -> bool:
        """Return whether an input is the share that a ``keep`` or ``dropout`` drops, which lies from 0 to 1."""
        calls = (node for _, tree in self.assignments for node in walk(tree) if isinstance(node, Call) and node.function == "keep")
        return index < len(self.inputs) and Name(self.inputs[index].name) in {call.arguments[0] for call in calls}

    def find_meaning(self, generic: str = GENERIC) -> str:
        """Return the hash of what the chain computes where ``T`` is a dtype, whatever its operands and intermediate values are called."""
        names = {dtype: name for name, dtype in DTYPES.items()}
        own = {GENERIC: names.get(generic, generic)}
        known = {o.name: f"in{i}" for i, o in enumerate(self.inputs)}
        for target, tree in self.assignments:
            known[target] = _digest(tree, known)
        read = [f"{own.get(o.type, o.type)} {o.extent}" for o in self.inputs]
        made = [f"{own.get(o.type, o.type)} {o.extent} {known[o.name]}" for o in self.outputs]
        return sha256("; ".join([*read, "->", *made]).encode()).hexdigest()

    def count_calls(self) -> int:
        """Return how many functions are called per element."""
        return sum(isinstance(node, Call) for _, tree in self.assignments for node in walk(tree))


def walk(node: Node) -> Iterator[Node]:
    """Yield a tree's nodes."""
    yield node
    for child in node.arguments if isinstance(node, Call) else ():
        yield from walk(child)


def _digest(node: Node, known: Mapping[str, str]) -> str:
    if isinstance(node, Name):
        return known[node.name]
    if isinstance(node, Number):
        return float.hex(node.value)
    arguments = [_digest(argument, known) for argument in node.arguments]
    if node.function in _COMMUTATIVE:
        arguments.sort()
    return sha256(" ".join([node.function, str(node.draw), *arguments]).encode()).hexdigest()


def format_node(node: Node) -> str:
    """Return a tree as text that reads back as the same tree; draws are numbered in the order in which they are read."""
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Number):
        return repr(node.value)
    return f"{node.function}({', '.join(map(format_node, node.arguments))})"
