"""The vocabulary in which an op describes itself.

An ``ops/<name>/op.py`` builds one :class:`Op` from these frozen values and binds it to the module-level name ``OP``.
Everything else in the workbench (build, verify, bench, docs, plots) reads sizes, tolerances, reference and cost from there,
and from nowhere else.

Terms
-----
kernel
    a family written in ``kernels.cu`` (``naive``, ``smem_tiled``), with tunables.
variant
    a kernel with every tunable bound to a value; the unit of build, verify and bench.
problem
    one set of sizes, attribute values and row paddings.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from device.settings import suggest
from harness.callables import Described
from harness.domain import AttributeValue as AttributeValue
from harness.domain import Axis as Axis
from harness.domain import Count as Count
from harness.domain import Domain as Domain
from harness.domain import Facts as Facts
from harness.domain import OneOf as OneOf
from harness.domain import Rows as Rows
from harness.domain import Tie as Tie
from harness.domain import settle as settle
from harness.errors import SpecError as SpecError
from harness.population import Group as Group
from harness.population import LogRange as LogRange
from harness.population import Population as Population

Arrays = Mapping[str, NDArray[np.generic]]

SUITES = ("verify", "bench", "emulated", "sweep")
# What inputs are drawn from, see ``harness.verify.inputs``: with values of every kind, and with one value of a row that stands out.
VALUE_DISTRIBUTIONS = ("normal", "uniform", "wide", "ties", "denormal", "nonfinite")
PLACE_DISTRIBUTIONS = ("largest_first", "largest_last", "largest_middle", "largest_anywhere", "one_differs", "shifted")
DISTRIBUTIONS = VALUE_DISTRIBUTIONS + PLACE_DISTRIBUTIONS
BUCKET_AXES = ("dtypes", "layout", "epilogue", "region")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*\Z")


class Role(StrEnum):
    """Which way a tensor's data flows."""

    INPUT = "input"
    OUTPUT = "output"


def _always(_: Problem) -> bool:
    return True


def _require_identifier(kind: str, name: str) -> None:
    if not _IDENTIFIER.match(name):
        raise SpecError(f"{kind} name {name!r}: use lower-case letters, digits and underscores, starting with a letter")


