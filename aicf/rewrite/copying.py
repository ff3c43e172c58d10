"""Copies of a model and its optimizer that share nothing with them but what is not theirs: generators, schedules, losses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from aicf.backends import find_backend
from aicf.errors import RewriteError
from aicf.frontends.imported import Part
from aicf.nn import Buffer, Module, Parameter
from aicf.opset import find_dtype
from aicf.optim import LossScale, Optimizer
from aicf.optim.optimizer import Group
from aicf.tensor import Tensor

Owned = Parameter | Buffer


def copy_to_host(tensor: Owned) -> Owned:
    """Return a parameter or buffer with the same values in host memory."""
    return make_like(tensor, np.array(tensor.numpy()))


def make_like(tensor: Owned, values: Any) -> Owned:
    """Return a parameter or buffer of a host array's values in host memory, which has a gradient where that one has."""
    return wrap_like(tensor, Tensor.wrap(np.ascontiguousarray(values), find_backend("numpy")))


def wrap_like(tensor: Owned, values: Tensor) -> Owned:
    """Return a parameter or buffer with a tensor's array, wherever that is, which has a gradient where the other one has."""
    return type(tensor).wrap(values.data, values.backend).require_grad(tensor.requires_grad)


def share(tensor: Owned) -> Owned:
    """Return a parameter with the same values, which nobody may write to; of a buffer, which eager code writes to, a copy on the host."""
    return wrap_like(tensor, share_values(tensor)) if isinstance(tensor, Parameter) else copy_to_host(tensor)


def share_values(tensor: Tensor) -> Tensor:
    """Return a tensor over the same memory, by an array of its own: programs know arrays of theirs by identity."""
    (view,) = tensor.backend.op_call("Reshape", (tensor.data,), {"shape": tensor.shape})
    return Tensor.wrap(view, tensor.backend)


def copy_model(model: Module, make: Callable[[Owned], Owned] = copy_to_host) -> tuple[Module, dict[int, Owned]]:
    """Return a model with each parameter and buffer replaced by what ``make`` returns, and these by the id of what they replace.

    Modules, and lists, tuples and dictionaries in their attributes, are copied; all else is shared.
    """
    memo: dict[int, Any] = {}
    made: dict[int, Owned] = {}

    def visit(value: Any) -> Any:
        if id(value) in memo:
            return memo[id(value)]
        if isinstance(value, (Parameter, Buffer)):
            memo[id(value)] = made[id(value)] = make(value)
        elif isinstance(value, Module):
            twin = memo[id(value)] = copy.copy(value)
            for name, inner in list(vars(twin).items()):
                vars(twin)[name] = visit(inner)
        elif type(value) in (list, tuple):
            return type(value)(visit(x) for x in value)
        elif type(value) is dict:
            return {key: visit(x) for key, x in value.items()}
        else:
            return value
        return memo[id(value)]

    twin: Module = visit(model)
    return twin, made


def copy_optimizer(optimizer: Optimizer, tensors: dict[int, Owned], copy_state: Callable[[Tensor], Tensor]) -> Optimizer:
    """Return an optimizer of the tensors that have replaced others (by id), with what ``copy_state`` returns of its state."""
    twin = copy.copy(optimizer)
    twin.groups = [Group(tuple(tensors[id(p)] for p in g.params), g.lr, g.options) for g in optimizer.groups]
    twin.params = [p for group in twin.groups for p in group.params]
    twin.steps_done = copy_state(optimizer.steps_done)
    twin.state = {i: {role: copy_state(t) for role, t in roles.items()} for i, roles in optimizer.state.items()}
    return twin


def copy_scaling(scaling: LossScale | None, copy_state: Callable[[Tensor], Tensor]) -> LossScale | None:
    """Return the scale of a loss with what ``copy_state`` returns of its state; None where there is none."""
    if scaling is None:
        return None
    twin = copy.copy(scaling)
    twin.scale, twin.streak = copy_state(scaling.scale), copy_state(scaling.streak)
    return twin


def copy_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor with the same values in host memory."""
    return Tensor(np.array(tensor.numpy()), backend=find_backend("numpy"))


def make_blank(tensor: Tensor) -> Tensor:
    """Return a tensor of the same type in host memory, of zeros; the other's values are not read."""
    return Tensor.wrap(np.zeros(tensor.shape, find_dtype(tensor.dtype)), find_backend("numpy"))


def walk(model: Module) -> Iterator[tuple[str, Module, str, Module]]:
    """Yield each module below a model: its path, the module that has it as an attribute, the attribute's name, and itself."""
    for path, module in model.modules():
        for name, child in module.children():
            yield f"{path}.{name}" if path else name, module, name, child


def find_module(model: Module, path: str) -> Module:
    """Return the module at a path; raises :class:`~aicf.errors.RewriteError` naming those that there are."""
    found = dict(model.modules())
    if path not in found:
        raise RewriteError(f"there is no module {path!r}; there are: {', '.join(p for p in found if p) or 'none'}")
    return found[path]


def replace_module(model: Module, path: str, new: Module) -> None:
    """Put a module in the place of that at a path, wherever it is used; raises :class:`~aicf.errors.RewriteError`."""
    old = find_module(model, path)
    if old is model:
        raise RewriteError("the whole model cannot be replaced; name a module of it")
    require_function(old, path)
    for _, owner, name, child in list(walk(model)):
        if child is old:
            setattr(owner, name, new)
    if isinstance(old, Part):
        old.give_up()


def require_function(module: Module, path: str) -> None:
    """Raise :class:`~aicf.errors.RewriteError` for a part of an imported network in whose place nothing else would run."""
    if isinstance(module, Part) and not module.is_function:
        raise RewriteError(
            f"{path}: is a part of an imported network that is no function of one value; name a part within it, or behind it"
        )
