"""What a run saw and did, as data: entries of a few kinds in their order, read and written as lines of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from aicf.plan.fields import require_fields
from contract.documents import parse_json
from contract.files import write_atomically

REWRITE, KEEP, ROLLBACK = "rewrite", "keep", "roll back"
_KINDS: dict[str, type[Entry]] = {}


@dataclass(frozen=True)
class Entry:
    """Something that was seen or done when ``step`` steps were done."""

    kind: ClassVar[str]
    step: int

    def __init_subclass__(cls) -> None:
        _KINDS[cls.kind] = cls

    def to_json(self) -> str:
        """Return the entry as one line of JSON; a number that is not finite is ``{"float": "nan"}``."""
        return json.dumps({"kind": self.kind, **_encode(asdict(self))}, sort_keys=True, allow_nan=False)


@dataclass(frozen=True)
class Observation(Entry):
    """One step: its loss, and the norm of all gradients where they are clipped."""

    kind: ClassVar[str] = "observation"
    loss: float
    gradient_norm: float | None = None


@dataclass(frozen=True)
class Statistics(Entry):
    """The last step of a window, looked at closely, and the seconds that a step of the window took.

    ``update_ratios`` are norms of updates over norms of parameters, by parameter. The others are of activations, by who makes their units:
    mean, variance, and the numbers of those units that were zero, or at a bound of the function, on all rows. ``noise_scale`` is
    the gradient's, in rows of a batch (:mod:`aicf.rewrite.noise`); None for a network without linear layers.
    """

    kind: ClassVar[str] = "statistics"
    gradient_norm: float
    update_ratios: Mapping[str, float]
    means: Mapping[str, float]
    variances: Mapping[str, float]
    dead: Mapping[str, tuple[int, ...]]
    saturated: Mapping[str, tuple[int, ...]]
    seconds_per_step: float
    noise_scale: float | None = None


@dataclass(frozen=True)
class Shapes(Entry):
    """A structure that training goes on with: the parameters' shapes, and the bytes that its plan needs."""

    kind: ClassVar[str] = "shapes"
    shapes: Mapping[str, tuple[int, ...]]
    num_bytes: int


@dataclass(frozen=True)
class Decision(Entry):
    """What was decided: a rewrite by a ``rule``, or to keep one or roll it back; and the evidence."""

    kind: ClassVar[str] = "decision"
    action: str
    rule: Mapping[str, Any] | None
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rewritten(Entry):
    """A rewrite that was made: its rule, whether it preserves the function, the difference found by value, and its time."""

    kind: ClassVar[str] = "rewritten"
    rule: Mapping[str, Any]
    preserves: bool
    delta: float
    scale: float
    seconds: float


@dataclass(frozen=True)
class Refused(Entry):
    """A rewrite that was not made, and why."""

    kind: ClassVar[str] = "refused"
    rule: Mapping[str, Any]
    reason: str


@dataclass(frozen=True)
class RolledBack(Entry):
    """A return to a snapshot, taken when ``to`` steps were done."""

    kind: ClassVar[str] = "rolled back"
    to: int
    name: str


E = TypeVar("E", bound=Entry)


class Log:
    """Entries in their order, to which :meth:`add` appends. Policies read it, and nothing else.

    ``events`` are the entries that are no single steps: few, even where the run is long.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = list(entries)
        self.events: list[Entry] = [entry for entry in self.entries if not isinstance(entry, Observation)]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log) and self.to_lines() == other.to_lines()

    __hash__ = None  # type: ignore[assignment]  # it grows

    def add(self, entry: Entry) -> None:
        """Append an entry."""
        self.entries.append(entry)
        if not isinstance(entry, Observation):
            self.events.append(entry)

    def find_all(self, kind: type[E]) -> list[E]:
        """Return all entries of a kind."""
        among = self.entries if issubclass(Observation, kind) else self.events
        return [entry for entry in among if isinstance(entry, kind)]

    def find_last(self, kind: type[E]) -> E | None:
        """Return the last entry of a kind."""
        among = self.entries if issubclass(Observation, kind) else self.events
        return next((entry for entry in reversed(among) if isinstance(entry, kind)), None)

    @property
    def decisions(self) -> list[Decision]:
        """All decisions."""
        return self.find_all(Decision)

    @property
    def present(self) -> list[Entry]:
        """The entries that led to where the run is: without what was rolled back."""
        kept: list[Entry] = []
        for entry in self.entries:
            if isinstance(entry, RolledBack):
                while kept and kept[-1].step > entry.to:
                    kept.pop()
            kept.append(entry)
        return kept

    @property
    def losses(self) -> list[Observation]:
        """The observed steps that led to where the run is."""
        return [entry for entry in self.present if isinstance(entry, Observation)]

    def find_settled(self, kind: type[E], most: int) -> list[E]:
        """Return the last entries of a kind, at most so many, since the structure or the run's place changed last."""
        found: list[E] = []
        for entry in reversed(self.entries if issubclass(Observation, kind) else self.events):
            if isinstance(entry, (Rewritten, RolledBack)) or len(found) == most:
                break
            if isinstance(entry, kind):
                found.append(entry)
        return found[::-1]

    def to_lines(self) -> list[str]:
        """Return a line of JSON per entry."""
        return [entry.to_json() for entry in self.entries]

    def write(self, path: Path | str) -> None:
        """Write the lines into a file."""
        write_atomically(Path(path), "".join(f"{line}\n" for line in self.to_lines()))

    @classmethod
    def read(cls, path: Path | str) -> Log:
        """Return the log that a file holds; raises ValueError naming a line that is no entry."""
        made = cls()
        for number, line in enumerate(Path(path).read_text().splitlines(), 1):
            try:
                made.add(read_entry(line))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None
        return made


def read_entry(line: str) -> Entry:
    """Return the entry that a line of JSON holds; raises ValueError for a line that holds none."""
    try:
        data = _decode(parse_json(line))
        return require_fields(_KINDS[data.pop("kind")](**data))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"is not an entry of a run's log: {error}") from None


def normalise(value: Any) -> Any:
    """Return a value as it is read again: with tuples for lists."""
    return _decode(_encode(value))


def _encode(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, Mapping):
        return {key: _encode(each) for key, each in value.items()}
    return [_encode(each) for each in value] if isinstance(value, (list, tuple)) else value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"float"}:
            return float(value["float"])
        return {key: _decode(each) for key, each in value.items()}
    return tuple(_decode(each) for each in value) if isinstance(value, list) else value
