"""A structure that trains: a compiled step with the model and optimizer that it is made of; and how one follows another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from aicf.errors import GradientError, GraphError, PlanError, RecordError, RewriteError, StateError, UnsupportedError
from aicf.ir.graph import CONTROL, OBSERVATION, PARAMETER, RANDOM
from aicf.nn import Module
from aicf.opset import Type, find_dtype
from aicf.optim import Optimizer
from aicf.passes import FUSE_CHAINS
from aicf.plan.data import STATE
from aicf.rewrite.copying import copy_model, copy_optimizer, copy_scaling, copy_tensor, make_blank, make_like
from aicf.rewrite.draft import Draft, Rest
from aicf.rewrite.observers import Watch
from aicf.rewrite.rules.rule import Rule
from aicf.tensor import Tensor
from aicf.train.compiled import Key
from aicf.train.compiling import finish_step
from aicf.train.program import Step
from aicf.train.recipe import Made
from aicf.train.step_recipe import StepRecipe
from aicf.train.variants import Variants

# What recording and compiling raise where a model's own code, or the kernels that there are, do not go with a structure.
_REFUSALS = (RecordError, GradientError, GraphError, PlanError, UnsupportedError, TypeError, ValueError, LookupError)


@dataclass(frozen=True)
class Prepared:
    """A structure that is compiled, before it has memory."""

    made: Made
    recipe: StepRecipe
    watch: Watch | None

    @property
    def is_unfused(self) -> bool:
        """Whether elementwise chains that passes would have fused run in parts, since the fused ones are not in the cache."""
        return self.recipe.options.passes and all(entry.rule != FUSE_CHAINS for entry in self.made.log)


@dataclass
class Structure:
    """A compiled step and what it is made of. ``resting`` are parameters that are frozen, by path; ``watch`` are the observers."""

    step: Step
    recipe: StepRecipe
    resting: dict[str, Rest] = field(default_factory=dict)
    watch: Watch | None = None
    _close: Step | None = None

    @classmethod
    def of(cls, step: Step, every: int | None = None) -> Structure:
        """Return a step's structure, with observers of windows of ``every`` steps; raises :class:`RewriteError` for one that was loaded.

        Observers are part of a step: it is compiled again, of the same model and optimizer, and the old one's use raises.
        """
        recipe = step.recipe
        if recipe is None:
            raise RewriteError(
                f"{step.plan.name}: was loaded, and no longer has its model; make it by aicf.compile_step and load its state"
            )
        if every is None:
            return cls(step, recipe)
        watch = Watch(every)
        recipe.observe = watch.note
        made = recipe.make(recipe.record(step.plan.given_types))
        step.retire("it was compiled again with observers; go on with run.step")
        return cls(finish_step(made, recipe), recipe, {}, watch)

    @property
    def close_step(self) -> Step:
        """The step that looks closely, on the states of the other one where they lie in the same places."""
        assert self.watch is not None
        if self._close is None:
            recipe, made = make_close(self.recipe, self.watch, self.types)
            tensors = {key: self.step.tensors.get(key, tensor) for key, tensor in made.tensors.items()}
            self._close = Step(made.plan, tensors, made.recorded, made.graph, made.log, self.step)
            self._close.variants = Variants.of(self._close, recipe, pads_rows=False)
        return self._close

    def run_closely(self, batch: Sequence[Any]) -> None:
        """Train on a batch, and look closely."""
        close = self.close_step
        if not close.shares_states:
            close.take_over()
        close.run(batch)
        if not close.shares_states:
            self.step.take_over()

    @property
    def batch(self) -> int:
        """The rows of a batch: the first extent of the step's first input."""
        return self.types[0].shape[0] if self.types and self.types[0].shape else 0

    @property
    def types(self) -> list[Type]:
        """The types of a batch."""
        return list(self.step.plan.given_types)

    def start(self) -> Draft:
        """Return a draft of the next structure."""
        assert self.step.recorded is not None
        with self.recipe.in_first_modes():
            return Draft.of(self.step.recorded, self.recipe.model, self.recipe.optimizer, self.resting, self.batch, self.recipe.options.amp)

    def prepare(self, draft: Draft) -> Prepared:
        """Compile what a draft has become; raises :class:`RewriteError` where that cannot be done. This structure stays as it is."""
        old = self.recipe
        options = replace(old.options, backend=old.backend, tune_seconds=0.0, amp=draft.amp)
        types = [t.reshape((draft.batch, *t.shape[1:])) if t.shape and t.shape[0] == self.batch else t for t in self.types]
        watch = None if self.watch is None else Watch(self.watch.every)
        observe, scaling = None if watch is None else watch.note, copy_scaling(old.scaling, copy_tensor)
        try:
            recipe = StepRecipe(draft.model, old.loss, draft.optimizer, old.clip_norm, options, observe, scaling)
            recipe.take_guard(old, self._read_batch(types))
            return Prepared(recipe.make(recipe.record(types)), recipe, watch)
        except _REFUSALS as error:
            raise RewriteError(f"{self.step.plan.name}: cannot be compiled after this change: {error}") from error

    def _read_batch(self, types: Sequence[Type]) -> list[NDArray[Any]] | None:
        """Return the last batch as the next structure takes it; None where there was none yet, or it takes another one."""
        if self.recipe.guard is None or list(types) != self.types:
            return None
        slots = zip(self.step.plan.inputs, types, strict=True)
        batch = [self.step.executor.read(slot).astype(find_dtype(t.dtype), copy=False) for (_, slot), t in slots]
        return batch if any(array.any() for array in batch) else None

    def exchange(self, prepared: Prepared, resting: Mapping[str, Rest]) -> Structure:
        """Return the structure that follows, with all state, which is copied where it is; this one is retired."""
        made, recipe = prepared.made, prepared.recipe
        drawn = {key: tensor for key, tensor in self.step.tensors.items() if key[1] == RANDOM and key in made.tensors}
        step = finish_step(made, recipe, {**made.tensors, **drawn})
        self.retire("the network was rewritten; go on with run.step and run.model")
        return Structure(step, recipe, dict(resting), prepared.watch)

    def rebuild(
        self, rules: Sequence[Rule], resting: Mapping[str, Mapping[str, NDArray[Any]]], states: Mapping[str, NDArray[Any]]
    ) -> Structure:
        """Return the structure that rules make of a copy of this one, with other states; this one stays as it is.

        Raises :class:`RewriteError` where a rule cannot be applied, and ValueError where states are of another structure.
        """
        made = Frame.of(self).restore(is_fork=True)
        for rule in rules:
            draft = made.start()
            rule.change(draft)
            draft.finish()
            made = made.exchange(made.prepare(draft), draft.resting)
        if resting.keys() != made.resting.keys():
            raise ValueError(f"frozen are {', '.join(made.resting) or 'none'}, and the file has {', '.join(resting) or 'none'}")
        made.resting = {path: Rest(rest.group, dict(resting[path])) for path, rest in made.resting.items()}
        noted = {k: v for k, v in made.step.state_dict().items() if k.startswith(f"{OBSERVATION}:")}
        made.step.load_state_dict({**states, **noted})
        return made

    def retire(self, reason: str) -> None:
        """Stop: any use of step, model or optimizer raises from now on, but their values stay readable.

        Memory is given back; that of the states with the last who keeps the model or the optimizer.
        """
        if self._close is not None:
            self._close.retire(reason)
        self.step.retire(reason)
        refuse = _make_refusal(f"{type(self.recipe.model).__name__}: {reason}")
        for _, module in self.recipe.model.modules():
            vars(module)["forward"] = refuse
        vars(self.recipe.optimizer)["step"] = refuse


