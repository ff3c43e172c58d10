"""What a problem's outputs must be: inputs, float64 reference and bound, computed once and shared by all variants.

A problem of more than :data:`WHOLE_FLOPS` or :data:`WHOLE_BYTES` is judged on a sample, where its op says how
(:class:`harness.spec.Sampling`): of every axis one row (or column) in each band of at most :data:`BAND`, drawn by a hash of op and
problem, with all that lies along it. No tile as large as a band escapes, nor does a row or a column; what a kernel does at each place
within a tile is judged on the small problems, whole.

Also the checks of the op itself: a tolerance that is not finite, or that would let an output of zeros pass, judges nothing.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.spec import Op, Problem, Sampling, SpecError
from harness.spec.dtypes import find_dtype, is_float
from harness.verify.compare import Comparison, compare, find_different_bits, find_mismatches, is_right
from harness.verify.findings import Fault, FaultKind
from harness.verify.inputs import make_inputs
from harness.verify.places import is_sampled_in_full

# A float64 reference of this much takes a CPU core about a second.
WHOLE_FLOPS = 2.0**33
# Of cheap functions of long arrays; a bound has dozens of operations an element, each of which goes through memory.
WHOLE_BYTES = 2.0**28
BAND = 128
_MIN_SAMPLES = 64
# Outputs smaller than this may be all (near) zero by chance, for instance one element behind a relu.
_MIN_ELEMS_FOR_ZERO_LINT = 64


@dataclass(frozen=True)
class Part:
    """Float64 outputs with their absolute bounds, by tensor name: all of them, or those at ``places`` along ``axis``.

    ``axes`` names the outputs for which that is another axis, ``whole`` those that are the same at all places (a step, a count). Outputs
    that a part says nothing of are not in it.
    """

    outputs: dict[str, NDArray[np.float64]]
    bounds: dict[str, NDArray[np.float64]]
    axis: int | None = None
    places: NDArray[np.intp] | None = None
    axes: Mapping[str, int] = field(default_factory=dict[str, int])
    whole: frozenset[str] = frozenset()
    # Of each output one that was right, and how it compared: what has its bits, as most variants' elements do that are moved, is too.
    _right: dict[str, tuple[NDArray[Any], Comparison]] = field(default_factory=dict[str, Any], init=False, repr=False, compare=False)

    def take(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Return what of a whole output belongs to this part."""
        if self.axis is None or self.places is None or name in self.whole:
            return array
        return np.take(array, self.places, axis=self.axes.get(name, self.axis))

    def compare(self, name: str, actual: NDArray[Any]) -> Comparison:
        """Compare a whole output of the kernel with this part; the first bad index is that of the whole."""
        taken = self.take(name, actual)
        if name in self._right and not find_different_bits(taken, self._right[name][0]).any():
            return self._right[name][1]
        result = compare(taken, self.outputs[name], self.bounds[name])
        if result.ok:
            self._right[name] = np.array(taken), result
        if result.first_bad_index is None or self.axis is None or self.places is None or name in self.whole:
            return result
        index = list(result.first_bad_index)
        axis = self.axes.get(name, self.axis)
        index[axis] = int(self.places[index[axis]])
        return replace(result, first_bad_index=tuple(index))

    def find_mismatches(self, name: str, actual: NDArray[Any]) -> NDArray[np.bool_]:
        """Return True per element of this part that is wrong in a whole output of the kernel."""
        return find_mismatches(self.take(name, actual), self.outputs[name], self.bounds[name])

    def is_right(self, name: str, actual: NDArray[Any]) -> bool:
        """Return whether no element of this part is wrong in a whole output of the kernel."""
        return is_right(self.take(name, actual), self.outputs[name], self.bounds[name])

    @property
    def size_bytes(self) -> int:
        """Host memory held, with outputs that are found right later."""
        return sum(a.nbytes for group in (self.outputs, self.outputs, self.bounds) for a in group.values())


@dataclass(frozen=True)
class Expected:
    """Inputs in their own dtypes by tensor name, and what is expected of the outputs."""

    inputs: dict[str, NDArray[np.generic]]
    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """Host memory held."""
        return sum(a.nbytes for a in self.inputs.values()) + sum(p.size_bytes for p in self.parts)

    def compare(self, outputs: Mapping[str, NDArray[Any]]) -> dict[str, Comparison]:
        """Compare whole outputs by tensor name; of several parts the worst counts."""
        found: dict[str, Comparison] = {}
        for name, values in outputs.items():
            each = [part.compare(name, values) for part in self.parts if name in part.outputs]
            found[name] = min(each, key=lambda c: (c.ok, -c.max_error_ratio))
        return found

    def find_wrong(self, outputs: Mapping[str, NDArray[Any]]) -> str:
        """Return "" where whole outputs are right, or what is wrong with the first that is not."""
        for name, values in outputs.items():
            if not all(part.is_right(name, values) for part in self.parts if name in part.outputs):
                return self.compare({name: values})[name].describe(name)
        return ""

    def describe(self) -> str:
        """Say what of the outputs is judged."""
        sampled = [f"{len(p.places)} places of axis {p.axis}" for p in self.parts if p.places is not None]
        return f"sampled: all along {' and '.join(sampled)}" if sampled else "whole"


