"""References of ops described by a plain function: its outputs by name, and a bound for sums of products."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import SpecError
from harness.spec.arguments import Tensor
from harness.spec.bounds import add_rounding, bound_sum
from harness.spec.dtypes import find_dtype, is_float
from harness.spec.problem import Arrays, Problem


def name_outputs(found: Any, tensors: Sequence[Tensor], problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return what a reference gave (a dict, several arrays, or the one array) in float64 by tensor name.

    Raises SpecError where it is not what ``tensors``, those that are written, ask for.
    """
    names = [t.name for t in tensors]
    given = found if isinstance(found, Mapping) else dict(zip(names, found if len(names) > 1 else [found], strict=False))
    if set(given) != set(names):
        raise SpecError(f"reference returns {', '.join(map(str, given)) or 'nothing'}, and the kernel writes {', '.join(names)}")
    outputs = {}
    for tensor in tensors:
        values, shape = np.asarray(given[tensor.name]), tensor.resolve_shape(problem)
        if values.dtype.kind not in "fiub" and values.dtype != find_dtype("bfloat16"):
            raise SpecError(f"reference returns {values.dtype} for {tensor.name}: return an array of numbers")
        if values.shape != shape:
            raise SpecError(f"reference returns shape {values.shape} for {tensor.name}, whose shape is {shape} on {problem.name}")
        outputs[tensor.name] = values.astype(np.float64)
    return outputs


def count_bytes(tensors: Sequence[Tensor], problem: Problem) -> tuple[float, float]:
    """Return the bytes of the tensors that are read and of those that are written, each once."""
    sizes = {t.name: float(math.prod(t.resolve_shape(problem)) * find_dtype(t.resolve_dtype(problem)).itemsize) for t in tensors}
    return sum(sizes[t.name] for t in tensors if t.is_read), sum(sizes[t.name] for t in tensors if t.is_written)


class NotASumError(SpecError):
    """A reference does more than to add and to multiply."""


_SUMS = {np.subtract: np.add, np.add: np.add, np.multiply: np.multiply, np.matmul: np.matmul, np.negative: np.absolute}
_SUMS |= {np.positive: np.absolute, np.absolute: np.absolute, np.square: np.square}
# Functions that move elements, or add and multiply them.
_SUMMING = (np.sum, np.cumsum, np.mean, np.dot, np.vdot, np.inner, np.outer, np.einsum, np.tensordot, np.convolve, np.correlate, np.trace)
_RESHAPING = (np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.squeeze, np.expand_dims, np.broadcast_to, np.roll, np.flip)
_JOINING = (np.stack, np.concatenate, np.vstack, np.hstack, np.split, np.repeat, np.tile, np.pad, np.take, np.diagonal, np.diag, np.copy)
_MAKING = (np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.atleast_1d, np.atleast_2d, np.tril, np.triu)
_VIEWING = (np.shape, np.ndim, np.size, np.lib.stride_tricks.sliding_window_view, np.lib.stride_tricks.as_strided)
_FUNCTIONS = frozenset((*_SUMMING, *_RESHAPING, *_JOINING, *_MAKING, *_VIEWING))


class Magnitudes(np.ndarray[Any, np.dtype[np.float64]]):
    """Absolute values: what is added to or taken from them adds up. A sum of products of them is the sum of the terms' magnitudes."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        """Add and multiply magnitudes; raises NotASumError for anything else."""
        if ufunc is np.divide and not isinstance(inputs[1], Magnitudes):
            replaced: Any = ufunc
        elif ufunc not in _SUMS:
            raise NotASumError(f"it uses {ufunc.__name__}")
        else:
            replaced = _SUMS[ufunc]
        plain = [np.abs(np.asarray(x)) if i < ufunc.nin else x for i, x in enumerate(inputs)]
        if out is not None:
            kwargs["out"] = tuple(o.view(np.ndarray) if isinstance(o, Magnitudes) else o for o in out)
        found = getattr(replaced, method)(*plain, **kwargs)
        return found.view(Magnitudes) if isinstance(found, np.ndarray) else found

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Let through what moves, adds or multiplies."""
        if func not in _FUNCTIONS:
            raise NotASumError(f"it uses {func.__name__}")
        return super().__array_function__(func, types, args, kwargs)


def bound_products(
    reference: Callable[[Arrays, Problem], Mapping[str, NDArray[np.float64]]],
    inputs: Arrays,
    problem: Problem,
    num_terms: int,
    dtypes: Mapping[str, str],
) -> dict[str, NDArray[np.float64]]:
    """Return the bound of outputs that are sums of ``num_terms`` products, in any order, in fp32 (of float64, in fp64).

    By :func:`harness.spec.bounds.bound_sum` of the terms' magnitudes, which the reference itself adds up; a product's own roundings are
    one for each input. ``dtypes`` are those of the outputs: what is stored in fewer bits is rounded once more, whole numbers are exact.

    Raises NotASumError where the reference does more than to add and multiply.
    """
    floats = {name: is_float(np.asarray(values).dtype) for name, values in inputs.items()}
    magnitudes = {n: np.abs(np.asarray(v, dtype=np.float64)).view(Magnitudes) if floats[n] else v for n, v in inputs.items()}
    try:
        sums = reference(magnitudes, problem)
    except NotASumError as error:
        raise NotASumError(
            f"no bound can be derived, as the reference is not a sum of products: {error}; give tolerance=, a function of inputs, outputs "
            "and problem that returns the largest absolute error by output (harness.spec.bounds helps)"
        ) from error
    found = {}
    for name, values in sums.items():
        dtype = dtypes[name]
        if not is_float(find_dtype(dtype)):
            found[name] = np.zeros(values.shape)
            continue
        error_bound = bound_sum(
            np.abs(values), num_terms + len(inputs), max(1, values.size), "float64" if dtype == "float64" else "float32"
        )
        found[name] = add_rounding(error_bound, np.abs(values), "float32" if dtype == "float64" else dtype)
    return found
