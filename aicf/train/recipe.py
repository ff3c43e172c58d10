"""How a program is compiled: what is recorded, passes, kernels and plan; done again for other shapes and other structures."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from aicf.backends import BACKENDS
from aicf.errors import UnsupportedError
from aicf.frontends.recording import Recording
from aicf.ir import Graph
from aicf.nn import Module
from aicf.opset import Type
from aicf.passes import LogEntry
from aicf.passes.context import Choice, Chooser, Example, Guard
from aicf.plan import Plan, verify
from aicf.plan.planner import make_plan
from aicf.plan.streams import choose_streams
from aicf.runtime.executor import EXECUTED
from aicf.runtime.tuning import Bench
from aicf.tensor import Tensor


@dataclass(frozen=True)
class Bounds:
    """How many plans of other shapes are kept, and the bytes that they may have in all without states; None is no limit."""

    num_plans: int = 16
    num_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.num_plans < 0 or (self.num_bytes is not None and self.num_bytes < 0):
            raise ValueError(f"cache_plans={self.num_plans}, cache_bytes={self.num_bytes}: must be at least 0")


@dataclass(frozen=True)
class Options:
    """How programs are compiled.

    ``backend`` is the model's by default. ``amp`` is a compute dtype or None. ``deterministic`` kernels alone are chosen. ``passes`` off
    leaves those out that compilation does not need. ``bounds`` are those of the programs of other shapes. For ``tune_seconds`` kernels are
    timed in the plan's own buffers, and steps are put side by side where that is faster. ``memory_bytes`` is what a plan may have in all;
    to get there, values are computed twice. Nodes whose error in 16 bits is over ``amp_bound`` stay in fp32.
    """

    backend: str | None = None
    amp: str | None = None
    deterministic: bool = True
    passes: bool = True
    bounds: Bounds = field(default_factory=Bounds)
    tune_seconds: float = 0.0
    memory_bytes: int | None = None
    amp_bound: float | None = None

    def __post_init__(self) -> None:
        if not self.tune_seconds >= 0.0:
            raise ValueError(f"tune_seconds={self.tune_seconds}: must be at least 0")
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise ValueError(f"memory_bytes={self.memory_bytes}: must be at least 1")
        if self.amp_bound is not None and not 0.0 <= self.amp_bound < math.inf:
            raise ValueError(f"amp_bound={self.amp_bound}: must be at least 0 and finite, a share of a node's largest result")

    def require_amp(self) -> None:
        """Raise ValueError for a bound of mixed precision where there is none."""
        if self.amp_bound is not None and self.amp is None:
            raise ValueError(f"amp_bound={self.amp_bound}: bounds mixed precision, and amp is None; give amp, or leave it out")


@dataclass(frozen=True)
class Made:
    """What a compilation makes: the plan, the tensors that its states are, the graph as it was recorded and as the passes left it."""

    plan: Plan
    tensors: Mapping[tuple[str, str], Tensor]
    recorded: Graph
    graph: Graph
    log: Sequence[LogEntry]
    choices: Mapping[int, Choice]


class Recipe(ABC):
    """How a program is made for inputs of given types: what is done again for other shapes, in the modes that modules had at first."""

    def __init__(self, model: Module, options: Options) -> None:
        self.model = model
        self.options = options
        self.backend = find_backend_name(model, options)
        self.guard = None if options.amp_bound is None else Guard(options.amp_bound)
        self.examples: Sequence[NDArray[Any]] | None = None
        self._modes = [(module, module.training) for _, module in model.modules()]

    @contextmanager
    def in_first_modes(self) -> Iterator[None]:
        """Have modules in the modes, training or not, that they had when the recipe was made."""
        before = [(module, module.training) for module, _ in self._modes]
        for module, mode in self._modes:
            module.training = mode
        try:
            yield
        finally:
            for module, mode in before:
                module.training = mode

    def record(self, types: Sequence[Type]) -> Recording:
        """Return the function recorded for inputs of these types."""
        with self.in_first_modes():
            return self.trace({f"x{i}": t for i, t in enumerate(types)})

    @abstractmethod
    def trace(self, types: Mapping[str, Type]) -> Recording:
        """Return the function recorded for inputs of these types, by name."""

    @abstractmethod
    def make(self, recording: Recording, chooser: Chooser | None = None) -> Made:
        """Return the plan of what was recorded, with kernels of a chooser, by default the backend's own."""

    def set_example(self, tensors: Mapping[tuple[str, str], Tensor]) -> Guard | None:
        """Return the guard of mixed precision with the example that there is now, of states that are these tensors."""
        if self.guard is not None:
            examples, self.examples = self.examples, None  # for the next graph alone
            self.guard.example = None if examples is None else Example(examples, lambda owner, role: tensors[owner, role].numpy())
        return self.guard

    def take_guard(self, other: Recipe, examples: Sequence[NDArray[Any]] | None = None) -> None:
        """Keep the nodes in fp32 that another recipe keeps there, until a graph is made with examples."""
        self.examples = examples
        if self.guard is not None and other.guard is not None:
            self.guard.kept = dict(other.guard.kept)

    def make_tuned(self, inputs: Sequence[Tensor]) -> Made:
        """Return the plan for inputs; where time is given for it, with the kernels that are fastest on them."""
        types = list_types(inputs)
        self.examples = None if self.guard is None else [x.backend.to_host(x.data) for x in inputs]
        made = self.make(self.record(types))
        if not self.options.tune_seconds:
            return made
        if self.backend != "cuda":
            raise UnsupportedError(f"tune_seconds={self.options.tune_seconds}: backend {self.backend} has no kernels to choose from")
        values = {key: tensor.backend.to_host(tensor.data) for key, tensor in made.tensors.items()}
        arrays = [x.backend.to_host(x.data) for x in inputs]
        bench = Bench(values, arrays, self.options.tune_seconds, deterministic=self.options.deterministic)
        changed, said = bench.choose_kernels(made.plan)
        choices = {**made.choices, **changed}
        plan = make_plan(made.graph, self.backend, choices)
        verify(plan)
        plan, told = choose_streams(
            plan, bench.time_steps(plan), lambda streams: make_plan(made.graph, self.backend, choices, streams), bench.time_run
        )
        entry = LogEntry("tune", len(made.graph.nodes), len(made.graph.nodes), (*said, told))
        return replace(made, plan=plan, choices=choices, log=[*made.log, entry])


def list_types(inputs: Sequence[Any]) -> list[Type]:
    """Return the types of inputs; raises TypeError for one that is not a tensor."""
    for x in inputs:
        if not isinstance(x, Tensor):
            raise TypeError(f"expected tensors as inputs, got {type(x).__name__}; Tensor(values) makes one")
    return [x.type for x in inputs]


def find_backend_name(model: Module, options: Options) -> str:
    """Return the backend to compile for: the one that is asked for, or the model's; raises for one that runs no plans."""
    names = {tensor.backend.name for _, tensor in model.named_tensors()} if options.backend is None else {options.backend}
    if len(names) > 1:
        raise ValueError(f"the model's parameters are on several backends ({', '.join(sorted(names))}); model.to(backend) moves them")
    name = next(iter(names), "numpy")
    if name not in BACKENDS:
        raise ValueError(f"no backend {name!r}; there are: {', '.join(BACKENDS)}")
    if name not in EXECUTED:
        raise UnsupportedError(f"backend {name} runs no plans, only eager calls; compile with backend= one of: {', '.join(EXECUTED)}")
    return name
