"""Observers: states of a step in which it notes what happens, on the device. They are read once per window of steps.

Each step writes its loss (and the norm of its gradients, where they are clipped) into a row of a ring. A vector counts for each row the
steps until it is written next, so that ring and vector are one elementwise launch, and a replayed graph writes another row each time. They
are as long as lists have their members, one behind the other without a gap: one copy brings all of them into place. The
last step of a window is a second plan on the same states, which looks closely: what it finds is kept until it is found anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf import functional as F
from aicf.backends import find_backend
from aicf.ir import Graph
from aicf.ir.graph import OBSERVATION
from aicf.opset import Type, find_dtype
from aicf.opset.flat import MEMBER_ELEMS
from aicf.passes.context import Updates
from aicf.plan import Plan, Slot
from aicf.plan.data import STATE
from aicf.rewrite.dimensions import Dimensions, Units
from aicf.rewrite.log import Observation, Statistics
from aicf.rewrite.noise import add_row_squares, add_squares, describe, find_rows, find_scale
from aicf.runtime import Executor
from aicf.tensor import Tensor, apply
from aicf.train.step_recipe import Computed

Arrays = Mapping[str, NDArray[Any]]
# Activations by their functions, and the bounds at which their units are saturated.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "relu": (-np.inf, np.inf),
    "gelu_tanh": (-np.inf, np.inf),
    "gelu_erf": (-np.inf, np.inf),
    "silu": (-np.inf, np.inf),
    "tanh": (-0.99, 0.99),
    "sigmoid": (0.01, 0.99),
}
_RECTIFIED = frozenset({"relu"})  # not below zero: units need no look at their least value
_DEAD = 1e-6  # of the other units' root mean square; rectified units that are dead are zero
_TINY = 1e-30  # keeps a parameter of zeros from dividing
_RINGS = ("loss", "gradient_norm")


@dataclass(frozen=True)
class _Statistic:
    """A state that the last step of a window writes."""

    name: str
    type: Type
    compute: Callable[[], Tensor]


@dataclass
class Watch:
    """The observers of one structure, with windows of ``every`` steps."""

    every: int
    tensors: dict[tuple[str, str], Tensor] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, every: int, plan: Plan) -> Watch:
        """Return the observers whose states a plan has, as they are at first."""
        made = cls(every)
        for state in plan.states:
            if state.role == OBSERVATION:
                made._make(state.owner, state.slot.type)
        return made

    # ---- in the step

    def note(self, computed: Computed) -> Updates:
        """Add the states of all observers, and write the ring's row."""
        return self._observe(computed, is_close=False)

    def look_closely(self, computed: Computed) -> Updates:
        """Add the same states, and write the statistics too."""
        return self._observe(computed, is_close=True)

    def _observe(self, computed: Computed, *, is_close: bool) -> Updates:
        recorder, loss = computed.recorder, computed.loss

        def add(name: str, type_: Type) -> Tensor:
            return recorder.add_state(name, OBSERVATION, self._make(name, type_))

        row = Type(loss.dtype, (-(-self.every // MEMBER_ELEMS) * MEMBER_ELEMS,))
        index = add("index", row)
        is_here = index <= 0.0
        updates = [(index.data, F.where(is_here, float(self.every - 1), index - 1.0).data)]
        rings = zip(_RINGS, (loss, computed.norm), strict=True)
        for name, value in ((name, value) for name, value in rings if value is not None):
            ring = add(name, row)
            updates.append((ring.data, F.where(is_here, value.cast(loss.dtype), ring).data))
        for each in _list_statistics(computed):
            state = add(each.name, each.type)
            if is_close:
                updates.append((state.data, each.compute().data))
        return updates

    def _make(self, name: str, type_: Type) -> Tensor:
        key = name, OBSERVATION
        if key not in self.tensors:
            dtype = find_dtype(type_.dtype)
            values = np.zeros(type_.shape, dtype)
            if name == "index":
                values[:] = np.inf  # rows behind the window are never written
                values[: self.every] = np.arange(self.every)
            self.tensors[key] = Tensor.wrap(values.reshape(type_.shape), find_backend("numpy"))
        return self.tensors[key]

    # ---- behind it

    def read_later(self, executor: Executor, plan: Plan) -> Callable[[], Arrays]:
        """Return what returns all that is noted by now, by one copy that is queued here."""
        held = [s for s in plan.states if s.role == OBSERVATION]
        begin, end = min(s.slot.offset for s in held), max(s.slot.end for s in held)
        finish = executor.read_later(Slot(held[0].slot.buffer, STATE, begin, Type("uint8", (end - begin,))))

        def read() -> Arrays:
            data = finish()
            return {s.owner: _view(data, s.slot.offset - begin, s.slot.type) for s in held}

        return read

    def list_steps(self, found: Arrays, last: int, count: int) -> list[Observation]:
        """Return the last ``count`` steps of a ring, the last one of which was the run's step number ``last``."""
        behind = int(np.argmin(found["index"]))  # the row that is written next
        rows = (np.arange(behind - count, behind) % self.every).tolist()
        losses = found["loss"].tolist()
        norms = found["gradient_norm"].tolist() if "gradient_norm" in found else [None] * len(losses)
        return [Observation(step, losses[row], norms[row]) for step, row in enumerate(rows, last - count + 1)]


def _view(data: NDArray[np.uint8], offset: int, type_: Type) -> NDArray[Any]:
    made: NDArray[Any] = np.ndarray(type_.shape, find_dtype(type_.dtype), data.data, offset)
    return made


def _list_statistics(computed: Computed) -> list[_Statistic]:
    """Return what the last step of a window finds."""
    gradients, scale = list(computed.gradients.values()), computed.scale

    def square(tensors: list[Tensor]) -> Tensor:
        return apply("SumSquares", tensors)[0]

    def square_unscaled(tensors: list[Tensor]) -> Tensor:
        total = square(tensors)
        return total if scale is None else total / (scale * scale).cast(total.dtype)

    def type_squares(tensors: list[Tensor]) -> Type:
        return Type("float64" if all(t.dtype == "float64" for t in tensors) else "float32", ())

    found = [_Statistic("gradient_square", type_squares(gradients), lambda: square_unscaled(gradients))]
    rows, layers = find_rows(computed)
    if layers:
        one = type_squares([layers[0][0]])
        found.append(_Statistic(f"noise_square {rows}", one, lambda: add_squares(layers)))
        found.append(_Statistic("row_squares", one, lambda: add_row_squares(layers)))
    for owner, p in computed.before.items():
        found += [
            _Statistic(f"update_square {owner}", type_squares([p]), lambda o=owner, p=p: square([computed.after[o] - p])),  # type: ignore[misc]
            _Statistic(f"square {owner}", type_squares([p]), lambda p=p: square([p])),  # type: ignore[misc]
        ]
    for owner, function, y in _find_activations(computed):
        # Of the values as they are, in 16 bits where they are: none is copied in fp32.
        one, count = type_squares([y]), y.type.num_elems
        units = one.reshape(y.shape[-1:])
        found += [
            _Statistic(f"sum {owner} {count}", one, lambda y=y: describe(y, "sum")),  # type: ignore[misc]
            _Statistic(f"squares {owner} {count}", one, lambda y=y: square([y])),  # type: ignore[misc]
            _Statistic(f"high {owner} {function}", units, lambda y=y: describe(y, "max", "units")),  # type: ignore[misc]
        ]
        if function not in _RECTIFIED:
            found.append(_Statistic(f"low {owner} {function}", units, lambda y=y: describe(y, "min", "units")))  # type: ignore[misc]
    return found


def _find_activations(computed: Computed) -> list[tuple[str, str, Tensor]]:
    """Return the activations with units that can change: who makes their units, the function, and the value."""
    dimensions = Dimensions(computed.recorded)
    there = {v.id: v for node in computed.forward.nodes for v in node.outputs}
    found: dict[str, tuple[str, Tensor]] = {}
    for node in computed.recorded.nodes:
        function, y = str(node.attrs.get("function")), node.outputs[0]
        if node.op != "Elementwise" or function not in BOUNDS or y.id not in there or len(y.type.shape) < 2:
            continue
        try:
            units = dimensions.find_units(y, len(y.type.shape) - 1)
        except ValueError:
            continue
        owner = _name_units(dimensions, computed.recorded, units)
        if owner and owner not in found:
            found[owner] = function, computed.recorder.wrap(there[y.id])
    return [(owner, *rest) for owner, rest in found.items()]


def _name_units(dimensions: Dimensions, recorded: Graph, units: Units) -> str:
    """Return the path of the module that makes units as its output, else of a parameter; empty where nothing makes them."""
    paths = [axis.owner for axis in units.carried if axis.dim == 0 and axis.outer == axis.inner == 1]
    for path in paths:
        module = path.rpartition(".")[0]
        try:
            y = dimensions.find_output(module)
            if module and dimensions.find_units(y, len(y.type.shape) - 1) == units:
                return module
        except (KeyError, ValueError):
            continue
    return paths[0] if paths else ""


def summarise(found: Arrays, step: int, seconds_per_step: float) -> Statistics:
    """Return the statistics of a window's last step."""
    numbers = {name: float(a) for name, a in found.items() if a.ndim == 0}
    ratios = {
        owner: float(np.sqrt(numbers[f"update_square {owner}"] / max(numbers[f"square {owner}"], _TINY)))
        for owner in _list_owners(numbers, "square")
    }
    means, squares = (_divide_by_counts(numbers, quantity) for quantity in ("sum", "squares"))
    dead, saturated = {}, {}
    for name, high in found.items():
        kind, _, rest = name.partition(" ")
        if kind == "high":
            owner, function = rest.rsplit(" ", 1)
            low, (least, most) = found.get(f"low {rest}", high), BOUNDS[function]
            limit = _DEAD * float(np.sqrt(squares[owner]))
            dead[owner] = _list_numbers(np.maximum(np.abs(low), np.abs(high)) <= limit)
            saturated[owner] = _list_numbers((low >= most) | (high <= least))
    variances = {owner: max(squares[owner] - means[owner] ** 2, 0.0) for owner in means}
    norm = float(np.sqrt(numbers["gradient_square"]))
    scales = [
        find_scale(int(rows), numbers["row_squares"], numbers[f"noise_square {rows}"]) for rows in _list_owners(numbers, "noise_square")
    ]
    return Statistics(step, norm, ratios, means, variances, dead, saturated, seconds_per_step, scales[0] if scales else None)


def _divide_by_counts(numbers: Mapping[str, float], quantity: str) -> dict[str, float]:
    """Return sums by owner as means: their names end in the numbers of elements."""
    found = {}
    for name in _list_owners(numbers, quantity):
        owner, count = name.rsplit(" ", 1)
        found[owner] = numbers[f"{quantity} {name}"] / int(count)
    return found


def _list_owners(numbers: Mapping[str, float], quantity: str) -> list[str]:
    return [name.removeprefix(f"{quantity} ") for name in numbers if name.startswith(f"{quantity} ")]


def _list_numbers(marks: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(marks).tolist())
