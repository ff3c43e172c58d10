"""The ladder of an op: kernels with their tunables, variants, what can be launched; and the peers that an op is measured against."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from harness.errors import SpecError
from harness.spec.arguments import require_identifier
from harness.spec.conditions import Domain
from harness.spec.problem import Arrays, Problem


@dataclass(frozen=True)
class Cost:
    """What a problem must do at the least, whatever the kernel: arithmetic, and device memory traffic with each byte moved once.

    ``flops`` counts a fused multiply-add as two. ``flop_unit`` names the pipe that bounds it: a key of the target's peak rates
    (``"fp32"``, ``"bf16_tensor"``).
    """

    flops: float
    bytes_read: float
    bytes_written: float
    flop_unit: str = "fp32"

    @property
    def bytes_moved(self) -> float:
        """Bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written


class Label(int):
    """A value of a tunable that goes by a name: ids of variants have the name alone, and all else sees the integer."""

    label: str

    def __new__(cls, value: int, label: str) -> Label:
        """Return the integer with its name."""
        made = super().__new__(cls, value)
        require_identifier("label", label)
        made.label = label
        return made

    def __getnewargs__(self) -> tuple[int, str]:  # type: ignore[override]
        """Return what copies are made of."""
        return int(self), self.label


@dataclass(frozen=True)
class Tunable:
    """A compile-time integer of a kernel: the values worth trying, perhaps by name (:class:`Label`), and what it means (with its unit)."""

    name: str
    values: tuple[int, ...]
    meaning: str

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]+", self.name):  # a variant's id is names and numbers joined by underscores
            raise SpecError(f"tunable name {self.name!r}: use only lower-case letters")
        if not self.values:
            raise SpecError(f"tunable {self.name}: no values given")


@dataclass(frozen=True)
class Constraint:
    """A named rule over a kernel's tunables; ``message`` says what the rule demands."""

    name: str
    message: str
    holds: Callable[[Mapping[str, int]], bool]


@dataclass(frozen=True)
class Variant:
    """A kernel with every tunable bound. ``values`` are (tunable, value) in the kernel's own order."""

    kernel: str
    values: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """The id used on the command line and in records: ``smem_tiled/bm32_bn32``, or the kernel alone when it has no tunables."""
        bound = "_".join(v.label if isinstance(v, Label) else f"{k}{v}" for k, v in self.values)
        return f"{self.kernel}/{bound}" if bound else self.kernel

    @property
    def symbol_suffix(self) -> str:
        """The id as a C identifier, appended to the entry points so that many variants link into one program."""
        return self.name.replace("/", "__")

    @property
    def tunables(self) -> dict[str, int]:
        """Tunable values by name."""
        return dict(self.values)


