"""Where the outputs of a large problem are judged, and which inputs those places need. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Indices, Op, Problem, Tensor
from harness.verify.input_domains import find_limit
from harness.verify.unlisted import make_generator

# The work of the reference for the elements that are judged, and the rows that are copied for it: what is aimed at, and what is too much
# for a host (a minute).
_MAX_REFERENCE = 4e6
_MOST_REFERENCE = 2e9
_MOST_INPUTS = 1 << 24
_MAX_COPIES = 1 << 13
_MOST_ROWS = 1 << 20
_MAX_PLACES = 128

# Indices that are made to point to what is judged, and in how many each.
_AIMED_INDICES = 1024

NO_PLACES = "its outputs are single values, each of which needs all of the inputs"
Places = dict[int, NDArray[np.intp]]


def make_draws(op: Op, problem: Problem, what: str, seed: int) -> np.random.Generator:
    """Return random numbers of a problem's own: what one problem's draw misses, another's does not."""
    return make_generator(op, f"{what}\0{problem.name}", seed)


def _list_axes(op: Op, problem: Problem, output: str) -> tuple[int, ...]:
    """Return the op's axes that an output has."""
    sampling = op.sampling
    return () if sampling is None else tuple(axis for axis in sampling.axes if sampling.locate(output, axis, problem) is not None)


def is_sampled_in_full(op: Op, problem: Problem) -> bool:
    """Return whether all outputs are told by samples, and one of them has more than one value."""
    present = [t for t in op.outputs if t.present(problem)]
    return any(t.resolve_shape(problem) for t in present) and all(_list_axes(op, problem, t.name) for t in present)


def list_restrictions(op: Op, problem: Problem, seed: int, indices: Arrays = MappingProxyType({})) -> list[Restriction]:
    """Return a restriction for each group of outputs that have the same axes; of outputs that have none, nothing is told by places."""
    groups: dict[tuple[int, ...], list[Tensor]] = {}
    for tensor in op.outputs:
        if tensor.present(problem) and (axes := _list_axes(op, problem, tensor.name)):
            groups.setdefault(axes, []).append(tensor)
    return [
        Restriction(op, problem, seed, tuple(t.name for t in group), indices)
        for group in groups.values()
        if any(t.resolve_shape(problem) for t in group)
    ]


