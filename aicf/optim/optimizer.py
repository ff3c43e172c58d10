"""What optimizers share: groups of parameters, state by role, the step counter, and the eager step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from aicf.backends import find_backend
from aicf.modes import no_grad
from aicf.opset import Attr, find_op
from aicf.opset.updates import SCALES
from aicf.optim.schedules import Schedule
from aicf.tensor import Tensor, apply, make_scalar

Rate = float | Schedule


@dataclass(frozen=True)
class Group:
    """Parameters with the same rate and options."""

    params: tuple[Tensor, ...]
    lr: Rate
    options: Mapping[str, Attr]


class Optimizer:
    """Changes parameters by their gradients.

    Where a rewritten network has copied units, a parameter's state also holds how it and its gradient are scaled (``SCALES``).

    ``params`` are tensors, or mappings ``{"params": ..., "lr": ..., option: ...}`` with values of their own. ``op`` is the op that
    updates a parameter, ``slots`` which of its inputs each state is, by role.
    """

    op: ClassVar[str]
    slots: ClassVar[Mapping[str, str]]

    def __init__(self, params: Iterable[Any], lr: Rate, options: Mapping[str, Attr]) -> None:
        given = list(params)
        rows = given if given and isinstance(given[0], Mapping) else [{"params": given}]
        self.groups = [_make_group(row, lr, options) for row in rows]
        self.params = [p for group in self.groups for p in group.params]
        if not self.params:
            raise ValueError(f"{type(self).__name__}: there are no parameters to optimize")
        if len({id(p) for p in self.params}) < len(self.params):
            raise ValueError(f"{type(self).__name__}: a parameter is in two groups, or twice in one")
        self.steps_done = Tensor(np.int64(0), backend=find_backend("numpy"))
        self.state: dict[int, dict[str, Tensor]] = {}

    def find_roles(self, options: Mapping[str, Attr]) -> tuple[str, ...]:
        """Return the names of the state tensors that a parameter with these options has, in the order of the op's outputs."""
        return tuple(self.slots)

    def update(
        self,
        group: Group,
        p: Tensor,
        gradient: Tensor,
        state: Mapping[str, Tensor],
        step: Tensor,
        lr: Tensor,
        factor: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a parameter and its state after a step; nothing is changed. ``step`` counts from 1.

        With a ``factor``, a float32 scalar, the gradient is multiplied by it; where it is not positive, all stays as it is.
        """
        roles = self.find_roles(group.options)
        named: dict[str, Tensor] = {"p": p, "grad": gradient, "step": step, "lr": lr} | {self.slots[role]: state[role] for role in roles}
        named |= {role: state[role] for role in SCALES if role in state}
        if factor is not None:
            named["factor"] = factor
        inputs = [named.get(name) for name in find_op(self.op).input_names(0)]
        made = apply(self.op, inputs, **group.options)
        return made[0], dict(zip(roles, made[1:], strict=True))

    def find_rate(self, group: Group, steps_done: Tensor) -> Tensor:
        """Return a group's rate, a float32 scalar, where ``steps_done`` is."""
        if isinstance(group.lr, Schedule):
            return group.lr(steps_done.cast("float32"))
        return make_scalar(group.lr, "float32", steps_done.backend)

    def find_state(self, index: int, group: Group) -> dict[str, Tensor]:
        """Return the state of a parameter, zeros at first."""
        if index not in self.state:
            p = self.params[index]
            zeros = np.zeros(p.shape, p.backend.to_host(p.data).dtype)
            self.state[index] = {role: Tensor(zeros, backend=p.backend) for role in self.find_roles(group.options)}
        return self.state[index]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        """Change each parameter that has a gradient, in place."""
        with no_grad():
            self.steps_done.add_(1)
            index = 0
            for group in self.groups:
                rate = self.find_rate(group, self.steps_done - 1)  # scalars are computed in host memory
                for p in group.params:
                    if p.grad is not None:
                        self._step(index, group, p, p.grad, rate)
                    index += 1

    def _step(self, index: int, group: Group, p: Tensor, gradient: Tensor, rate: Tensor) -> None:
        state = self.find_state(index, group)
        step, lr = (_place(scalar, p) for scalar in (self.steps_done, rate))
        new, changed = self.update(group, p, gradient, state, step, lr)
        p.copy_(new)
        for role, value in changed.items():
            state[role].copy_(value)

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return copies of the state in host memory, by ``<number of the parameter>.<role>``, and the step."""
        found = {f"{i}.{role}": np.array(t.numpy()) for i, roles in self.state.items() for role, t in roles.items()}
        return {**found, "steps_done": np.array(self.steps_done.numpy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken; raises ValueError for what no parameter of this optimizer has."""
        self.steps_done.copy_(int(np.asarray(state["steps_done"])))
        groups = [group for group in self.groups for _ in group.params]
        for key, values in state.items():
            if key == "steps_done":
                continue
            number, _, role = key.partition(".")
            index = int(number)
            if index >= len(self.params) or role not in (*self.find_roles(groups[index].options), *SCALES):
                raise ValueError(f"optimizer state {key!r}: no parameter has it here")
            state_of = self.find_state(index, groups[index])
            if role in SCALES and role not in state_of:
                state_of[role] = Tensor(np.asarray(values), backend=self.params[index].backend)
            held = state_of[role]
            held.copy_(Tensor(np.asarray(values), dtype=held.dtype, backend=held.backend))


def _place(scalar: Tensor, like: Tensor) -> Tensor:
    return scalar if scalar.backend is like.backend else Tensor(scalar.numpy(), backend=like.backend)


def _make_group(row: Mapping[str, Any], lr: Rate, options: Mapping[str, Attr]) -> Group:
    own = {name: value for name, value in row.items() if name not in ("params", "lr")}
    if unknown := sorted(own.keys() - options.keys()):
        raise ValueError(f"a group has no option {unknown[0]!r}; there are: lr, {', '.join(options)}")
    rate = row.get("lr", lr)
    if not isinstance(rate, Schedule) and not rate >= 0.0:
        raise ValueError(f"lr={rate!r}: must be at least 0, or a schedule")
    return Group(tuple(row["params"]), rate, {**options, **own})
