"""``aicf.compile`` and ``aicf.compile_step``: a model's forward pass, or a whole training step, as a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aicf.errors import UnsupportedError
from aicf.frontends.recording import Recording, record
from aicf.nn import Module
from aicf.opset import Type
from aicf.optim import LossScale, Optimizer
from aicf.passes.context import Chooser
from aicf.tensor import Tensor
from aicf.train.building import build
from aicf.train.program import Program, Step
from aicf.train.recipe import Bounds, Made, Options, Recipe
from aicf.train.step_recipe import SCALED, Loss, StepRecipe
from aicf.train.variants import Variants


class _ProgramRecipe(Recipe):
    def trace(self, types: Mapping[str, Type]) -> Recording:
        return record(lambda m, *xs: m(*xs), self.model, types, type(self.model).__name__)

    def make(self, recording: Recording, chooser: Chooser | None = None) -> Made:
        graph, log, plan, choices = build(recording, None, self.backend, self.options, chooser, self.set_example(recording.tensors))
        return Made(plan, recording.tensors, recording.graph, graph, log, choices)


def compile(  # noqa: A001  # as the field has it
    model: Module,
    inputs: Sequence[Tensor],
    *,
    backend: str | None = None,
    amp: str | None = None,
    amp_bound: float | None = None,
    deterministic: bool = True,
    passes: bool = True,
    cache_plans: int = 16,
    cache_bytes: int | None = None,
    memory_bytes: int | None = None,
    tune_seconds: float = 0.0,
) -> Program:
    """Return a model's forward pass as a program for inputs of these types.

    Called with other shapes it compiles a plan for those too, and logs why (``aicf.train``). Where rows go through the network each by
    itself, numbers of rows are rounded up to the next power of two or to those of ``inputs``. At most ``cache_plans`` such plans, of
    ``cache_bytes`` in all, are kept, the last used ones; 0 plans refuse other shapes. For up to ``tune_seconds`` the kernels that serve
    each call are timed on the GPU, in the plan's buffers and on ``inputs``; times are kept in the cache. Other shapes are not tuned.
    A plan has at most ``memory_bytes`` in all, states included: values are computed again where they are read, and the log says at what
    cost; the bits stay the same. With ``amp`` and ``amp_bound`` each call is tried on ``inputs`` in the compute dtype, against float64;
    one whose error is over that share of its largest result stays in fp32, and the log says which and by how much. That is evaluated on
    the host, once; programs of other shapes keep the same calls.

    Raises :class:`~aicf.errors.RecordError` for what a replay would not do again, :class:`~aicf.errors.UnsupportedError` listing all
    calls that no kernel serves, and :class:`~aicf.errors.PlanError` where a plan does not fit into ``memory_bytes``. To tune without a GPU
    raises :class:`~aicf.errors.UnsupportedError` or :class:`~device.UnavailableError`.
    """
    options = Options(backend, amp, deterministic, passes, Bounds(cache_plans, cache_bytes), tune_seconds, memory_bytes, amp_bound)
    options.require_amp()
    recipe = _ProgramRecipe(model, options)
    made = recipe.make_tuned(inputs)
    program = Program(made.plan, made.tensors, made.recorded, made.graph, made.log)
    program.variants = Variants.of(program, recipe, pads_rows=True)
    return program


def compile_step(
    model: Module,
    loss: Loss,
    optimizer: Optimizer,
    batch: Sequence[Tensor],
    *,
    clip_norm: float | None = None,
    loss_scale: LossScale | None = None,
    group: object = None,
    backend: str | None = None,
    amp: str | None = None,
    amp_bound: float | None = None,
    deterministic: bool = True,
    passes: bool = True,
    cache_plans: int = 16,
    cache_bytes: int | None = None,
    memory_bytes: int | None = None,
    tune_seconds: float = 0.0,
) -> Step:
    """Return a training step for batches of these types: ``loss(model, *batch)``, its gradients, and the optimizer's update.

    Parameters, optimizer state, step and generators become views of the plan's memory: eager code and the step share them. A batch of
    other shapes gets a plan of its own on the same states, within ``cache_plans`` and ``cache_bytes`` as :func:`aicf.compile` says; rows
    are not padded, since a loss is made of all of them.

    With ``amp="float16"`` the loss is scaled in the backward pass, by ``loss_scale`` (``LossScale()`` where it is None), and a step whose
    gradients overflow is left out: parameters, optimizer state and step count stay as they are. All of it is computed on the device.
    ``amp_bound``, ``memory_bytes`` and ``tune_seconds`` are as there, with calls of the backward pass too; states stay as they are.

    A step trains on one GPU; ``group``, the processes that are to train together, must be None.

    Raises ValueError for a ``loss_scale`` without float16, :class:`~aicf.errors.UnsupportedError` for a ``group``,
    :class:`~aicf.errors.RecordError` for what a replay would not do again, :class:`~aicf.errors.GradientError` where the loss has no
    gradient, :class:`~aicf.errors.UnsupportedError` listing all calls that no kernel serves, and :class:`~aicf.errors.PlanError` as there.
    """
    options = Options(backend, amp, deterministic, passes, Bounds(cache_plans, cache_bytes), tune_seconds, memory_bytes, amp_bound)
    options.require_amp()
    if group is not None:
        raise UnsupportedError(
            f"group={group!r}: a step trains on one GPU, steps of several processes together do not exist yet; leave it out"
        )
    if loss_scale is not None and amp != SCALED:
        raise ValueError(f"loss_scale: a loss is scaled with amp={SCALED!r} alone, and amp is {amp!r}; leave it out")
    recipe = StepRecipe(model, loss, optimizer, clip_norm, options, scaling=loss_scale)
    made = recipe.make_tuned(batch)
    return finish_step(made, recipe)


def finish_step(made: Made, recipe: StepRecipe, tensors: Mapping[tuple[str, str], Tensor] | None = None, state: Any = None) -> Step:
    """Return a step of what a recipe has made, with memory of its own; ``tensors`` are its states in the place of the recipe's.

    With ``state``, the bytes of all states, the tensors' values are not looked at.
    """
    step = Step(made.plan, made.tensors if tensors is None else tensors, made.recorded, made.graph, made.log, state=state)
    step.recipe = recipe
    step.variants = Variants.of(step, recipe, pads_rows=False)
    return step
