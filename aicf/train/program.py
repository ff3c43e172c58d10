"""``aicf.compile``: a model's forward pass as a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aicf.backends import find_backend
from aicf.ir import Graph
from aicf.ir.recording import Recording, record
from aicf.nn import Module
from aicf.opset import Type
from aicf.passes import PASSES, Context, LogEntry, run_passes
from aicf.passes.context import Chooser, Training
from aicf.plan import Plan, make_plan, verify
from aicf.runtime import Executor, make_executor
from aicf.tensor import Tensor


@dataclass(frozen=True)
class Options:
    """How programs are compiled.

    ``backend`` is the model's by default. ``amp`` is a compute dtype or None. ``deterministic`` kernels alone are chosen. ``passes`` off
    leaves those out that compilation does not need.
    """

    backend: str | None = None
    amp: str | None = None
    deterministic: bool = True
    passes: bool = True


class Compiled:
    """A plan with its memory. States of the model are views of it: eager and compiled code share the weights."""

    def __init__(self, recording: Recording, graph: Graph, log: Sequence[LogEntry], plan: Plan) -> None:
        self.recorded = recording.graph
        self.graph = graph
        self.log = tuple(log)
        self.plan = plan
        self.executor: Executor = make_executor(plan)
        self.tensors: Mapping[tuple[str, str], Tensor] = recording.tensors
        self._backend = find_backend(plan.backend)
        self._share_states()

    def _share_states(self) -> None:
        """Copy each state in, and make its tensor a view of the plan's memory."""
        for state in self.plan.states:
            tensor = self.tensors[state.owner, state.role]
            self.executor.write(state.slot, tensor.backend.to_host(tensor.data))
            tensor.data, tensor.backend = self.executor.view(state.slot), self._backend
            tensor.grad = None

    def run(self, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
        """Run the plan on inputs; returns its outputs, which are overwritten by the next run."""
        self.executor.put([x.data if isinstance(x, Tensor) else x for x in inputs])
        self.executor.run()
        for new in self.plan.states:
            self.tensors[new.owner, new.role].version.count += 1
        return tuple(Tensor.wrap(self.executor.view(slot), self._backend) for slot in self.plan.outputs)


class Program(Compiled):
    """A model's forward pass, compiled: call it like the model."""

    def __call__(self, *inputs: Any) -> Any:
        """Return the model's outputs, which the next call overwrites. Raises ValueError for types that it was not compiled for."""
        outputs = self.run(inputs)
        return outputs[0] if len(outputs) == 1 else outputs


def compile(  # noqa: A001  # as the field has it
    model: Module,
    inputs: Sequence[Tensor],
    *,
    backend: str | None = None,
    amp: str | None = None,
    deterministic: bool = True,
    passes: bool = True,
) -> Program:
    """Return a model's forward pass as a program for inputs of these types.

    Raises :class:`~aicf.errors.RecordError` for what a replay would not do again, and :class:`~aicf.errors.UnsupportedError` listing all
    calls that no kernel serves.
    """
    options = Options(backend, amp, deterministic, passes)
    recording = record(lambda m, *xs: m(*xs), model, name_inputs(inputs), type(model).__name__)
    graph, log, plan = build(recording, None, find_backend_name(model, options), options)
    return Program(recording, graph, log, plan)


def name_inputs(inputs: Sequence[Any]) -> dict[str, Type]:
    """Return the types of inputs by name: x0, x1, ...; raises TypeError for one that is not a tensor."""
    for x in inputs:
        if not isinstance(x, Tensor):
            raise TypeError(f"expected tensors as inputs, got {type(x).__name__}; Tensor(values) makes one")
    return {f"x{i}": x.type for i, x in enumerate(inputs)}


def find_backend_name(model: Module, options: Options) -> str:
    """Return the backend to compile for: the one that is asked for, or the model's."""
    if options.backend is not None:
        return options.backend
    names = {tensor.backend.name for _, tensor in model.named_tensors()}
    if len(names) > 1:
        raise ValueError(f"the model's parameters are on several backends ({', '.join(sorted(names))}); model.to(backend) moves them")
    return next(iter(names), "numpy")


def build(recording: Recording, training: Training | None, backend: str, options: Options) -> tuple[Graph, list[LogEntry], Plan]:
    """Return the graph after all passes, their log, and the verified plan."""
    context = Context(training, _find_chooser(backend, options), options.amp)
    chosen = [each for each in PASSES if options.passes or each.is_needed]
    graph, log = run_passes(recording.graph, context, chosen)
    plan = make_plan(graph, backend, context.choices)
    verify(plan)
    return graph, log, plan


def _find_chooser(backend: str, options: Options) -> Chooser | None:
    if backend != "cuda":
        return None
    from aicf.runtime.chooser import FrozenChooser

    return FrozenChooser(deterministic=options.deterministic)