@dataclass(frozen=True)
class Kernel:
    """A family of variants.

    ``variants`` are the bindings that build, verify and bench use by default (a sweep explores the whole space). ``idea`` is the one
    thing that sets this kernel apart from the rung before it. ``min_arch`` is a compute capability times ten (80 for sm_80).
    ``max_spill_bytes`` is what ptxas may spill before the variant is flagged. ``deterministic`` is False where results may differ
    between runs by design (atomics), which verify then does not hold against it. ``domain`` returns, from a variant's tunables, the
    conditions under which the launcher's ``supports`` says yes; only a kernel that has one can be promoted. ``tile`` returns the edge
    of a block's share of the problem by size (elements), for an estimate of how well it fills a chip.
    """

    name: str
    idea: str
    tunables: tuple[Tunable, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    variants: tuple[Mapping[str, int], ...] = ({},)
    min_arch: int = 80
    max_spill_bytes: int = 0
    deterministic: bool = True
    domain: Domain | None = None
    tile: Callable[[Mapping[str, int]], Mapping[str, int]] | None = None

    def __post_init__(self) -> None:
        require_identifier("kernel", self.name)
        names = [self.bind(bound).name for bound in self.variants]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise SpecError(f"kernel {self.name}: variant {', '.join(twice)} is listed more than once")

    def bind(self, values: Mapping[str, int]) -> Variant:
        """Bind every tunable, or raise :class:`SpecError` naming the tunable or constraint that forbids it."""
        known = {t.name: t for t in self.tunables}
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise SpecError(f"kernel {self.name}: unknown tunable {', '.join(unknown)}; it has: {', '.join(known) or 'none'}")
        missing = sorted(set(known) - set(values))
        if missing:
            raise SpecError(f"kernel {self.name}: tunable {', '.join(missing)} is not bound")
        for name, tunable in known.items():
            if values[name] not in tunable.values:
                raise SpecError(f"kernel {self.name}: {name}={values[name]} is not one of {list(tunable.values)}")
        for rule in self.constraints:
            if not rule.holds(values):
                raise SpecError(f"kernel {self.name}: {dict(values)} breaks constraint {rule.name!r}: {rule.message}")
        return Variant(self.name, tuple((t.name, t.values[t.values.index(values[t.name])]) for t in self.tunables))

    def parse_variant(self, text: str) -> Variant:
        """Read the part of a variant id behind the slash (``bm32_bn32``); any legal binding is accepted, listed or not."""
        values: dict[str, int] = {}
        rest = text
        while rest:
            name, value, rest = self._take_value(rest, text)
            if name in values:
                raise SpecError(f"kernel {self.name}: tunable {name} is given twice in variant {text!r}")
            values[name] = value
        return self.bind(values)

    def _take_value(self, rest: str, text: str) -> tuple[str, int, str]:
        """Return the tunable that comes first in the rest of an id, its value, and what follows."""
        labels = [(v.label, t.name, v) for t in self.tunables for v in t.values if isinstance(v, Label)]
        for label, name, value in sorted(labels, key=lambda row: -len(row[0])):
            if rest == label or rest.startswith(f"{label}_"):
                return name, value, rest[len(label) + 1 :]
        part, _, rest = rest.partition("_")
        match = re.fullmatch(r"([a-z]+)(\d+)", part)
        if match is None:
            named = f", or by a value's name, e.g. {labels[0][0]}" if labels else ""
            raise SpecError(
                f"kernel {self.name}: cannot read {part!r} in variant {text!r}; write tunables as name and number, e.g. bm32{named}"
            )
        return match[1], int(match[2]), rest


class Launchable(Protocol):
    """What the workbench needs of a compiled variant, whatever it is made of.

    ``arguments`` are all tensors of the op by name (objects with ``__cuda_array_interface__``, or None where absent) and all passed
    attributes by name.
    """

    def supports(self, **arguments: Any) -> str:
        """Return "" when the problem is served, else the reason why not. Raises TypeError or ValueError for bad arguments."""
        ...

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return the device memory in bytes that ``launch`` wants as workspace."""
        ...

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the op on a stream: no allocation, no synchronisation. Raises RuntimeError when the launch fails."""
        ...


@runtime_checkable
class Preparable(Protocol):
    """What a compiled variant has beside: its arguments are read once for many launches."""

    def prepare(self, *, workspace: int, stream: int, **arguments: Any) -> Callable[[], object]:
        """Return what does the same as ``launch`` with these arguments, which the caller keeps alive."""
        ...


# A library that rounds an intermediate once more than the op's bound allows for may be off by twice that; beyond, its output is another.
PEER_ERROR = 2.0


@dataclass(frozen=True)
class Peer:
    """A library's own implementation of the op, verified and timed beside the variants and never promoted.

    Peers live in an op's optional ``peers.py`` as ``PEERS``, which is imported only on a real device. ``open`` raises ImportError when
    ``library`` is not there. ``compiles``: its first launch on a problem compiles for seconds, and other processes may do that ahead, into
    caches on disk. ``max_error``: times the op's bound up to which its output still counts as the op's; more than the usual needs a
    reason, which its module gives.
    """

    name: str
    library: str
    open: Callable[[], Launchable]
    compiles: bool = False
    max_error: float = PEER_ERROR


@dataclass(frozen=True)
class Choice:
    """The variant that an op launches for a problem by default, and why that one: a measured or derived reason."""

    variant: Variant
    reason: str


@dataclass(frozen=True)
class Goal:
    """Problems that are judged together, and what is aimed at on them.

    The figure is the geometric mean over ``problems`` of the time of the fastest of ``peers`` (names in ``peers.py``) over the time of
    the op's own choice, cold. ``aim`` is wanted, ``least`` is the least that counts, and no single problem may fall under ``worst``.
    """

    name: str
    title: str
    problems: tuple[Problem, ...]
    peers: tuple[str, ...]
    aim: float
    least: float
    worst: float = 0.0


@dataclass(frozen=True)
class Sampling:
    """How an op is judged on part of its outputs, where the whole reference would take minutes.

    ``restrict(inputs, problem, axis, places)`` returns inputs and a problem whose outputs are those of the given problem at ``places``
    along ``axis``, for every axis in ``axes``. The arrays may be of any dtype; of indices (:class:`Indices`) they hold the values, of
    which a restriction keeps those that it needs, or all. Where the outputs have it at different places, an axis is a name of the op's
    own, and ``find_axis(output, axis, problem)`` says which axis of an output it is; None where the output has no such axis, and is not
    judged along it. An output that has none of the axes needs all of the inputs, and is judged only where a problem is run whole.
    """

    axes: tuple[int, ...]
    restrict: Callable[[Arrays, Problem, int, NDArray[np.intp]], tuple[dict[str, NDArray[np.generic]], Problem]]
    find_axis: Callable[[str, int, Problem], int | None] | None = None

    def locate(self, output: str, axis: int, problem: Problem) -> int | None:
        """Return which axis of an output one of the op's axes is, None where it has no such axis."""
        return axis if self.find_axis is None else self.find_axis(output, axis, problem)