@dataclass(frozen=True)
class Restriction:
    """A large problem of an op that declares :class:`harness.spec.Sampling`, restricted to some places of some of its outputs.

    ``names`` are those outputs, which have the same axes. ``indices`` are the inputs that point to others, whole.
    """

    op: Op
    problem: Problem
    seed: int
    names: tuple[str, ...]
    indices: Arrays = field(default_factory=dict[str, NDArray[Any]])

    def make_draws(self, what: str) -> np.random.Generator:
        """Return random numbers of this problem's own."""
        return make_draws(self.op, self.problem, what, self.seed)

    @property
    def outputs(self) -> list[Tensor]:
        """The outputs that are judged."""
        return [t for t in self.op.outputs if t.name in self.names]

    def find_axis(self, output: str, axis: int) -> int:
        """Return which axis of one of the outputs one of the op's axes is."""
        assert self.op.sampling is not None
        found = self.op.sampling.locate(output, axis, self.problem)
        assert found is not None, "outputs are grouped by their axes"
        return found

    @property
    def _axes(self) -> list[int]:
        """The op's axes, the longest first: what is left after it is small, whatever the others are."""
        first = next(t for t in self.outputs if t.resolve_shape(self.problem))
        shape = first.resolve_shape(self.problem)
        return sorted(_list_axes(self.op, self.problem, first.name), key=lambda axis: -shape[self.find_axis(first.name, axis)])

    def choose_places(self, written: Mapping[str, tuple[NDArray[np.intp], ...]]) -> Places:
        """Choose where along each of the op's axes outputs are judged: some of what was ``written``, the first and the last always.

        Where nothing is known of that, the launch is whole and writes everything.
        """
        candidates = {axis: self._find_candidates(axis, written) for axis in self._axes}

        def choose(count: int) -> Places:
            return {axis: pick(found, count, self.make_draws(f"places {axis}")) for axis, found in candidates.items()}

        fewest, count = choose(1), _MAX_PLACES
        least_work, least_rows = self.find_work(fewest)
        # Of a long sum one is too many, and so are all others.
        while count > 1 and least_work <= _MAX_REFERENCE:
            places = choose(count)
            work, rows = self.find_work(places)
            if work <= _MAX_REFERENCE and rows <= max(_MAX_COPIES, least_rows):
                return places
            count //= 2
        return fewest

    def find_work(self, places: Places) -> tuple[float, int]:
        """Return what the reference does for the outputs at ``places``, flops or bytes moved, and the rows of inputs that it needs."""
        restricted, problem = self.restrict({}, places, dry=True)
        return _find_work(self.op, problem), self._count_rows(restricted)

    def _count_rows(self, restricted: Arrays) -> int:
        """Return the rows of inputs that are copied to the device, each by itself in the worst case."""
        names = [name for name in self.input_shapes if name in restricted and name not in self.indices]
        return sum(math.prod(restricted[name].shape[:-1]) for name in names)

    def aim(self, places: Places) -> Arrays:
        """Return the indices with some, the first and the last among them, that point to the places that are judged, where any can.

        Where none can, since they point to inputs, the last points to the last there is: of millions, few lie beyond 2^32 elements.
        """
        aimed = {name: np.array(values) for name, values in self.indices.items()}
        for name in aimed:
            tensor = next(t for t in self.op.inputs if t.name == name)
            values = tensor.resolve_values(self.problem)
            aimed[name].reshape(-1)[-1] = find_limit(tensor, self.problem) - 1
            for axis, chosen in places.items():
                sizes = [t.name_sizes(self.problem)[self.find_axis(t.name, axis)] for t in self.outputs if t.name_sizes(self.problem)]
                if isinstance(values, Indices) and values.below in sizes:
                    draws = self.make_draws(f"aim {name}")
                    at = pick(range(aimed[name].size), _AIMED_INDICES, draws)
                    aimed[name].reshape(-1)[at] = draws.choice(chosen, len(at))
        return aimed

    def find_obstacle(self, places: Places, most_rows: int = _MOST_ROWS) -> str:
        """Return why a host cannot judge the outputs at ``places``, or "": each may be a sum over most of the inputs.

        Inputs are copied to the device row by row.
        """
        restricted, problem = self.restrict({}, places, dry=True)
        work = _find_work(self.op, problem)
        if work > _MOST_REFERENCE:
            return f"the reference of a single place would take {work:.2g} operations or bytes"
        elements = sum(array.size for name, array in restricted.items() if name not in self.indices)
        if elements > _MOST_INPUTS:
            return f"a single place needs {elements} elements of the inputs"
        rows = self._count_rows(restricted)
        return f"a single place needs {rows} rows of the inputs" if rows > most_rows else ""

    def _find_candidates(self, axis: int, written: Mapping[str, tuple[NDArray[np.intp], ...]]) -> NDArray[np.intp] | range:
        """Return the places of an axis, ascending. An axis may be billions long, and is no array where all of it is written."""
        if written:
            # Single values have no places.
            return np.unique(np.concatenate([_drop_repeats(found[self.find_axis(name, axis)]) for name, found in written.items() if found]))
        shapes = {t.name: shape for t in self.outputs if (shape := t.resolve_shape(self.problem))}
        return range(max(shape[self.find_axis(name, axis)] for name, shape in shapes.items()))

    def restrict(self, inputs: Arrays, places: Places, *, dry: bool = False) -> tuple[dict[str, NDArray[Any]], Problem]:
        """Return inputs and problem of the outputs at ``places``. ``dry`` uses inputs that are nothing but shapes."""
        sampling = self.op.sampling
        assert sampling is not None
        taken: dict[str, NDArray[Any]] = dict(inputs)
        if dry:
            taken = {name: np.broadcast_to(np.int8(0), shape) for name, shape in self.input_shapes.items()}
        taken.update(self.indices)
        problem = self.problem
        for axis, chosen in places.items():
            if len(chosen):
                taken, problem = sampling.restrict(taken, problem, axis, chosen)
        return taken, problem

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs that the problem has."""
        return {t.name: t.resolve_shape(self.problem) for t in self.op.inputs if t.present(self.problem)}

    def find_needed(self, places: Places) -> tuple[dict[str, list[NDArray[Any]]], Problem]:
        """Return the places of each input, axis by axis, that the outputs at ``places`` need, and the problem of these.

        Of indices, which are needed whole, there are none.
        """
        shapes = self._drawn_shapes
        needed: dict[str, list[NDArray[Any]]] = {name: [] for name in shapes}
        problem = self.problem
        for axis in range(max(map(len, shapes.values()), default=0)):
            lines, problem = self._restrict_axis(axis, places, whole=False)
            if not all(line.all() for line in lines.values()):
                lines, problem = self._restrict_axis(axis, places, whole=True)
            for name, line in lines.items():
                needed[name].append(line - 1)
        return needed, problem

    @property
    def _drawn_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs that the problem has, indices aside."""
        return {name: shape for name, shape in self.input_shapes.items() if name not in self.indices}

    def _restrict_axis(self, axis: int, places: Places, *, whole: bool) -> tuple[dict[str, NDArray[np.int64]], Problem]:
        """Return which places of ``axis``, counted from 1, each input needs for the outputs at ``places``.

        Arrays of places are restricted as the inputs would be. An axis may be billions long: unless ``whole``, the arrays hold the chosen
        places alone, and 0 elsewhere, which takes no memory; a 0 in the result says that others are needed.
        """
        shapes = self._drawn_shapes
        chosen = np.unique(np.concatenate([np.zeros(0, np.intp), *places.values()]))
        axes = {n: np.arange(1, n + 1) if whole else _mark_places(n, chosen) for n in {s[axis] for s in shapes.values() if axis < len(s)}}
        lines = {
            name: np.broadcast_to(
                axes[s[axis]].reshape([-1 if i == axis else 1 for i in range(len(s))]) if axis < len(s) else np.int64(0), s
            )
            for name, s in shapes.items()
        }
        taken, problem = self.restrict(lines, places)
        found = {name: taken[name] for name, s in shapes.items() if axis < len(s) and name in taken}
        return {n: v[tuple(slice(None) if i == axis else 0 for i in range(v.ndim))] for n, v in found.items()}, problem