KeptT = TypeVar("KeptT")


class References:
    """Computes :class:`Expected`, and what else the variants of an op share, on demand, and keeps the latest up to ``max_bytes``."""

    def __init__(self, op: Op, max_bytes: int = 1 << 30) -> None:
        self.op = op
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[Any, ...], tuple[Any, int]] = OrderedDict()
        self._kept_bytes = 0

    def get(self, problem: Problem, distribution: str = "normal", seed: int = 0) -> Expected:
        """Return what is expected of ``problem`` on the given inputs. Raises what the op's own callables raise."""
        return self._keep(problem, distribution, seed, WHOLE_FLOPS, WHOLE_BYTES)

    def get_whole(self, problem: Problem, distribution: str = "normal", seed: int = 0) -> Expected:
        """Return the same with every output in one part, however large."""
        return self._keep(problem, distribution, seed, math.inf, math.inf)

    def _keep(self, problem: Problem, distribution: str, seed: int, whole_flops: float, whole_bytes: float) -> Expected:
        def compute() -> Expected:
            inputs = make_inputs(self.op, problem, distribution, seed)
            return compute_expected(self.op, problem, inputs, whole_flops, whole_bytes)

        return self.recall((problem.name, distribution, seed), compute, lambda made: made.size_bytes)

    def recall(self, key: tuple[Any, ...], make: Callable[[], KeptT], measure: Callable[[KeptT], int]) -> KeptT:
        """Return what was made for ``key`` before, or make it; ``measure`` tells its bytes. Nobody may change what is kept."""
        if key in self._kept:
            self._kept.move_to_end(key)
            found: KeptT = self._kept[key][0]
            return found
        made = make()
        self._kept[key] = made, measure(made)
        self._kept_bytes += self._kept[key][1]
        while len(self._kept) > 1 and self._kept_bytes > self._max_bytes:
            self._kept_bytes -= self._kept.popitem(last=False)[1][1]
        return made


def compute_expected(
    op: Op,
    problem: Problem,
    inputs: dict[str, NDArray[np.generic]],
    whole_flops: float = WHOLE_FLOPS,
    whole_bytes: float = WHOLE_BYTES,
    *,
    is_thinned: bool = False,
) -> Expected:
    """Run the op's float64 reference and tolerance on ``inputs``, whole or sampled; an output without any of the axes needs the whole.

    ``is_thinned`` says that where the whole was needed, outputs with an axis are sampled all the same: comparing takes longest.
    """
    cost, sampling = op.cost(problem), op.sampling
    if sampling is None or (cost.flops <= whole_flops and cost.bytes_moved <= whole_bytes):
        return Expected(inputs, (_compute_part(op, problem, inputs),))
    if not is_sampled_in_full(op, problem):
        part = _compute_part(op, problem, inputs)
        return Expected(inputs, _thin_out(op, problem, sampling, part) if is_thinned else (part,))
    parts = []
    for axis in sampling.axes:
        present = [t for t in op.outputs if t.present(problem)]
        axes = {t.name: found for t in present if (found := sampling.locate(t.name, axis, problem)) is not None}
        extents = [t.resolve_shape(problem)[axes[t.name]] for t in present if t.name in axes and t.resolve_shape(problem)]
        if not extents:
            continue
        places = choose_places(op, problem, axis, extents[0])
        if len(places) == extents[0]:
            return Expected(inputs, (_compute_part(op, problem, inputs),))
        restricted_inputs, restricted = sampling.restrict(inputs, problem, axis, places)
        part = _compute_part(op, restricted, restricted_inputs)
        told = [t for t in present if t.name in axes]
        whole = frozenset(t.name for t in told if t.resolve_shape(problem) == t.resolve_shape(restricted))
        outputs, bounds = ({t.name: values[t.name] for t in told} for values in (part.outputs, part.bounds))
        parts.append(Part(outputs, bounds, axis=axis, places=places, axes=axes, whole=whole))
    return Expected(inputs, tuple(parts))


def _thin_out(op: Op, problem: Problem, sampling: Sampling, part: Part) -> tuple[Part, ...]:
    """Return places of the outputs that have an axis, a part each, and the others whole."""
    rest, parts = dict(part.outputs), []
    for axis in sampling.axes:
        for name, values in list(rest.items()):
            of_output = sampling.locate(name, axis, problem)
            if of_output is None or not values.shape:
                continue
            places = choose_places(op, problem, axis, values.shape[of_output])
            cut = Part({}, {}, axis=axis, places=places, axes={name: of_output})
            bound = np.broadcast_to(part.bounds[name], values.shape)
            parts.append(replace(cut, outputs={name: cut.take(name, values)}, bounds={name: cut.take(name, bound)}))
            del rest[name]
    return (*parts, Part(rest, {name: part.bounds[name] for name in rest}))