@dataclass(frozen=True)
class Tensor:
    """One array argument, row-major.

    ``shape`` names the sizes of a problem, outermost first (``("M", "K")``). ``dtype`` is a name of NumPy's or ``bfloat16``. Both may be
    functions of the problem, where its attributes choose. ``present`` tells for which problems the tensor is
    passed at all; where it is not, the binding is given ``None``. ``can_pad_rows`` says that the row stride may exceed the row
    length (leading dimension), which :attr:`Problem.padding` then exercises.
    """

    name: str
    shape: tuple[str, ...] | Callable[[Problem], tuple[str, ...]]
    role: Role
    dtype: str | Callable[[Problem], str] = "float32"
    present: Callable[[Problem], bool] = _always
    can_pad_rows: bool = False

    def name_sizes(self, problem: Problem) -> tuple[str, ...]:
        """Return the names of the sizes that are the shape for ``problem``."""
        return self.shape(problem) if callable(self.shape) else self.shape

    def resolve_shape(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape in elements for ``problem``."""
        return tuple(problem.sizes[dim] for dim in self.name_sizes(problem))

    def resolve_dtype(self, problem: Problem) -> str:
        """Return the name of the element type for ``problem``."""
        return self.dtype(problem) if callable(self.dtype) else self.dtype


@dataclass(frozen=True)
class Attribute:
    """A scalar of the op that is not a tensor, with the values it accepts.

    ``passed`` is False for a switch that only decides whether an optional tensor is there (:attr:`Tensor.present`); the binding then
    sees the tensor or ``None``, and not the switch.
    """

    name: str
    choices: tuple[AttributeValue, ...]
    default: AttributeValue
    passed: bool = True


@dataclass(frozen=True)
class Problem:
    """Sizes (elements), attribute values, and per tensor row padding (elements added to the row stride) and offset of the base address.

    An offset is in elements beyond an address that is a multiple of 256 bytes.

    ``suites`` says where the problem is used: ``"verify"`` problems are small and ragged, ``"bench"`` problems are timed on a GPU,
    ``"emulated"`` problems stand in for them on the emulated device, where only counts are taken; ``"sweep"`` problems are those that a
    sweep of the tunables is timed on.
    """

    sizes: Mapping[str, int]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    padding: Mapping[str, int] = field(default_factory=dict)
    suites: frozenset[str] = frozenset({"verify"})
    offsets: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, size in self.sizes.items():
            if size < 1:
                raise SpecError(f"size {name}={size}: must be at least 1")
        for name, pad in self.padding.items():
            if pad < 0:
                raise SpecError(f"padding {name}={pad}: must not be negative")
        for name, offset in self.offsets.items():
            if offset < 0:
                raise SpecError(f"offset {name}={offset}: must not be negative")
        for attr in ("sizes", "attributes", "padding", "offsets"):
            object.__setattr__(self, attr, MappingProxyType(dict(getattr(self, attr))))

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def name(self) -> str:
        """A stable, readable id: sizes, attributes, paddings, offsets (``M128_N64_K32-act=relu-bias-pad_a=3-at_b=1``)."""
        parts = ["_".join(f"{k}{v}" for k, v in self.sizes.items())]
        for key, value in self.attributes.items():
            if value is True:
                parts.append(key)
            elif value is not False:
                parts.append(f"{key}={value}")
        parts += [f"pad_{k}={v}" for k, v in self.padding.items() if v]
        parts += [f"at_{k}={v}" for k, v in self.offsets.items() if v]
        return "-".join(parts)


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


@dataclass(frozen=True)
class Tunable:
    """A compile-time integer of a kernel: the values worth trying, and what it means (with its unit)."""

    name: str
    values: tuple[int, ...]
    meaning: str

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]+", self.name):  # a variant's id is names and numbers joined by underscores
            raise SpecError(f"tunable name {self.name!r}: use lower-case letters alone")
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
        bound = "_".join(f"{k}{v}" for k, v in self.values)
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
        _require_identifier("kernel", self.name)
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
        return Variant(self.name, tuple((t.name, values[t.name]) for t in self.tunables))

    def parse_variant(self, text: str) -> Variant:
        """Read the part of a variant id behind the slash (``bm32_bn32``); any legal binding is accepted, listed or not."""
        values: dict[str, int] = {}
        for part in filter(None, text.split("_")):
            match = re.fullmatch(r"([a-z]+)(\d+)", part)
            if match is None:
                raise SpecError(
                    f"kernel {self.name}: cannot read {part!r} in variant {text!r}; write tunables as name and number, e.g. bm32"
                )
            if match[1] in values:
                raise SpecError(f"kernel {self.name}: tunable {match[1]} is given twice in variant {text!r}")
            values[match[1]] = int(match[2])
        return self.bind(values)


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


@dataclass(frozen=True)
class Peer:
    """A library's own implementation of the op, verified and timed beside the variants and never promoted.

    Peers live in an op's optional ``peers.py`` as ``PEERS``, which is imported only on a real device. ``open`` raises ImportError when
    ``library`` is not there. ``compiles``: its first launch on a problem compiles for seconds, and other processes may do that ahead, into
    caches on disk.
    """

    name: str
    library: str
    open: Callable[[], Launchable]
    compiles: bool = False


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
    along ``axis``, for every axis in ``axes``. The arrays may be of any dtype. Where the outputs have it at different places, an axis is a
    name of the op's own, and ``find_axis(output, axis, problem)`` says which axis of an output it is.
    """

    axes: tuple[int, ...]
    restrict: Callable[[Arrays, Problem, int, NDArray[np.intp]], tuple[dict[str, NDArray[np.generic]], Problem]]
    find_axis: Callable[[str, int, Problem], int] | None = None


@dataclass(frozen=True)
class Op:
    """One op, whole.

    Callables
    ---------
    reference(inputs, problem)
        NumPy arrays in float64 by tensor name (absent tensors left out) to float64 outputs by tensor name. Pure.
    tolerance(inputs, outputs, problem)
        The same float64 inputs and the reference's outputs, to an absolute error bound per output element (float64 arrays that
        broadcast against the outputs). Derived from the arithmetic, never a guessed literal; each op cites its bound.
    cost(problem)
        The least work, see :class:`Cost`.

    choose(problem)
        The variant for a problem, see :class:`Choice`. Total over the op's problems, pure. None: the op has no default.

    ``goals`` are what ``compare`` measures when it is asked for nothing in particular. ``sampling`` makes large problems affordable to
    judge. ``distributions`` names the input distributions that the op defines a result for (see ``harness.verify.inputs``). ``axes`` divide
    its problems into the buckets of which each has one frozen kernel: some of ``dtypes``, ``layout``, ``epilogue`` and ``region``.
    ``accumulate`` is the dtype in which all its kernels make their sums, which a user of frozen kernels may insist on. ``ties`` say what a
    call's sizes and attributes agree in; each may undo what one before it asked for, and problems are held to all of them.
    ``population`` is what users bring: ``compare --drawn`` judges the op on problems drawn from it.
    """

    name: str
    summary: str
    tensors: tuple[Tensor, ...]
    kernels: tuple[Kernel, ...]
    problems: tuple[Problem, ...]
    reference: Callable[[Arrays, Problem], dict[str, NDArray[np.float64]]]
    tolerance: Callable[[Arrays, Arrays, Problem], dict[str, NDArray[np.float64]]]
    cost: Callable[[Problem], Cost]
    attributes: tuple[Attribute, ...] = ()
    distributions: tuple[str, ...] = DISTRIBUTIONS
    goals: tuple[Goal, ...] = ()
    choose: Callable[[Problem], Choice] | None = None
    sampling: Sampling | None = None
    axes: tuple[Axis, ...] = ()
    accumulate: str | None = None
    ties: tuple[Tie, ...] = ()
    population: Population | None = None

    def __post_init__(self) -> None:
        _require_identifier("op", self.name)
        for kind, names in (
            ("kernel", [k.name for k in self.kernels]),
            ("problem", [p.name for p in self.problems]),
            ("tensor", [t.name for t in self.tensors]),
            ("goal", [g.name for g in self.goals]),
        ):
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise SpecError(f"op {self.name}: {kind} {', '.join(twice)} is defined more than once")
        for name in ("reference", "tolerance", "cost", "choose"):
            function = getattr(self, name)
            if function is not None and not isinstance(function, Described):
                object.__setattr__(self, name, Described(self.name, name, function))
        for axis in self.axes:
            if axis.name not in BUCKET_AXES:
                raise SpecError(f"op {self.name}: axis {axis.name} is not one of {', '.join(BUCKET_AXES)}")
        named = {name for tie in self.ties for name in (*(c.attribute for c in tie.when), *tie.then)}
        if unknown := sorted(named - {a.name for a in self.attributes}):
            raise SpecError(f"op {self.name}: a tie names attribute {', '.join(unknown)}, which there is not")
        for problem in self.problems:
            self._check_suites(problem)
            self.check_problem(problem)
        known = {p.name for p in self.problems}
        for goal in self.goals:
            if unknown := sorted({p.name for p in goal.problems} - known):
                raise SpecError(f"op {self.name}, goal {goal.name}: {', '.join(unknown)} is none of the op's problems")
        for group in self.population.groups if self.population else ():
            self._check_group(group)

    def _check_suites(self, problem: Problem) -> None:
        if unknown := sorted(set(problem.suites) - set(SUITES)):
            there = f"{suggest(unknown[0], SUITES)} (suites: {', '.join(SUITES)})"
            raise SpecError(f"op {self.name}, problem {problem.name}: there is no suite {unknown[0]!r}{there}")

    def _check_group(self, group: Group) -> None:
        known = {a.name: a for a in self.attributes}
        for name, values in group.attributes.items():
            if name not in known or not set(values) <= set(known[name].choices):
                raise SpecError(f"op {self.name}, group {group.name}: attribute {name} or one of its values {list(values)} is unknown")
        paddable = {t.name for t in self.tensors if t.can_pad_rows}
        if refused := sorted(set(group.padding) - paddable):
            raise SpecError(f"op {self.name}, group {group.name}: tensor {', '.join(refused)} cannot have padded rows")

    def check_problem(self, problem: Problem) -> None:
        """Raise :class:`SpecError` where the op has no such problem."""
        needed = {dim for t in self.tensors for dim in t.name_sizes(problem)}
        if missing := sorted(needed - set(problem.sizes)):
            raise SpecError(f"op {self.name}, problem {problem.name}: size {', '.join(missing)} is missing")
        known = {a.name: a for a in self.attributes}
        if unknown := sorted(set(problem.attributes) - set(known)):
            raise SpecError(f"op {self.name}, problem {problem.name}: unknown attribute {', '.join(unknown)}")
        for name, attribute in known.items():
            value = problem.attributes.get(name, attribute.default)
            if value not in attribute.choices:
                raise SpecError(f"op {self.name}, problem {problem.name}: {name}={value!r} is not one of {list(attribute.choices)}")
        attributes = self.attribute_values(problem)
        settled = settle(self.ties, Facts(problem.sizes, attributes))
        if (settled.sizes, settled.attributes) != (problem.sizes, attributes):
            given, agreed = {**problem.sizes, **attributes}, {**settled.sizes, **settled.attributes}
            changed = ", ".join(f"{n}={v!r}" for n, v in agreed.items() if given[n] != v)
            raise SpecError(f"op {self.name}, problem {problem.name}: contradicts the op's ties, which ask for {changed}")
        paddable = {t.name for t in self.tensors if t.can_pad_rows}
        if refused := sorted(set(problem.padding) - paddable):
            raise SpecError(f"op {self.name}, problem {problem.name}: tensor {', '.join(refused)} cannot have padded rows")
        if unknown := sorted(set(problem.offsets) - {t.name for t in self.tensors}):
            raise SpecError(f"op {self.name}, problem {problem.name}: offset of unknown tensor {', '.join(unknown)}")

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The input tensors, in order."""
        return tuple(t for t in self.tensors if t.role is Role.INPUT)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The output tensors, in order."""
        return tuple(t for t in self.tensors if t.role is Role.OUTPUT)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every listed variant of every kernel, in ladder order."""
        return tuple(kernel.bind(bound) for kernel in self.kernels for bound in kernel.variants)

    def attribute_values(self, problem: Problem) -> dict[str, AttributeValue]:
        """Return every attribute for ``problem``, defaults filled in."""
        return {a.name: problem.attributes.get(a.name, a.default) for a in self.attributes}

    def find_facts(self, problem: Problem) -> Facts:
        """Return what conditions ask of a planned problem: its tensors have row strides, and no addresses yet."""
        strides = {}
        for tensor in self.tensors:
            shape = tensor.resolve_shape(problem)
            if tensor.present(problem) and len(shape) > 1:
                strides[tensor.name] = shape[-1] + problem.padding.get(tensor.name, 0)
        return Facts(problem.sizes, self.attribute_values(problem), {}, strides)

    def find_kernel(self, name: str) -> Kernel:
        """Return the kernel of that name, or raise :class:`SpecError` with the names there are."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        names = [k.name for k in self.kernels]
        raise SpecError(f"op {self.name} has no kernel {name!r}{suggest(name, names)}; it has: {', '.join(names)}")

    def select_variants(self, names: Sequence[str]) -> tuple[Variant, ...]:
        """Resolve names from the command line: a kernel (all its listed variants), a full variant id, or a pattern of listed ids.

        None means all; in a pattern ``*`` stands for anything.
        """
        if not names:
            return self.variants
        chosen: dict[str, Variant] = {}
        for name in names:
            if is_pattern(name):
                matching = [v for v in self.variants if fnmatchcase(v.name, name)]
                if not matching:
                    raise SpecError(f"op {self.name} has no listed variant that matches {name!r}; `list {self.name}` shows them")
                chosen.update((v.name, v) for v in matching)
                continue
            kernel_name, _, bound = name.partition("/")
            kernel = self.find_kernel(kernel_name)
            found = [kernel.parse_variant(bound)] if bound else [kernel.bind(b) for b in kernel.variants]
            chosen.update((v.name, v) for v in found)
        return tuple(chosen.values())

    def select_problems(self, suite: str, names: Sequence[str] = ()) -> tuple[Problem, ...]:
        """Return the problems of a suite, or those named: exact ids, whatever their suite, or patterns.

        In a pattern ``*`` stands for anything; it chooses among the suite's problems, or among all where it matches none of these.
        """
        listed = [p for p in self.problems if suite in p.suites]
        if not names:
            return tuple(listed)
        chosen: dict[str, Problem] = {}
        for name in names:
            matches = functools.partial(fnmatchcase, pat=name) if is_pattern(name) else name.__eq__
            found = [p for p in self.problems if matches(p.name)]
            if not found:
                raise SpecError(self._describe_missing(name))
            chosen.update((p.name, p) for p in ([p for p in found if p in listed] or found))
        return tuple(chosen.values())

    def _describe_missing(self, name: str) -> str:
        """Say that no problem is named so, after the list of those that there are: it may be long, and its end is what is read."""
        known = [p.name for p in self.problems]
        close = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        listed = "\n  ".join(known)
        what = "problem that matches" if is_pattern(name) else "problem"
        return f"the problems of op {self.name} are\n  {listed}\nop {self.name} has no {what} {name!r}{hint}"


def is_pattern(name: str) -> bool:
    """Return whether a name from the command line is a pattern, in which ``*`` and ``?`` stand for what they do in a shell."""
    return any(mark in name for mark in "*?[")