def _find_work(op: Op, problem: Problem) -> float:
    cost = op.cost(problem)
    return max(cost.flops, cost.bytes_moved)


def _drop_repeats(values: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the values without those that repeat the one before: of elements in memory order, most do along the slower axes."""
    return values[np.append(True, values[1:] != values[:-1])] if len(values) else values


def _mark_places(length: int, chosen: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return zeros with one more than each chosen place at that place."""
    line = np.zeros(length, np.int64)
    inside = chosen[chosen < length]
    line[inside] = inside + 1
    return line


def pick(values: NDArray[np.intp] | range, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return at most ``count`` of ascending values: the ends and some drawn between; a range is one from 0."""
    if len(values) <= count:
        return np.asarray(values, np.intp)
    edges = np.arange(count + 1) * len(values) // count
    chosen = rng.integers(edges[:-1], edges[1:])
    chosen[-1] = len(values) - 1
    if count > 1:
        chosen[0] = 0
    return chosen if isinstance(values, range) else values[chosen]


def find_indices(
    offsets: NDArray[np.int64], shape: Sequence[int], strides: Sequence[int]
) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
    """Return the index along each axis of elements at offsets, and which of them lie between the tensor's own."""
    indices = [np.zeros(len(offsets), np.int64) for _ in shape]
    beside = np.zeros(len(offsets), np.bool_)
    # From the slowest in memory; what has one place alone says nothing.
    for axis in sorted((i for i, n in enumerate(shape) if n > 1), key=lambda i: -strides[i]):
        indices[axis] = offsets // strides[axis]
        # The remainder, for a fraction of what NumPy's own takes.
        offsets = offsets - indices[axis] * strides[axis]
        beside |= indices[axis] >= shape[axis]
    return indices, beside | (offsets > 0)


def thin(runs: NDArray[np.int64], most_bytes: int) -> NDArray[np.int64]:
    """Leave out runs of bytes from the middle where there are too many, and cut long ones."""
    share = max(most_bytes // max(len(runs), 1), 4096)
    if int((runs[:, 1] - runs[:, 0]).sum()) > most_bytes:
        keep = pick(np.arange(len(runs)), max(most_bytes // share, 1), np.random.Generator(np.random.PCG64(0)))
        runs = runs[keep].copy()
        runs[:, 1] = np.minimum(runs[:, 1], runs[:, 0] + share)
    return runs


def find_in_grid(indices: tuple[NDArray[np.intp], ...], grid: Sequence[NDArray[np.intp]]) -> NDArray[np.bool_]:
    """Return which elements of a grid (ascending places per axis) are among the indexed ones."""
    marked = np.zeros(tuple(map(len, grid)), np.bool_)
    where: list[NDArray[np.intp]] = []
    left: NDArray[np.intp] | slice = slice(None)  # of the indexed elements, those in the grid as far as its axes were looked at
    for index, places in zip(indices, grid, strict=True):
        wanted = index[left]
        at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
        inside = np.flatnonzero(places[at] == wanted)
        where = [each[inside] for each in (*where, at)]
        left = inside if isinstance(left, slice) else left[inside]
    marked[tuple(where)] = True
    return marked
