"""How a training step is compiled: forward, backward and update as one plan; whatever varies per step is in the plan's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aicf.frontends.recording import Recorder, Recording, record
from aicf.ir import Graph, Rewriter, Value
from aicf.ir.graph import CONTROL
from aicf.modes import recording
from aicf.nn import Module
from aicf.opset import Type
from aicf.opset.counting import COUNT_STEP
from aicf.optim import Optimizer
from aicf.optim.clipping import find_factor, find_norm, weigh
from aicf.optim.scaling import LossScale, Scaled
from aicf.passes.context import Chooser, Training, Updates
from aicf.tensor import Tensor, apply
from aicf.train.building import build
from aicf.train.recipe import Made, Options, Recipe

Loss = Callable[..., Tensor]
SCALED = "float16"  # the compute dtype whose gradients need a scaled loss


@dataclass(frozen=True)
class Computed:
    """What a step has computed when its update is made: what observers look at.

    ``recorded`` is the loss as it was recorded, ``forward`` as passes left it. ``norm`` is that of all gradients, where they are clipped;
    ``gradients`` are as before clipping, so that copies of units count as they did before, ``raw`` as the backward
    pass made them. ``before`` and ``after`` are the parameters
    (copies, and the new values). Where the loss is scaled, so are ``gradients`` and ``raw``, by ``scale``; the norm is not.
    """

    recorder: Recorder
    recorded: Graph
    forward: Graph
    loss: Tensor
    gradients: Mapping[str, Tensor]
    raw: Mapping[str, Tensor]
    norm: Tensor | None
    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]
    scale: Tensor | None = None


# Adds states to a step, and returns their updates.
Observe = Callable[[Computed], Updates]


class StepRecipe(Recipe):
    """How a training step is made: of which model, loss and optimizer, with which clipping, and with what looking on.

    ``scaling`` is the scale of the loss, which is used in float16 alone; one is made there where none is given.
    """

    def __init__(
        self,
        model: Module,
        loss: Loss,
        optimizer: Optimizer,
        clip_norm: float | None,
        options: Options,
        observe: Observe | None = None,
        scaling: LossScale | None = None,
    ) -> None:
        super().__init__(model, options)
        self.scaling = LossScale() if scaling is None and options.amp == SCALED else scaling
        self.loss, self.optimizer, self.clip_norm, self.observe = loss, optimizer, clip_norm, observe

    def trace(self, types: Mapping[str, Type]) -> Recording:
        """Return the loss recorded for a batch of these types."""
        return record(self.loss, self.model, types, f"step of {type(self.model).__name__}")

    def make(self, recording: Recording, chooser: Chooser | None = None) -> Made:
        """Return the plan of a loss with its gradients and updates."""
        tensors = dict(recording.tensors)
        owners = _find_owners(self.model, self.optimizer)
        attach = _Attachment(self, owners, tensors, recording.graph)
        begin = attach.begin if self.options.amp == SCALED else None
        training = Training(tuple(owners.values()), attach, begin)
        graph, log, plan, choices = build(recording, training, self.backend, self.options, chooser, self.set_example(tensors))
        return Made(plan, tensors, recording.graph, graph, log, choices)


def _find_owners(model: Module, optimizer: Optimizer) -> dict[int, str]:
    """Return the owner path of each parameter that is optimized, by its number in the optimizer."""
    paths = {id(p): path for path, p in model.named_parameters()}
    missing = [p for p in optimizer.params if id(p) not in paths]
    if missing:
        raise ValueError(f"the optimizer has {len(missing)} parameters that are not the model's; create it from model.parameters()")
    return {i: paths[id(p)] for i, p in enumerate(optimizer.params)}


def _weigh_all(grads: Mapping[str, Tensor], states: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return gradients as they count in a norm. Those that count as they are come first, without a gap: launches take them as one list."""
    weighed = {owner: weigh(gradient, states[owner]) for owner, gradient in grads.items()}
    return dict(sorted(weighed.items(), key=lambda item: item[1] is not grads[item[0]]))


