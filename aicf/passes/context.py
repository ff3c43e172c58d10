"""What passes know besides the graph: what is trained, the backend, the precision, and the source of kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import Attrs, Type

Updates = list[tuple[Value, Value]]
# What a node is called in every graph of a network: op, owner, source line, whether it is a backward one, and its number among those alike.
NodeName = tuple[str, str, str, bool, int]


@dataclass(frozen=True)
class Choice:
    """The frozen kernel for a node, by its seal, and what is known of it."""

    op: str
    kernel: str
    seal: str
    predicted_us: float | None
    workspace_bytes: int
    reason: str


class Chooser(Protocol):
    """Who knows the frozen kernels of a device."""

    def predict_us(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> float | None:
        """Return the time that the kernel for a call is expected to take, in us; infinity where none serves it, None where nobody knows."""

    def prepare(self, nodes: Sequence[Node]) -> Sequence[str]:
        """Have the kernels of nodes ready; returns what is to be said of those that cannot be had, and are not chosen from now on."""

    def choose(self, node: Node) -> Choice:
        """Return the kernel for a node; raises :class:`~aicf.errors.SelectionError` where none serves it."""


@dataclass(frozen=True)
class Training:
    """What makes a step of a loss, the graph's first output: which parameters are trained, and what to do with their gradients.

    ``attach`` is given the rewriter behind the backward pass and the gradients by owner, and returns updates of states. ``begin`` returns
    what the backward pass begins with in the place of 1, a scalar of the loss' dtype: gradients are scaled by it.
    """

    owners: tuple[str, ...]
    attach: Callable[[Rewriter, Mapping[str, Value]], Updates]
    begin: Callable[[Rewriter, Value], Value] | None = None


@dataclass(frozen=True)
class Footprint:
    """The memory of a graph's plan: bytes in all and by region, the node of each step, and what lives in the arena."""

    num_bytes: int
    regions: str
    nodes: tuple[int, ...]
    accesses: Mapping[int, tuple[int, tuple[int, ...]]]  # by value id: bytes, and the steps in order, the one that writes it first

    def count_alive(self) -> list[int]:
        """Return the bytes of the arena that are alive at each step."""
        changes = [0] * (len(self.nodes) + 1)
        for size, steps in self.accesses.values():
            changes[steps[0]] += size
            changes[steps[-1] + 1] -= size
        return list(itertools.accumulate(changes))[:-1]


@dataclass(frozen=True)
class Budget:
    """The bytes that a plan may have in all regions together, and how many a graph's has."""

    num_bytes: int
    measure: Callable[[Graph], Footprint]


@dataclass(frozen=True)
class Example:
    """Values on which precision is tried: the inputs in order, and states by owner and role."""

    inputs: Sequence[NDArray[Any]]
    read_state: Callable[[str, str], NDArray[Any]]


@dataclass
class Guard:
    """How far from the truth mixed precision may take a node's results, as a share of the largest, and which nodes it takes further.

    ``kept`` says of these why they stay in fp32, by what they are called in every graph of the network; it is found on an ``example``, and
    holds for graphs that come without one.
    """

    bound: float
    kept: dict[NodeName, str] = field(default_factory=dict)
    example: Example | None = None


@dataclass(frozen=True)
class LogEntry:
    """What a pass did, and the numbers that decided."""

    rule: str
    nodes_before: int
    nodes_after: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.rule}: {self.nodes_before} -> {self.nodes_after} nodes" + "".join(f"; {note}" for note in self.notes)


@dataclass
class Context:
    """What all passes of one compilation share. ``amp`` is a compute dtype or None; a chooser is there where kernels are needed."""

    training: Training | None = None
    chooser: Chooser | None = None
    amp: str | None = None
    notes: list[str] = field(default_factory=list)
    choices: dict[int, Choice] = field(default_factory=dict)
    budget: Budget | None = None
    guard: Guard | None = None
    wide: dict[int, str] = field(default_factory=dict)  # by node id: why it stays in fp32 under mixed precision

    def note(self, text: str) -> None:
        """Add to what the log says of the pass that runs."""
        self.notes.append(text)


Run = Callable[[Graph, Context], Graph]
