"""An op's cost as data: ``cost()`` of ``op.py`` as tables of formulas over the sizes, which the decision core evaluates."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.formulas import check_tokens
from contract.formulas import evaluate as evaluate_tokens
from harness.errors import FrozenError, SpecError
from harness.freezing.seal.cost_tracing import TracingError, trace
from harness.spec import Op, Problem
from harness.spec.dtypes import find_dtype
from harness.spec.tables import list_sizes, tabulate
from harness.targets import TARGETS

MAX_POWER = 3  # of one size in a cost: attention has S * S, a factorisation N^3
_Evaluate = Callable[[Mapping[str, int]], float]
_Term = list[Any]  # [coefficient, [size, ...]]; a power is a size that is named again


def describe_cost(op: Op) -> dict[str, Any]:
    """Return ``cost()`` as tables of formulas of the sizes.

    A figure is a sum ``[[coefficient, [size, ...]], ...]``, where a size that is named twice is squared, if it is one with powers up to
    :data:`MAX_POWER`; else what tracing ``cost()`` gives, ``{"postfix": [...]}`` (:mod:`contract.formulas`). Beside it the bytes of each
    input, and what the L2 of each architecture delivers: inputs are read again by every tile that needs them. Raises
    :class:`FrozenError` where a figure is neither: selection could not tell its kernels' estimates apart.
    """
    tables: dict[str, Any] = {
        name: tabulate(op, lambda p, name=name: _find_formula(op, p, name))  # type: ignore[misc]
        for name in ("flops", "bytes_moved")
    }
    tables["flop_unit"] = tabulate(op, lambda p: op.cost(p).flop_unit)
    tables["reads"] = tabulate(op, lambda p: _list_inputs(op, p))
    return tables | {"l2_bytes_per_s": {t.real_arch: t.l2_bytes_per_s for t in TARGETS.values()}}


def _list_inputs(op: Op, problem: Problem) -> list[_Term]:
    """Return the bytes of each input that is there: of its shape, dimensions of a fixed length are in the coefficient."""
    terms: list[_Term] = []
    for tensor in (t for t in op.inputs if t.present(problem)):
        shape = tensor.name_sizes(problem)
        fixed = math.prod(n for n in shape if isinstance(n, int))
        item_bytes = find_dtype(tensor.resolve_dtype(problem)).itemsize
        terms.append([float(item_bytes * fixed), [s for s in shape if isinstance(s, str)]])
    return terms


def _find_formula(op: Op, problem: Problem, name: str) -> Any:
    """Return one of the cost's figures as a sum of products, or as a formula in postfix order."""
    sizes = list_sizes(op)

    def call(values: Mapping[str, Any]) -> Any:
        return getattr(op.cost(Problem(values, problem.attributes)), name)

    def evaluate(values: Mapping[str, int]) -> float:
        return float(call(values))

    terms = _interpolate(evaluate, sizes, [_find_degree(evaluate, sizes, size) for size in sizes])
    if _is_same(evaluate, lambda point: sum(c * math.prod(point[n] for n in names) for c, names in terms), sizes):
        return terms
    try:
        tokens = trace(call, tuple(sizes)).list_tokens()
        check_tokens(tokens, sizes)
        if not _is_same(evaluate, lambda point: evaluate_tokens(tokens, point), sizes):
            raise TracingError("gives another figure for numbers than for symbols")
    except (TracingError, SpecError, FrozenError) as error:
        cause = error.__cause__ if isinstance(error, SpecError) else error
        reason = str(cause) if isinstance(cause, (TracingError, FrozenError)) else f"raises {type(cause).__name__}: {cause}"
        where = ", ".join(f"{k} = {v!r}" for k, v in problem.attributes.items()) or "all attributes at their defaults"
        raise FrozenError(
            f"{op.name}/op.py: {name} of cost() is not a sum of products of sizes, each at most to the power {MAX_POWER}, and cannot be "
            f"traced ({where}): it {reason}"
        ) from error
    return {"postfix": tokens}


def _is_same(evaluate: _Evaluate, other: _Evaluate, sizes: Sequence[str]) -> bool:
    """Return whether two figures agree at random points, small and large."""
    generator = random.Random(1)
    points = [{s: generator.randrange(1, most) for s in sizes} for most in (5000, 40) for _ in range(8)]
    return all(abs(other(point) - evaluate(point)) <= 1e-9 * abs(evaluate(point)) for point in points)


def _find_degree(evaluate: _Evaluate, sizes: Sequence[str], size: str) -> int:
    """Return the highest power of a size, by differences along it; at most :data:`MAX_POWER`."""
    base = {s: 5 + 2 * i for i, s in enumerate(sizes)}
    values = np.array([evaluate(base | {size: n}) for n in range(1, MAX_POWER + 3)])
    limit = 1e-9 * float(np.abs(values).max())
    degree = 0
    for power in range(1, MAX_POWER + 1):
        values = np.diff(values)
        if np.abs(values).max() > limit:
            degree = power
    return degree


def _interpolate(evaluate: _Evaluate, sizes: Sequence[str], degrees: Sequence[int]) -> list[_Term]:
    """Return the terms of the polynomial with these degrees through its values on a grid, those of fewest factors first."""
    places = [range(1, d + 2) for d in degrees]
    found: NDArray[np.float64] = np.array([evaluate(dict(zip(sizes, at, strict=True))) for at in itertools.product(*places)])
    found = found.reshape([d + 1 for d in degrees])
    for axis, place in enumerate(places):
        powers = np.vander(np.array(place, np.float64), increasing=True)
        found = np.moveaxis(np.tensordot(np.linalg.inv(powers), found, axes=(1, axis)), 0, axis)
    terms = []
    for powers_of in itertools.product(*(range(d + 1) for d in degrees)):
        coefficient = round(float(found[powers_of]), 9)
        if abs(coefficient) > 1e-9:
            terms.append([coefficient, [s for s, power in zip(sizes, powers_of, strict=True) for _ in range(power)]])
    order = {s: i for i, s in enumerate(sizes)}
    return sorted(terms, key=lambda term: (len(term[1]), [order[s] for s in term[1]]))
