"""How a training step is compiled: forward, backward and update as one plan; whatever varies per step is in the plan's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aicf.frontends.recording import Recorder, Recording, record
from aicf.ir import Graph, Rewriter, Value
from aicf.ir.graph import CONTROL
from aicf.modes import recording
from aicf.nn import Module
from aicf.opset import Type
from aicf.optim import Optimizer
from aicf.optim.clipping import find_factor, find_norm, weigh
from aicf.passes.context import Chooser, Training, Updates
from aicf.tensor import Tensor, apply
from aicf.train.recipe import Made, Options, Recipe, build

Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Computed:
    """What a step has computed when its update is made: what observers look at.

    ``recorded`` is the loss as it was recorded, ``forward`` as passes left it. ``norm`` is that of all gradients, where they are clipped;
    ``gradients`` are as before clipping, so that copies of units count as they did before, ``raw`` as the backward
    pass made them. ``before`` and ``after`` are the parameters
    (copies, and the new values).
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


# Adds states to a step, and returns their updates.
Observe = Callable[[Computed], Updates]


class StepRecipe(Recipe):
    """How a training step is made: of which model, loss and optimizer, with which clipping, and with what looking on."""

    def __init__(
        self,
        model: Module,
        loss: Loss,
        optimizer: Optimizer,
        clip_norm: float | None,
        options: Options,
        observe: Observe | None = None,
    ) -> None:
        super().__init__(model, options)
        self.loss, self.optimizer, self.clip_norm, self.observe = loss, optimizer, clip_norm, observe

    def trace(self, types: Mapping[str, Type]) -> Recording:
        """Return the loss recorded for a batch of these types."""
        return record(self.loss, self.model, types, f"step of {type(self.model).__name__}")

    def make(self, recording: Recording, chooser: Chooser | None = None) -> Made:
        """Return the plan of a loss with its gradients and updates."""
        tensors = dict(recording.tensors)
        owners = _find_owners(self.model, self.optimizer)
        attach = _Attachment(self, owners, tensors, recording.graph)
        graph, log, plan, choices = build(recording, Training(tuple(owners.values()), attach), self.backend, self.options, chooser)
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
        groups = [group for group in self._optimizer.groups for _ in group.params]
        self._held = {i: self._optimizer.find_state(i, group) for i, group in enumerate(groups) if i in owners}

    def __call__(self, rewriter: Rewriter, grads: Mapping[str, Value]) -> Updates:
        """Append the update of each parameter that has a gradient; returns the updates of parameters, their states and the step."""
        recorder = Recorder(rewriter)
        known = {s.owner: s.value for s in rewriter.graph.states if s.role == "parameter"}
        with recording(recorder):
            done = recorder.add_state("step", CONTROL, self._optimizer.steps_done)
            step = done + 1
            updates: Updates = [(done.data, step.data)]
            lifted = {owner: recorder.wrap(grads[owner]) for owner in self._owners.values() if owner in grads}
            states = {o: self._add_states(recorder, i, o) for i, o in self._owners.items() if o in lifted}
            is_weighed = self._clip_norm is not None or self._observe is not None
            weighed = _weigh_all(lifted, states) if is_weighed else {}
            norm = find_norm(list(weighed.values())) if self._clip_norm is not None and lifted else None
            raw, lifted = lifted, self._clip(lifted, norm)
            # Copies, since updates overwrite parameters; where nobody reads them they go again.
            before = {owner: apply("Copy", [recorder.wrap(known[owner])])[0] for owner in lifted} if self._observe is not None else {}
            after: dict[str, Tensor] = {}
            index = 0
            for group in self._optimizer.groups:
                rate = self._optimizer.find_rate(group, done)
                for _ in group.params:
                    owner = self._owners[index]
                    if owner in lifted:
                        state = states[owner]
                        p = recorder.wrap(known[owner])
                        new, changed = self._optimizer.update(group, p, lifted[owner], state, step, rate)
                        after[owner] = new
                        updates.append((known[owner], new.data))
                        updates += [(state[role].data, value.data) for role, value in changed.items()]
                    index += 1
            if self._observe is not None:
                loss = recorder.wrap(rewriter.graph.outputs[0])
                updates += self._observe(Computed(recorder, self._recorded, rewriter.graph, loss, weighed, raw, norm, before, after))
        self._tensors |= recorder.tensors
        return updates

    def _clip(self, grads: dict[str, Tensor], norm: Tensor | None) -> dict[str, Tensor]:
        if self._clip_norm is None or norm is None:
            return grads
        factor = find_factor(norm, self._clip_norm)
        return {owner: gradient * factor for owner, gradient in grads.items()}

    def _add_states(self, recorder: Recorder, index: int, owner: str) -> dict[str, Tensor]:
        return {role: recorder.add_state(owner, role, tensor) for role, tensor in self._held[index].items()}