def make_close(recipe: StepRecipe, watch: Watch, types: Sequence[Type]) -> tuple[StepRecipe, Made]:
    """Return how the step that looks closely is made, of the model and optimizer of another one, and what is compiled."""
    options = replace(recipe.options, backend=recipe.backend, tune_seconds=0.0)
    with recipe.in_first_modes():
        close = StepRecipe(recipe.model, recipe.loss, recipe.optimizer, recipe.clip_norm, options, watch.look_closely, recipe.scaling)
        close.take_guard(recipe)
    return close, close.make(close.record(types))


def _make_refusal(message: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RewriteError(message)

    return refuse


@dataclass(frozen=True)
class Frame:
    """A structure at a moment: how it was compiled, and the bytes of all state, on the host or where the plan runs.

    It can be brought back many times.
    """

    made: Made
    recipe: StepRecipe
    resting: Mapping[str, Rest]
    drawn: Mapping[Key, Tensor]
    state: Any
    every: int | None = None

    @classmethod
    def of(cls, structure: Structure, *, on_host: bool = False, replaces: Frame | None = None) -> Frame:
        """Return a structure as it is now, behind all work; in the memory of a frame that it replaces, where that is of the same size.

        A device copies while the host makes the rest.
        """
        step = structure.step
        old = None if replaces is None else replaces.give_up()
        state = step.executor.hold_bytes(STATE) if on_host else step.executor.copy_bytes(STATE, old)
        recipe = _copy_recipe(structure.recipe)
        assert step.recorded is not None and step.graph is not None
        made = Made(step.plan, step.tensors, step.recorded, step.graph, step.log, {})
        drawn = {key: tensor for key, tensor in step.tensors.items() if key[1] == RANDOM}
        resting = {path: Rest(r.group, dict(r.state)) for path, r in structure.resting.items()}
        made = replace(made, tensors={})  # the present ones are not the frame's
        every = None if structure.watch is None else structure.watch.every
        return cls(made, recipe, resting, drawn, state, every)

    def give_up(self) -> Any:
        """Return the state's memory, and have it no more: any use raises StateError."""
        state = self._find_state()
        object.__setattr__(self, "state", None)
        return state

    def _find_state(self) -> Any:
        if self.state is None:
            raise StateError("the snapshot was replaced by a later one, which took its memory")
        return self.state

    def read_state(self) -> NDArray[np.uint8]:
        """Return the bytes of all state in host memory."""
        state = self._find_state()
        found: NDArray[np.uint8] = state if isinstance(state, np.ndarray) else state.copy_to_host()
        return found

    def restore(self, *, is_fork: bool = False) -> Structure:
        """Return the structure with its state, bit for bit, in memory of its own. A fork draws random numbers by counters of its own."""
        recipe = _copy_recipe(self.recipe)
        drawn = {key: copy_tensor(t) for key, t in self.drawn.items()} if is_fork else self.drawn
        watch = None if self.every is None else Watch.of_plan(self.every, self.made.plan)
        if watch is not None:
            recipe.observe = watch.note
        noted = {} if watch is None else watch.tensors
        step = finish_step(self.made, recipe, {**find_tensors(recipe, self.made), **drawn, **noted}, self._find_state())
        return Structure(step, recipe, dict(self.resting), watch)

    def is_of(self, structure: Structure) -> bool:
        """Whether a structure is the same one, with the same plan: its state can be overwritten then."""
        return structure.step.plan is self.made.plan

    def write_to(self, structure: Structure) -> None:
        """Overwrite the state of the same structure."""
        structure.step.executor.write_bytes(STATE, self._find_state())
        for tensor in structure.step.tensors.values():
            tensor.version.count += 1


def _copy_recipe(recipe: StepRecipe) -> StepRecipe:
    """Return a recipe of a copy of model and optimizer, whose values do not matter."""
    with recipe.in_first_modes():
        model, tensors = copy_model(recipe.model, lambda t: make_like(t, make_blank(t).data))
    optimizer = copy_optimizer(recipe.optimizer, tensors, make_blank)
    options = replace(recipe.options, backend=recipe.backend)
    made = StepRecipe(model, recipe.loss, optimizer, recipe.clip_norm, options, scaling=copy_scaling(recipe.scaling, make_blank))
    made.take_guard(recipe)
    return made


def find_tensors(recipe: StepRecipe, made: Made) -> dict[Key, Tensor]:
    """Return the tensors of a recipe's model and optimizer that are a plan's states, but for random counters."""
    optimizer: Optimizer = recipe.optimizer
    model: Module = recipe.model
    paths = {id(p): path for path, p in model.named_parameters()}
    found: dict[Key, Tensor] = {("step", CONTROL): optimizer.steps_done}
    if recipe.scaling is not None:
        found |= {(owner, CONTROL): tensor for owner, tensor in recipe.scaling.tensors.items()}
    held = {(s.owner, s.role) for s in made.plan.states}
    for path, tensor in model.named_tensors():
        found |= {key: tensor for key in ((path, PARAMETER), (path, "buffer")) if key in held}
    for i, p in enumerate(optimizer.params):
        found |= {(paths[id(p)], role): tensor for role, tensor in optimizer.state.get(i, {}).items()}
    return {key: tensor for key, tensor in found.items() if key in held}
