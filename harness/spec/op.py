"""One complete op."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.axes import Axes
from contract.errors import FrozenError
from contract.expressions.tree import Chain
from device.settings import suggest
from harness.errors import SpecError
from harness.spec.arguments import Attribute, Derived, Scalar, Tensor, require_identifier
from harness.spec.callables import Described
from harness.spec.conditions import AttributeValue, Axis, Condition, Facts, OneOf, Tie, find_broken, settle
from harness.spec.kernels import Choice, Cost, Goal, Kernel, Sampling, Variant
from harness.spec.names import find_kernel, match_problems, match_variants
from harness.spec.population import Group, Population
from harness.spec.problem import Arrays, Problem

SUITES = ("verify", "bench", "emulated", "sweep")
# What inputs are drawn from, see ``harness.verify.inputs``: with values of every kind, and with one value of a row that stands out.
VALUE_DISTRIBUTIONS = ("normal", "uniform", "wide", "ties", "denormal", "nonfinite")
PLACE_DISTRIBUTIONS = ("largest_first", "largest_last", "largest_middle", "largest_anywhere", "one_differs", "shifted")
# nvcc's flags that say what is built, for which GPU, and where to: the workbench's own.
_OWN_FLAGS = ("-o", "-c", "-I", "-gencode", "--generate-code", "-arch", "--gpu-", "-cudart", "--cudart", "-ccbin", "-std", "-DAICF_", "-M")
DISTRIBUTIONS = VALUE_DISTRIBUTIONS + PLACE_DISTRIBUTIONS
# The attribute, and the tunable, by which an op with chains tells them apart.
CHAIN = "chain"


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
    its problems into the buckets of which each has one frozen kernel: some of ``dtypes``, ``layout``, ``epilogue`` and ``region``, or axes
    with names of the op's own.
    ``accumulate`` is the dtype in which all its kernels make their sums, which a user of frozen kernels may insist on. ``ties`` say what a
    call's sizes and attributes agree in; each may undo what one before it asked for, and problems are held to all of them.
    ``population`` is what users bring: ``compare --drawn`` judges the op on problems drawn from it. ``scalars`` are numbers given by value,
    and ``derived`` the sizes that follow from others: problems need not name these. ``flags`` are given to nvcc beside the workbench's own
    (``--use_fast_math``). The reference is given tensors of integers and
    booleans as they are, those of floats in float64, and of an INOUT what it holds before the launch. ``chains`` are expressions
    (:mod:`contract.expressions`) of which each variant computes one: the op then has an attribute ``chain`` of their names, its kernels a
    tunable ``chain`` of their numbers, and a variant's domain names its own.
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
    scalars: tuple[Scalar, ...] = ()
    derived: tuple[Derived, ...] = ()
    chains: tuple[Chain, ...] = ()
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_identifier("op", self.name)
        object.__setattr__(self, "problems", tuple(self.complete(p) for p in self.problems))
        object.__setattr__(self, "goals", tuple(replace(g, problems=tuple(self.complete(p) for p in g.problems)) for g in self.goals))
        self._check_names()
        self._check_chains()
        self._check_flags()
        for name in ("reference", "tolerance", "cost", "choose"):
            function = getattr(self, name)
            if function is not None and not isinstance(function, Described):
                object.__setattr__(self, name, Described(self.name, name, function))
        self._check_axes()
        named = {name for tie in self.ties for name in (*(c.attribute for c in tie.when), *tie.then)}
        if unknown := sorted(named - {a.name for a in self.attributes}):
            raise SpecError(f"op {self.name}: a tie names attribute {', '.join(unknown)}, which does not exist")
        for problem in self.problems:
            self._check_suites(problem)
            self.check_problem(problem)
        known = {p.name for p in self.problems}
        for goal in self.goals:
            if unknown := sorted({p.name for p in goal.problems} - known):
                raise SpecError(f"op {self.name}, goal {goal.name}: {', '.join(unknown)} is not one of the op's problems")
        for group in self.population.groups if self.population else ():
            self._check_group(group)

    def _check_chains(self) -> None:
        names = tuple(c.name for c in self.chains)
        if names and next((a.choices for a in self.attributes if a.name == CHAIN), ()) != names:
            raise SpecError(f"op {self.name}: it has chains, and needs an attribute {CHAIN} whose choices are their names, in their order")

    def narrow(self, variant: Variant) -> Op:
        """Return the op as far as a variant goes: with the problems of its chain alone, where it has chains."""
        if not self.chains:
            return self
        domain = self.find_kernel(variant.kernel).domain
        conditions = domain(variant.tunables) if domain is not None else ()
        names = {v for c in conditions if isinstance(c, OneOf) and c.attribute == CHAIN for v in c.values} or {c.name for c in self.chains}
        served = tuple(p for p in self.problems if self.attribute_values(p)[CHAIN] in names)
        return replace(self, problems=served, goals=(), population=None)

    def _check_axes(self) -> None:
        for axis in self.axes:
            require_identifier(f"op {self.name}: axis", axis.name)
        try:
            Axes.of([axis.to_json() for axis in self.axes])
        except FrozenError as error:
            raise SpecError(f"op {self.name}: {error}") from None

    def _check_names(self) -> None:
        arguments = [*(t.name for t in self.tensors), *(a.name for a in self.attributes), *(s.name for s in self.scalars)]
        for kind, names in (
            ("kernel", [k.name for k in self.kernels]),
            ("problem", [p.name for p in self.problems]),
            ("tensor", [t.name for t in self.tensors]),
            ("argument", [name for name in arguments if name in {s.name for s in self.scalars}]),
            ("axis", [a.name for a in self.axes]),
            ("size", [d.name for d in self.derived]),
            ("goal", [g.name for g in self.goals]),
        ):
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise SpecError(f"op {self.name}: {kind} {', '.join(twice)} is defined more than once")

    def _check_flags(self) -> None:
        for flag in self.flags:
            if not flag.startswith("-") or flag.startswith(_OWN_FLAGS):
                raise SpecError(
                    f"op {self.name}: flag {flag!r} cannot be given: a flag begins with - and is not one of those "
                    f"which the workbench sets: {', '.join(_OWN_FLAGS)}"
                )

    def _check_suites(self, problem: Problem) -> None:
        if unknown := sorted(set(problem.suites) - set(SUITES)):
            there = f"{suggest(unknown[0], SUITES)} (suites: {', '.join(SUITES)})"
            raise SpecError(f"op {self.name}, problem {problem.name}: there is no suite {unknown[0]!r}{there}")

    def _check_group(self, group: Group) -> None:
        known = {a.name: a for a in self.attributes}
        for name, values in group.attributes.items():
            if name not in known or not set(values) <= set(known[name].choices):
                raise SpecError(f"op {self.name}, group {group.name}: attribute {name} or one of its values {list(values)} is unknown")
        paddable = {t.name for t in self.tensors if t.can_pad_rows or t.is_strided}
        if refused := sorted((set(group.padding) | set(group.orders)) - paddable):
            raise SpecError(f"op {self.name}, group {group.name}: tensor {', '.join(refused)} cannot have padded rows")
        scalars = {s.name: s for s in self.scalars}
        for name, values in group.scalars.items():
            if fault := next((f for v in values if (f := scalars[name].find_fault(v))), "") if name in scalars else f"no scalar {name}":
                raise SpecError(f"op {self.name}, group {group.name}: {fault}")

    def check_problem(self, problem: Problem) -> None:
        """Raise :class:`SpecError` where the op has no such problem."""
        needed = {dim for t in self.tensors for dim in t.name_sizes(problem) if isinstance(dim, str)}
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
        settled = self.settle(problem.sizes, attributes)
        if (settled.sizes, settled.attributes) != (problem.sizes, attributes):
            given, agreed = {**problem.sizes, **attributes}, {**settled.sizes, **settled.attributes}
            changed = ", ".join(f"{n}={v!r}" for n, v in agreed.items() if given[n] != v)
            raise SpecError(f"op {self.name}, problem {problem.name}: contradicts the op's ties, which ask for {changed}")
        for fault in (self._find_unknown(problem), *(t.check_problem(problem) for t in self.tensors), self._find_scalar_fault(problem)):
            if fault:
                raise SpecError(f"op {self.name}, problem {problem.name}: {fault}")

    def _find_unknown(self, problem: Problem) -> str:
        named = {"padding": problem.padding, "order": problem.orders, "offset": problem.offsets}
        for what, values in named.items():
            if unknown := sorted(set(values) - {t.name for t in self.tensors}):
                return f"{what} of unknown tensor {', '.join(unknown)}"
        unknown = sorted(set(problem.scalars) - {s.name for s in self.scalars})
        return f"unknown scalar {', '.join(unknown)}" if unknown else ""

    def _find_scalar_fault(self, problem: Problem) -> str:
        values = self.scalar_values(problem)
        return next((fault for s in self.scalars if (fault := s.find_fault(values[s.name]))), "")

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that are read, in order: INOUT ones among them."""
        return tuple(t for t in self.tensors if t.is_read)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that are written, in order: INOUT ones among them."""
        return tuple(t for t in self.tensors if t.is_written)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every listed variant of every kernel, in ladder order."""
        return tuple(kernel.bind(bound) for kernel in self.kernels for bound in kernel.variants)

    def attribute_values(self, problem: Problem) -> dict[str, AttributeValue]:
        """Return every attribute for ``problem``, defaults filled in."""
        return {a.name: problem.attributes.get(a.name, a.default) for a in self.attributes}

    def cut_attributes(self, problem: Problem, interface: Mapping[str, Any]) -> dict[str, AttributeValue]:
        """Return a problem's attributes as an interface has them that the op has grown beyond.

        Raises :class:`SpecError` naming one that the interface lacks, where the problem's value is not the default.
        """
        known = {a["name"] for a in interface["attributes"]}
        values = self.attribute_values(problem)
        for attribute in self.attributes:
            if attribute.name not in known and values[attribute.name] != attribute.default:
                raise SpecError(f"the frozen set of {self.name} has no attribute {attribute.name}: promote a kernel of the op as it is now")
        return {name: value for name, value in values.items() if name in known}

    def scalar_values(self, problem: Problem) -> dict[str, float]:
        """Return every scalar for ``problem`` as a launch is given it, defaults filled in."""
        given = {s.name: problem.scalars.get(s.name, s.default) for s in self.scalars}
        return {s.name: int(given[s.name]) if s.is_whole else float(given[s.name]) for s in self.scalars}

    def list_passed(self, problem: Problem) -> dict[str, AttributeValue]:
        """Return what a launch is given beside the tensors: attributes that are passed, and scalars."""
        values = self.attribute_values(problem)
        return {a.name: values[a.name] for a in self.attributes if a.passed} | self.scalar_values(problem)

    def settle(self, sizes: Mapping[str, int], attributes: Mapping[str, AttributeValue]) -> Facts:
        """Return sizes and attributes with what the op's ties ask for, and the derived sizes that follow."""
        agreed = settle(self.ties, Facts(sizes, attributes))
        found = dict(agreed.sizes)
        for derived in self.derived:
            found[derived.name] = derived.evaluate(found, agreed.attributes)
        return Facts(found, agreed.attributes) if self.derived else agreed

    def complete(self, problem: Problem) -> Problem:
        """Return the problem with the derived sizes that it does not name."""
        sizes = dict(problem.sizes)
        for derived in self.derived:
            if derived.name not in sizes:
                sizes[derived.name] = derived.evaluate(sizes, self.attribute_values(problem))
        return replace(problem, sizes=sizes) if len(sizes) > len(problem.sizes) else problem

    def find_facts(self, problem: Problem) -> Facts:
        """Return what conditions ask of a planned problem: its tensors have row strides, and no addresses yet."""
        found = {t.name: t.find_row_strides(problem) for t in self.tensors if t.present(problem)}
        strides = {name: stride for name, stride in found.items() if stride is not None}
        return Facts(problem.sizes, self.attribute_values(problem), {}, strides)

    def meets(self, conditions: Sequence[Condition], problem: Problem) -> bool:
        """Return whether all conditions hold for a planned problem."""
        return find_broken(conditions, self.find_facts(problem)) is None

    def meets_domain(self, variant: Variant, problem: Problem) -> bool:
        """Return whether a variant's domain holds for a problem; one that declares none serves whatever it is asked to."""
        domain = self.find_kernel(variant.kernel).domain
        return domain is None or self.meets(domain(variant.tunables), problem)

    def find_kernel(self, name: str) -> Kernel:
        """Return the kernel of that name, or raise :class:`SpecError` with the names there are."""
        return find_kernel(self.name, self.kernels, name)

    @cached_property
    def settings(self) -> tuple[Problem, ...]:
        """A problem for each setting of the attributes, the last one's choices changing fastest, of one listed problem's sizes."""
        names = [a.name for a in self.attributes]
        choices = itertools.product(*(a.choices for a in self.attributes))
        return tuple(Problem(self.problems[0].sizes, dict(zip(names, c, strict=True))) for c in choices)

    def select_variants(self, names: Sequence[str]) -> tuple[Variant, ...]:
        """Resolve names from the command line: a kernel (all its listed variants), a full variant id, or a pattern of listed ids.

        None means all; in a pattern ``*`` stands for anything.
        """
        return match_variants(self.name, self.kernels, names) if names else self.variants

    def select_problems(self, suite: str, names: Sequence[str] = ()) -> tuple[Problem, ...]:
        """Return the problems of a suite, or those named: exact ids, whatever their suite, or patterns.

        In a pattern ``*`` stands for anything; it chooses among the suite's problems, or among all where it matches none of these.
        """
        listed = tuple(p for p in self.problems if suite in p.suites)
        return match_problems(self.name, self.problems, listed, names) if names else listed
