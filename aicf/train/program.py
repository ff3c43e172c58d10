"""``aicf.compile``: a model's forward pass as a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aicf.frontends.recording import Recording, record
from aicf.ir import Graph
from aicf.nn import Module
from aicf.opset import Type
from aicf.passes import PASSES, Context, LogEntry, run_passes
from aicf.passes.context import Chooser, Training
from aicf.plan import Plan, make_plan, verify
from aicf.tensor import Tensor
from aicf.train.compiled import Compiled


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
    return Program(plan, recording.tensors, recording.graph, graph, log)


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
