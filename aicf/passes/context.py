"""What passes know besides the graph: what is trained, the backend, the precision, and the source of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import Attrs, Type

Updates = list[tuple[Value, Value]]


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

    ``attach`` is given the rewriter behind the backward pass and the gradients by owner, and returns updates of states.
    """

    owners: tuple[str, ...]
    attach: Callable[[Rewriter, Mapping[str, Value]], Updates]


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

    def note(self, text: str) -> None:
        """Add to what the log says of the pass that runs."""
        self.notes.append(text)


Run = Callable[[Graph, Context], Graph]
