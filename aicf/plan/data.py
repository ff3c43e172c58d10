"""What a plan is: steps on streams, and for each value a place in one of a few regions of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from aicf.errors import PlanError
from aicf.opset import Attr, Attrs, Type
from aicf.plan.picture import Lifetime, draw_arena

# Weights, moments and counters, which outlive a run; constants; what callers write and read; gradients that one launch takes as one; and
# everything between, by lifetime.
STATE, CONSTANT, INPUT, OUTPUT, GRADIENT, ARENA = REGIONS = ("state", "constant", "input", "output", "gradient", "arena")
# Callers' own memory, of which a plan knows no address.
GIVEN = "given"
ALIGNMENT_BYTES = 256
# Roles of states, as graphs have them.
_PARAMETER, _COPY = "parameter", "copy"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a value's bytes are: row-major from ``offset`` of a region on. Views of one ``buffer`` share its number."""

    buffer: int
    region: str
    offset: int
    type: Type

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.type.size_bytes

    def __str__(self) -> str:
        return f"{self.type}@{self.region}+{self.offset}"


@dataclass(frozen=True, slots=True)
class Step:
    """One launch. It runs behind the steps before it on its stream, and behind those of other streams that it ``waits`` for."""

    node: int
    op: str
    attrs: Attrs
    inputs: tuple[Slot | None, ...]
    outputs: tuple[Slot, ...]
    stream: int = 0
    waits: tuple[int, ...] = ()
    workspace: Slot | None = None
    kernel: str = ""
    seal: str = ""
    predicted_us: float | None = None
    owner: str = ""
    source: str = ""

    @property
    def reads(self) -> Iterator[Slot]:
        """The slots that it reads."""
        return (slot for slot in self.inputs if slot is not None)

    @property
    def writes(self) -> Iterator[Slot]:
        """The slots that it writes, workspace included."""
        yield from self.outputs
        if self.workspace is not None:
            yield self.workspace


@dataclass(frozen=True, slots=True)
class StateSlot:
    """A state's place: whose it is, and what to its owner."""

    owner: str
    role: str
    slot: Slot


class Runs(Protocol):
    """A program that runs a plan in memory of its own."""

    def save(self, folder: Path | str) -> None:
        """Write plan and states into a folder."""

    def profile(self) -> Any:
        """Return each step's time."""

    def check(self, inputs: Sequence[Any]) -> Any:
        """Return each step's error against float64."""


@dataclass(frozen=True)
class Plan:
    """A program as data. ``sizes`` are the regions' bytes; ``constants`` are numbers that are written once, before the first run.

    ``intake`` are the launches that bring inputs in, in the place of a copy: an input that is read in another dtype alone is cast as it
    comes from the caller's memory. ``find_program`` gives the program whose plan this is, None where it is data alone or that is gone.
    """

    name: str
    backend: str
    steps: tuple[Step, ...]
    inputs: tuple[tuple[str, Slot], ...]
    outputs: tuple[Slot, ...]
    states: tuple[StateSlot, ...]
    constants: tuple[tuple[Slot, Attr], ...]
    sizes: Mapping[str, int]
    lower_bound_bytes: int
    intake: tuple[Step, ...] = ()
    find_program: Callable[[], Runs | None] = field(default=lambda: None, compare=False, repr=False)

    def save(self, folder: Path | str) -> None:
        """Write plan and states for :func:`aicf.load`; raises :class:`~aicf.errors.PlanError` for a plan that no program runs."""
        self._require_program("save").save(folder)

    def profile(self) -> Any:
        """Return each step's time and share of the roofline on a GPU. Raises as :meth:`save`, and as the program's own ``profile``."""
        return self._require_program("profile").profile()

    def check(self, inputs: Sequence[Any]) -> Any:
        """Return each step's error against float64 on these inputs. Raises as :meth:`save`."""
        return self._require_program("check").check(inputs)

    def _require_program(self, what: str) -> Runs:
        program = self.find_program()
        if program is None:
            raise PlanError(f"plan {self.name}: {what}() needs the memory of the program that runs it, and none does: take program.plan")
        return program

    @property
    def given_types(self) -> tuple[Type, ...]:
        """The types that callers' inputs have, in order."""
        cast = {step.outputs[0].buffer: slot.type for step in self.intake for slot in step.reads}
        return tuple(cast.get(slot.buffer, slot.type) for _, slot in self.inputs)

    @property
    def num_streams(self) -> int:
        """How many streams there are."""
        return max((step.stream for step in self.steps), default=0) + 1

    @property
    def own_states(self) -> tuple[StateSlot, ...]:
        """The states but for copies, which are made of others."""
        return tuple(s for s in self.states if s.role != _COPY)

    @property
    def copies(self) -> tuple[tuple[StateSlot, StateSlot], ...]:
        """Parameters that a state has in another dtype too, each with that state."""
        parameters = {s.owner: s for s in self.states if s.role == _PARAMETER}
        return tuple((parameters[s.owner], s) for s in self.states if s.role == _COPY)

    def to_lines(self) -> list[str]:
        """Return the plan as text, a line per step."""
        lines = [f"plan {self.name} for {self.backend}: {len(self.steps)} steps on {self.num_streams} streams"]
        lines += [f"  {region}: {size} bytes" for region, size in self.sizes.items()]
        lines += [f"  state {s.owner} {s.role}: {s.slot}" for s in self.states]
        lines += [f"  in {_describe(step)}" for step in self.intake]
        for i, step in enumerate(self.steps):
            waits = f" after {', '.join(map(str, step.waits))}" if step.waits else ""
            lines.append(f"  {i} [{step.stream}]{waits} {_describe(step)}")
        return lines

    def draw(self, path: Path | str) -> None:
        """Write a picture of the arena over time (SVG): a box per buffer, as wide as it lives and as high as it is large."""
        Path(path).write_text(draw_arena(self._list_lifetimes(), len(self.steps), self.sizes[ARENA], self.lower_bound_bytes))

    def _list_lifetimes(self) -> list[Lifetime]:
        """Return the arena's buffers, each named by the step that uses it first."""
        found: dict[int, Lifetime] = {}
        for i, step in enumerate(self.steps):
            for slot in (*step.reads, *step.writes):
                if slot.region == ARENA:
                    fresh = Lifetime(f"{step.op} {step.owner} {slot.type}", slot.offset, slot.type.size_bytes, i, i)
                    found[slot.buffer] = found.get(slot.buffer, fresh)._replace(last=i)
        return list(found.values())

    def diff(self, other: Plan) -> list[str]:
        """Return the lines that one plan has and the other has not."""
        mine, theirs = self.to_lines(), other.to_lines()
        return [f"- {line}" for line in mine if line not in theirs] + [f"+ {line}" for line in theirs if line not in mine]


def _describe(step: Step) -> str:
    kernel = f" by {step.kernel} ({step.seal[:12]})" if step.kernel else ""
    inputs = ", ".join("_" if s is None else str(s) for s in step.inputs)
    return f"{step.op}({inputs}) -> {', '.join(map(str, step.outputs))}{kernel}"