def choose_places(op: Op, problem: Problem, axis: int, extent: int) -> NDArray[np.intp]:
    """Return one place in each of at least 64 equal bands of at most :data:`BAND`, ascending, the same on every machine."""
    count = min(extent, max(_MIN_SAMPLES, -(-extent // BAND)))
    digest = hashlib.sha256("\0".join(("sample", op.name, problem.name, str(axis))).encode()).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    edges = np.arange(count + 1, dtype=np.int64) * extent // count
    return np.asarray(rng.integers(edges[:-1], edges[1:]), dtype=np.intp)


def _compute_part(op: Op, problem: Problem, inputs: Mapping[str, NDArray[np.generic]]) -> Part:
    wide, scratch = _widen(inputs)
    wanted = {t.name: t.resolve_shape(problem) for t in op.outputs if t.present(problem)}
    with np.errstate(all="ignore"):
        outputs = _require_arrays(op, problem, "reference", op.reference(wide, problem), wanted)
        bounds = _require_arrays(op, problem, "tolerance", op.tolerance(wide, outputs, problem), wanted)
    for name, shape in wanted.items():
        if np.shape(outputs[name]) != shape:
            raise SpecError(
                f"op {op.name}: reference() gives {name} the shape {np.shape(outputs[name])}, problem {problem.name} wants {shape}"
            )

    def keep(given: Any) -> dict[str, NDArray[np.float64]]:
        arrays = {n: np.asarray(given[n], np.float64) for n in wanted}
        # An output may be a view of an input.
        return {n: a.copy() if scratch is not None and np.may_share_memory(a, scratch) else a for n, a in arrays.items()}

    return Part(keep(outputs), keep(bounds))


# Touched for the first time, memory takes many times as long as what is done there: large inputs are made wide in the same place.
_SCRATCH = threading.local()
_SCRATCH_ELEMS, _FEW_ELEMS = 1 << 25, 1 << 18


def _widen(inputs: Mapping[str, NDArray[np.generic]]) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64] | None]:
    """Return inputs in float64, and the memory that holds them until the next call where that is no memory of their own.

    Indices, seeds and masks stay what they are: the largest of them have no float64.
    """
    total = sum(array.size for array in inputs.values() if is_float(array.dtype))
    if not _FEW_ELEMS <= total <= _SCRATCH_ELEMS:
        return {name: array.astype(np.float64) if is_float(array.dtype) else array for name, array in inputs.items()}, None
    if not hasattr(_SCRATCH, "elements"):
        _SCRATCH.elements = np.empty(_SCRATCH_ELEMS)
    scratch: NDArray[np.float64] = _SCRATCH.elements
    wide, end = dict[str, NDArray[Any]](inputs), 0
    for name, array in inputs.items():
        if is_float(array.dtype):
            wide[name] = scratch[end : end + array.size].reshape(array.shape)
            wide[name][...] = array
            end += array.size
    return wide, scratch


def _require_arrays(op: Op, problem: Problem, function: str, given: Any, wanted: Iterable[str]) -> Any:
    if not isinstance(given, Mapping):
        raise SpecError(f"op {op.name}, problem {problem.name}: {function}() must return arrays by tensor name, not {type(given).__name__}")
    if missing := [name for name in wanted if name not in given]:
        raise SpecError(f"op {op.name}: {function}() must give output {missing[0]!r} for problem {problem.name}, and does not")
    return given


def check_tolerance(op: Op, problem: Problem, expected: Expected) -> list[Fault]:
    """Return what is wrong with the op's bound on this problem: not finite, negative, or so wide that zeros pass."""
    faults = []
    dtypes: dict[str, Any] = {t.name: find_dtype(t.resolve_dtype(problem)) for t in op.outputs}
    for part in expected.parts:
        for name, values in part.outputs.items():
            bound = np.broadcast_to(part.bounds[name], values.shape)
            if not (np.isfinite(bound) & (bound >= 0))[np.isfinite(values)].all():
                detail = f"tolerance() gives {name} a bound that is negative or not finite on problem {problem.name}"
                faults.append(Fault(FaultKind.TOLERANCE_INVALID, "op", detail))
            elif values.size >= _MIN_ELEMS_FOR_ZERO_LINT and values.any():
                wrong = find_mismatches(np.zeros(values.shape, dtypes[name]), values, bound)
                if not wrong.any():
                    detail = f"an output of zeros would pass for {name} on problem {problem.name}: the bound is up to {bound.max():.3g}"
                    faults.append(Fault(FaultKind.TOLERANCE_ACCEPTS_ZEROS, "op", detail))
    return faults
