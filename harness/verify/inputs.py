"""Random input arrays for an op, the same on every machine.

Each tensor has its own PCG64 stream, seeded by a hash of (op, problem, tensor, distribution, seed), so that neither the order of the
tensors nor a change to another one moves its values. A distribution is a way to be wrong that the others do not show: ``wide`` finds
lost precision and wrong tails, ``ties`` wrong comparisons and argmax, ``denormal`` flushes to zero, ``nonfinite`` lost NaN and Inf. In
the ``largest_`` ones a value of each row towers over the others, at its first, last or middle place, or at all places in turn (every other
row's tower is too high for an fp32 exponential, the others' is not); ``one_differs`` has rows that are constant but for one value;
``shifted`` rows lie far from zero.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.spec import DISTRIBUTIONS as DISTRIBUTIONS
from harness.spec import PLAIN, Booleans, Op, Plain, Problem, SpecError, Tensor, Values
from harness.spec.dtypes import find_dtype, find_smallest_normal
from harness.verify.input_domains import draw_in_domain, find_limit

_Floats = NDArray[np.float64]

# Exponents of ``wide``, by float dtype: products of two values summed over any practical length stay finite, and products stay normal.
_WIDE_EXPONENTS = {"float16": (-6, 3), "bfloat16": (-24, 24), "float32": (-24, 24), "float64": (-160, 160)}
_TIED_VALUES = (-1.5, -0.5, 0.0, 0.5, 1.0)
# Scale of integer values: sums of products over a few thousand terms stay inside int32.
_INTEGER_SPAN = 8
# Of tensors of many elements: ``normal`` ones that repeat after a prime number of them, which no row has, drawn in a fraction of the
# time; and the same with the largest value at the very end, where it is searched for.
REPEATED, LAST_OF_ALL = "repeated", "last_of_all"
_PERIOD = 65521


def _seed_generator(op: str, problem: str, tensor: str, distribution: str, seed: int) -> np.random.Generator:
    text = "\0".join((op, problem, tensor, distribution, str(seed)))
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def _draw_normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Floats:
    return rng.standard_normal(shape)


def _draw_uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Floats:
    return rng.uniform(-1.0, 1.0, shape)


def _draw_wide(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Floats:
    low, high = _WIDE_EXPONENTS[dtype.name]
    signs = rng.integers(0, 2, shape) * 2 - 1
    # ldexp is exact, where exp2 may round otherwise on another CPU.
    return np.asarray(np.ldexp(signs * rng.uniform(1.0, 2.0, shape), rng.integers(low, high, shape)))


def _draw_ties(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Floats:
    return rng.choice(np.array(_TIED_VALUES), shape)


def _draw_denormal(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Floats:
    subnormal = rng.uniform(-1.0, 1.0, shape) * find_smallest_normal(dtype)
    return np.where(rng.random(shape) < 0.5, subnormal, rng.standard_normal(shape))


def _draw_nonfinite(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Floats:
    values = rng.standard_normal(shape)
    # One of each, at different places, so that most outputs of a contraction stay finite and are still compared by value.
    places = rng.permutation(values.size)[:3]
    values.reshape(-1)[places] = np.array([np.nan, np.inf, -np.inf])[: len(places)]
    return values


def _find_heights(dtype: np.dtype[Any], num_rows: int) -> _Floats:
    """Return how far the largest value of each row lies above the others: over the range of an fp32 exponential, and within it."""
    tall, low = (28.0, 6.0) if dtype.name == "float16" else (110.0, 12.0)
    return np.where(np.arange(num_rows) % 2 == 0, tall, low)


def _raise_places(values: _Floats, places: NDArray[Any], dtype: np.dtype[Any]) -> _Floats:
    """Lift one place of each row of ``values`` above the rest; a row is all along the last axis."""
    rows = values.reshape(-1, values.shape[-1])
    index = np.arange(len(rows))
    rows[index, places] = rows.max(axis=1) + _find_heights(dtype, len(rows))
    return values


def _draw_largest(find_place: Callable[[int], int]) -> Callable[[np.random.Generator, tuple[int, ...], np.dtype[Any]], _Floats]:
    def draw_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Floats:
        values = rng.standard_normal(shape)
        num_rows = values.size // shape[-1]
        return _raise_places(values, np.full(num_rows, find_place(shape[-1])), dtype)

    return draw_values


def _take_turns(rng: np.random.Generator, num_rows: int, columns: int) -> NDArray[Any]:
    """Return a place for each row, each place once before any comes again."""
    return np.resize(rng.permutation(columns), num_rows)


def _draw_largest_anywhere(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Floats:
    values = rng.standard_normal(shape)
    return _raise_places(values, _take_turns(rng, values.size // shape[-1], shape[-1]), dtype)


def _draw_one_differs(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Floats:
    columns = shape[-1]
    num_rows = int(np.prod(shape)) // columns
    rows = np.repeat(rng.choice(np.array(_TIED_VALUES), (num_rows, 1)), columns, axis=1)
    # By a little, by much, in both directions; and every fifth row is constant.
    steps = np.resize([1.0, -1.0, _find_heights(dtype, 1)[0], -_find_heights(dtype, 1)[0], 0.0], num_rows)
    rows[np.arange(num_rows), _take_turns(rng, num_rows, columns)] += steps
    return rows.reshape(shape)


def _draw_shifted(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Floats:
    values = rng.standard_normal(shape)
    rows = values.reshape(-1, shape[-1])
    span = 4.0 if dtype.name == "float16" else 120.0
    rows += (np.resize([-1.0, 1.0], len(rows)) * span)[:, np.newaxis]
    return values


def _draw_repeated(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.resize(rng.standard_normal(min(math.prod(shape), _PERIOD)).astype(dtype), shape)


def _draw_last_of_all(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    values = _draw_repeated(rng, shape, dtype)
    flat = values.reshape(-1)
    flat[-1] = float(flat[:_PERIOD].max()) + 1.0
    return values


_FLOAT_DRAWS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...], np.dtype[Any]], NDArray[Any]]] = MappingProxyType(
    {
        "normal": _draw_normal,
        "uniform": _draw_uniform,
        "wide": _draw_wide,
        "ties": _draw_ties,
        "denormal": _draw_denormal,
        "nonfinite": _draw_nonfinite,
        "largest_first": _draw_largest(lambda columns: 0),
        "largest_last": _draw_largest(lambda columns: columns - 1),
        "largest_middle": _draw_largest(lambda columns: columns // 2),
        "largest_anywhere": _draw_largest_anywhere,
        "one_differs": _draw_one_differs,
        "shifted": _draw_shifted,
        REPEATED: _draw_repeated,
        LAST_OF_ALL: _draw_last_of_all,
    }
)


def _draw_integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], distribution: str) -> NDArray[Any]:
    info = np.iinfo(dtype)
    low, high = max(info.min, -_INTEGER_SPAN), min(info.max, _INTEGER_SPAN)
    if distribution == "ties":
        low, high = max(low, -1), 1
    elif distribution == "wide":
        # The square root of the range: a product of two values still fits.
        span = 1 << ((info.bits - 1) // 2)
        low, high = max(info.min, -span), span - 1
    return rng.integers(low, high, shape, dtype=dtype, endpoint=True)


def draw(
    shape: tuple[int, ...],
    dtype: str,
    distribution: str,
    *,
    op: str,
    problem: str,
    tensor: str,
    seed: int = 0,
    values: Values = PLAIN,
    limit: int = 0,
) -> NDArray[np.generic]:
    """Return one contiguous array of the given shape and dtype.

    Floating dtypes follow the distribution; integer dtypes take small values (``wide``: up to the square root of their range, ``ties``:
    three values), for ``denormal`` and ``nonfinite`` they are as for ``normal``. ``values`` is a domain that all keep to, ``limit`` what
    indices lie below. Raises :class:`SpecError` for a distribution or dtype that is not known.
    """
    if distribution not in _FLOAT_DRAWS:
        raise SpecError(f"op {op}: no input distribution {distribution!r}; there are: {', '.join(DISTRIBUTIONS)}")
    try:
        dt = find_dtype(dtype)
    except TypeError as error:
        raise SpecError(f"op {op}, tensor {tensor}: NumPy knows no dtype {dtype!r}") from error
    rng = _seed_generator(op, problem, tensor, distribution, seed)
    # One value is drawn as a row of one.
    extents = shape or (1,)
    if not isinstance(values, Plain):
        drawn = draw_in_domain(rng, extents, dt, distribution, values, limit)
    elif dt.kind in "iu":
        drawn = _draw_integers(rng, extents, dt, distribution)
    elif dt.kind == "b":
        drawn = draw_in_domain(rng, extents, dt, distribution, Booleans(), 2)
    elif dt.name in _WIDE_EXPONENTS:
        drawn = _FLOAT_DRAWS[distribution](rng, extents, dt)
    else:
        raise SpecError(
            f"op {op}, tensor {tensor}: no random values for dtype {dtype!r}; use float16, bfloat16, float32, float64, bool or an integer"
        )
    return np.asarray(drawn.astype(dt, copy=False), order="C").reshape(shape)


def make_inputs(op: Op, problem: Problem, distribution: str = "normal", seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """Return an array for each input tensor that ``problem`` has, by tensor name."""
    inputs = (t for t in op.inputs if t.present(problem))
    return {t.name: draw_tensor(op, problem, t, t.resolve_shape(problem), distribution, seed) for t in inputs}


def draw_tensor(
    op: Op, problem: Problem, tensor: Tensor, shape: tuple[int, ...], distribution: str = "normal", seed: int = 0
) -> NDArray[np.generic]:
    """Return values for an input tensor, or for a part of it that has another shape."""
    return draw(
        shape,
        tensor.resolve_dtype(problem),
        distribution,
        op=op.name,
        problem=problem.name,
        tensor=tensor.name,
        seed=seed,
        values=tensor.resolve_values(problem),
        limit=find_limit(tensor, problem),
    )
