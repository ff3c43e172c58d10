"""The next structure while a rule works on it. What runs does not change.

Parameters and states are where they were, until a rule gives them other values; none is written to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.backends import find_backend
from aicf.errors import RewriteError
from aicf.ir import Graph
from aicf.nn import Module, Parameter
from aicf.optim import Optimizer
from aicf.optim.optimizer import Group
from aicf.rewrite.copying import copy_model, copy_optimizer, make_blank, share, share_values, wrap_like
from aicf.rewrite.dimensions import Dimensions, Units
from aicf.rewrite.records import Map
from aicf.rewrite.transport import Arrays, carry, make_map
from aicf.tensor import Tensor

States = dict[str, Tensor]


@dataclass(frozen=True)
class Rest:
    """A parameter that is not trained for now: the group that it belongs to, and its optimizer state."""

    group: int
    state: Arrays


@dataclass
class Draft:
    """A structure that a rule may change.

    ``batch`` is the number of rows of a batch, ``amp`` the compute dtype of mixed precision or None. ``resting`` are frozen parameters by
    path.
    """

    graph: Graph
    model: Module
    optimizer: Optimizer
    resting: dict[str, Rest]
    batch: int
    amp: str | None = None
    maps: list[Map] = field(default_factory=list)

    @classmethod
    def of(
        cls, graph: Graph, model: Module, optimizer: Optimizer, resting: Mapping[str, Rest], batch: int, amp: str | None = None
    ) -> Draft:
        """Return a twin of a structure, with the same arrays; ``graph`` is its loss as it was recorded."""
        twin, tensors = copy_model(model, share)
        return cls(graph, twin, copy_optimizer(optimizer, tensors, share_values), dict(resting), batch, amp)

    def __post_init__(self) -> None:
        self.origins = {id(p): path for path, p in self.model.named_parameters()}
        self._groups = [list(group.params) for group in self.optimizer.groups]
        self._states: dict[int, States] = {id(p): dict(self.optimizer.state.get(i, {})) for i, p in enumerate(self.optimizer.params)}

    # ---- reading

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters as they are now, by path."""
        return dict(self.model.named_parameters())

    @cached_property
    def dimensions(self) -> Dimensions:
        """The coupled dimensions of the structure before."""
        return Dimensions(self.graph)

    def find_units(self, owner: str, *, heads: bool = False) -> Units:
        """Return the units that a module makes (the last axis of its output), or a parameter along its first axis.

        With ``heads`` they are the heads to which that axis is reshaped. Raises :class:`RewriteError` where there is no such owner, and
        with the reason where its units cannot change.
        """
        held = {s.owner: s.value for s in self.graph.states}
        try:
            if owner in held:
                value, axis = held[owner], 0
            else:
                value = self.dimensions.find_output(owner)
                axis = len(value.type.shape) - 1
            if axis < 0 or not value.type.shape:
                raise RewriteError(f"{owner}: makes a scalar, which has no units")
            return self.dimensions.find_units(value, axis, heads=heads)
        except KeyError:
            paths = sorted(path for path, _ in self.model.modules() if path)
            raise RewriteError(f"{owner}: there is no such module in the network; there are: {', '.join(paths) or 'none'}") from None
        except ValueError as error:
            raise RewriteError(f"{owner}: its units cannot change, since their axis {error}") from None

    def find_function(self, owner: str) -> str:
        """Return the elementwise function that a module is, as it was recorded; empty for one that is anything else."""
        nodes = [n for n in self.graph.nodes if n.owner == owner or n.owner.startswith(f"{owner}.")]
        return str(nodes[0].attrs["function"]) if len(nodes) == 1 and nodes[0].op == "Elementwise" else ""

    def values(self, path: str) -> NDArray[Any]:
        """Return a parameter's values in host memory."""
        return self.parameters[path].numpy()

    def list_roles(self, path: str) -> set[str]:
        """Return the roles of a parameter's optimizer state, none where it is not trained."""
        return set(self._states.get(id(self.parameters[path]), {}))

    def state(self, path: str) -> Arrays:
        """Return a parameter's optimizer state by role in host memory, empty where it is not trained."""
        return _read(self._states.get(id(self.parameters[path]), {}))

    # ---- changing

    def carry(self, path: str, dim: int, index: NDArray[np.int64], shares: NDArray[np.float64], *, is_read: bool) -> None:
        """Take units along an axis of a parameter and of its state, and note the map."""
        mapping = make_map(path, dim, index, shares, self.optimizer.op, is_read=is_read)
        p, rest = self.parameters[path], self.resting.get(path)
        values, made = carry(p, self._states.get(id(p), {}) if rest is None else _wrap(rest.state), mapping)
        if rest is not None:
            self.resting[path] = Rest(rest.group, _read(made))
            made = {}
        self._exchange(p, values, made)
        self.maps.append(mapping)

    def put(self, path: str, values: NDArray[Any], state: Arrays) -> None:
        """Give a parameter other values, of any shape, and another state; both are in host memory."""
        self._exchange(self.parameters[path], Tensor.wrap(np.ascontiguousarray(values), find_backend("numpy")), _wrap(state))

    def keep_state(self, path: str, roles: Collection[str]) -> None:
        """Leave a parameter with no other roles of its optimizer state than these."""
        states = self._states[id(self.parameters[path])]
        for role in states.keys() - set(roles):
            del states[role]

    def _exchange(self, old: Parameter, values: Tensor, state: States) -> None:
        new = wrap_like(old, values)
        assert isinstance(new, Parameter)
        for _, module in self.model.modules():
            for name, held in list(vars(module).items()):
                if held is old:
                    vars(module)[name] = new
        if id(old) in self.origins:
            self.origins[id(new)] = self.origins.pop(id(old))
        self._states.pop(id(old), None)
        for group in self._groups:
            for i, p in enumerate(group):
                if p is old:
                    group[i] = new
                    self._states[id(new)] = state
        self._kept = [*getattr(self, "_kept", ()), old]  # an id is a parameter's alone as long as it lives

    def train(self, path: str, group: int, state: Arrays) -> None:
        """Have a parameter trained in one of the optimizer's groups, with a state; without one it begins at zero."""
        parameter = self.parameters[path]
        self._groups[group].append(parameter)
        self._states[id(parameter)] = _wrap(state)

    def stop_training(self, path: str) -> tuple[int, Arrays]:
        """Take a parameter out of the optimizer; returns its group and state. Raises :class:`RewriteError` where it is in none."""
        parameter = self.parameters[path]
        for number, group in enumerate(self._groups):
            if any(p is parameter for p in group):
                self._groups[number] = [p for p in group if p is not parameter]
                return number, _read(self._states.pop(id(parameter)))
        raise RewriteError(f"{path}: is not trained")

    def find_group(self, path: str) -> int:
        """Return the optimizer's group that a parameter is in, the first one for a parameter that is in none."""
        parameter = self.parameters[path]
        return next((i for i, group in enumerate(self._groups) if any(p is parameter for p in group)), 0)

    def finish(self) -> dict[str, str | None]:
        """Bring the optimizer up to date; returns the present path of each parameter by its old one, None for one that is gone."""
        present = {self.origins[id(p)]: path for path, p in self.parameters.items() if id(p) in self.origins}
        held = {id(p) for p in self.parameters.values()}
        self.resting = {path: rest for old, rest in self.resting.items() if (path := present.get(old)) is not None}
        self._groups = [[p for p in group if id(p) in held] for group in self._groups]
        params = [p for group in self._groups for p in group]
        if not params:
            raise RewriteError("nothing would be trained any more; thaw a parameter first")
        old = self.optimizer
        old.groups = [Group(tuple(ps), g.lr, g.options) for ps, g in zip(self._groups, old.groups, strict=True)]
        old.params = list(params)
        old.state = {i: dict(self._states.get(id(p), {})) for i, p in enumerate(params)}
        self._complete_states()
        return {path: present.get(path) for path in self.graph_owners}

    @property
    def graph_owners(self) -> list[str]:
        """The paths of the parameters before."""
        return [s.owner for s in self.graph.states if s.role == "parameter"]

    def _complete_states(self) -> None:
        """Begin states that are not there at zero: no parameter that is trained is without."""
        index = 0
        for group in self.optimizer.groups:
            for p in group.params:
                held = self.optimizer.state[index]
                for role in self.optimizer.find_roles(group.options):
                    if role not in held:
                        held[role] = make_blank(p)
                index += 1


def _read(states: Mapping[str, Tensor]) -> Arrays:
    return {role: np.array(tensor.numpy()) for role, tensor in states.items()}


def _wrap(arrays: Mapping[str, NDArray[Any]]) -> States:
    return {role: Tensor.wrap(array, find_backend("numpy")) for role, array in arrays.items()}