class _Attachment:
    """Records an optimizer's step behind the backward pass: the same rules as its eager step, on values instead of arrays."""

    def __init__(self, recipe: StepRecipe, owners: Mapping[int, str], tensors: dict[tuple[str, str], Tensor], recorded: Graph) -> None:
        self._optimizer, self._clip_norm, self._observe = recipe.optimizer, recipe.clip_norm, recipe.observe
        self._owners = owners
        self._tensors = tensors
        self._recorded = recorded
        self._scaling = recipe.scaling if recipe.options.amp == SCALED else None
        self._scale: tuple[Value, Value] | None = None
        groups = [group for group in self._optimizer.groups for _ in group.params]
        self._held = {i: self._optimizer.find_state(i, group) for i, group in enumerate(groups) if i in owners}

    def begin(self, rewriter: Rewriter, loss: Value) -> Value:
        """Add the states of a scaled loss; returns the scale in the loss' dtype, by which the backward pass begins."""
        assert self._scaling is not None
        recorder = Recorder(rewriter)
        scale, streak = (recorder.add_state(owner, CONTROL, tensor).data for owner, tensor in self._scaling.tensors.items())
        self._tensors |= recorder.tensors
        self._scale = scale, streak
        begun: Value = rewriter.cast(scale, loss.type.dtype)
        return begun

    def _find_scaled(self, recorder: Recorder, gradients: Sequence[Tensor]) -> Scaled | None:
        """Return what becomes of a step by its gradients, None where the loss is not scaled."""
        if self._scaling is None or self._scale is None or not gradients:
            return None
        (total,) = apply("SumSquares", gradients)
        scale, streak = (recorder.wrap(value) for value in self._scale)
        return self._scaling.apply(total.cast("float32"), scale, streak, self._clip_norm)

    def __call__(self, rewriter: Rewriter, grads: Mapping[str, Value]) -> Updates:
        """Append the update of each parameter that has a gradient; returns the updates of parameters, their states and the step."""
        recorder = Recorder(rewriter)
        known = {s.owner: s.value for s in rewriter.graph.states if s.role == "parameter"}
        with recording(recorder):
            done = recorder.add_state("step", CONTROL, self._optimizer.steps_done)
            step = done + 1
            lifted = {owner: recorder.wrap(grads[owner]) for owner in self._owners.values() if owner in grads}
            states = {o: self._add_states(recorder, i, o) for i, o in self._owners.items() if o in lifted}
            is_weighed = self._clip_norm is not None or self._observe is not None
            weighed = _weigh_all(lifted, states) if is_weighed else {}
            scaled = self._find_scaled(recorder, list((weighed or lifted).values()))
            factor = None if scaled is None else scaled.factor
            norm = None
            if self._clip_norm is not None and lifted:
                norm = find_norm(list(weighed.values())) if scaled is None else scaled.norm
            raw, lifted = lifted, lifted if scaled is not None else self._clip(lifted, norm)
            # Copies, since updates overwrite parameters; where nobody reads them they go again.
            before = {owner: apply("Copy", [recorder.wrap(known[owner])])[0] for owner in lifted} if self._observe is not None else {}
            after: dict[str, Tensor] = {}
            updates = self._count(done, step, scaled)
            index = 0
            for group in self._optimizer.groups:
                rate = self._optimizer.find_rate(group, done)
                for _ in group.params:
                    owner = self._owners[index]
                    if owner in lifted:
                        state = states[owner]
                        p = recorder.wrap(known[owner])
                        new, changed = self._optimizer.update(group, p, lifted[owner], state, step, rate, factor)
                        after[owner] = new
                        updates.append((known[owner], new.data))
                        updates += [(state[role].data, value.data) for role, value in changed.items()]
                    index += 1
            if self._observe is not None:
                loss = recorder.wrap(rewriter.graph.outputs[0])
                scale = None if scaled is None or self._scale is None else recorder.wrap(self._scale[0])
                updates += self._observe(Computed(recorder, self._recorded, rewriter.graph, loss, weighed, raw, norm, before, after, scale))
        self._tensors |= recorder.tensors
        return updates

    def _count(self, done: Tensor, step: Tensor, scaled: Scaled | None) -> Updates:
        """Return the updates of the step count, and of the loss' scale where there is one."""
        if scaled is None or self._scale is None:
            return [(done.data, step.data)]
        (counted,) = apply(COUNT_STEP, [done, scaled.factor])
        scale, streak = self._scale
        return [(done.data, counted.data), (scale, scaled.scale.data), (streak, scaled.streak.data)]

    def _clip(self, grads: dict[str, Tensor], norm: Tensor | None) -> dict[str, Tensor]:
        if self._clip_norm is None or norm is None:
            return grads
        factor = find_factor(norm, self._clip_norm)
        return {owner: gradient * factor for owner, gradient in grads.items()}

    def _add_states(self, recorder: Recorder, index: int, owner: str) -> dict[str, Tensor]:
        return {role: recorder.add_state(owner, role, tensor) for role, tensor in self._held[index].items()}
