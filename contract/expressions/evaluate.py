"""A chain in NumPy: its values in float64, and how far a correct kernel in fp32 may be from them.

The bound goes through the tree with the values: a function's result errs by its own roundings, and by what the errors of its arguments
move it (:class:`contract.expressions.functions.Function`). A comparison whose sides are closer than their errors may come out either way,
and what is chosen by it errs by the difference of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.expressions.functions import COMPARISONS, COUNTING, FUNCTIONS, LOGIC
from contract.expressions.philox import draw_words, find_kept
from contract.expressions.tree import Call, Chain, Name, Node, Number

U = 2.0**-24
_LARGEST = 3.4028234663852886e38
_SMALLEST_NORMAL, _SMALLEST_SUBNORMAL = 2.0**-126, 2.0**-149
_ROUNDOFF = {"float32": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11}
_UNDERFLOW = {"float32": 0.0, "bfloat16": 2.0**-134, "float16": 2.0**-25}
# Correctly rounded, subnormal results too; others may flush them.
_EXACT = frozenset({"add", "sub", "mul", "div", "fma", "sqrt", "tanh_grad_from_y", "sigmoid_grad_from_y"})

_ARRAYS: Mapping[str, type[np.generic]] = {"float": np.float64, "bool": np.bool_, "int": np.int64}

Array = NDArray[Any]


@dataclass(frozen=True)
class _Value:
    """Values and the bound of their errors; of bools, where they may come out either way."""

    values: Array
    errors: Array


@dataclass(frozen=True)
class Draws:
    """What random elements follow from: the counter, and each element's number, row * columns + column."""

    seed: int
    offset: int
    elements: NDArray[np.int64]


def evaluate(chain: Chain, inputs: Mapping[str, Array], draws: Draws | None = None) -> dict[str, Array]:
    """Return the outputs, in float64 and bool, of inputs that broadcast against each other."""
    return {name: value.values for name, value in _run(chain, inputs, draws).items()}


def find_bounds(chain: Chain, inputs: Mapping[str, Array], generic: str, draws: Draws | None = None) -> dict[str, Array]:
    """Return the bound of each output's error, its rounding to its dtype included; ``generic`` is the dtype that ``T`` is."""
    found = _run(chain, inputs, draws)
    bounds = {}
    for operand in chain.outputs:
        value = found[operand.name]
        dtype = operand.find_dtype(generic)
        if dtype in ("bool", "int64"):
            bounds[operand.name] = value.errors.astype(np.float64)
            continue
        roundoff = _ROUNDOFF[dtype]
        with np.errstate(invalid="ignore", over="ignore"):
            bound = value.errors + roundoff * (np.abs(value.values) + value.errors) + _UNDERFLOW[dtype]
        bounds[operand.name] = np.where(np.isinf(value.errors), np.inf, bound)  # fp32 has a roundoff of 0, and 0 * inf is NaN
    return bounds


def _run(chain: Chain, inputs: Mapping[str, Array], draws: Draws | None) -> dict[str, _Value]:
    known: dict[str, _Value] = {}
    for operand in chain.inputs:
        array: Array = np.asarray(inputs[operand.name], _ARRAYS[operand.kind])
        known[operand.name] = _Value(array, np.zeros(array.shape, array.dtype))
    with np.errstate(all="ignore"):
        for target, node in chain.assignments:
            known[target] = _evaluate(node, known, draws)
    shape = np.broadcast_shapes(*(np.shape(known[o.name].values) for o in chain.inputs))
    return {o.name: _Value(*(np.broadcast_to(a, shape) for a in (known[o.name].values, known[o.name].errors))) for o in chain.outputs}


def _evaluate(node: Node, known: Mapping[str, _Value], draws: Draws | None) -> _Value:
    if isinstance(node, Number):
        return _Value(np.full((1, 1), node.value), np.zeros((1, 1)))
    if isinstance(node, Name):
        return known[node.name]
    arguments = [_evaluate(argument, known, draws) for argument in node.arguments]
    if node.function in COUNTING.values():
        left, right = (a.values.astype(np.int64) for a in arguments)
        made = left + right if node.function == COUNTING["add"] else left - right
        return _Value(made, np.zeros(made.shape, np.int64))
    if node.function == "float":
        rounded = arguments[0].values.astype(np.float32).astype(np.float64)
        return _Value(rounded, np.zeros(rounded.shape))
    if node.function == "keep":
        return _draw(node, arguments[0], draws)
    if node.function == "where":
        return _choose(*arguments)
    if node.function in COMPARISONS:
        return _compare(node.function, *arguments)
    if node.function in LOGIC:
        values = LOGIC[node.function][1](*(a.values for a in arguments))
        return _Value(values, np.logical_or.reduce(np.broadcast_arrays(*(a.errors for a in arguments), np.zeros_like(values))))
    return _apply(node, arguments)


def _draw(node: Call, share: _Value, draws: Draws | None) -> _Value:
    if draws is None:
        raise ValueError("a chain with keep or dropout needs draws: seed, offset and the elements' numbers")
    kept = find_kept(draw_words(draws.elements, draws.seed, draws.offset, node.draw), float(share.values.reshape(-1)[0]))
    return _Value(kept, np.zeros_like(kept))


def _choose(condition: _Value, taken: _Value, left: _Value) -> _Value:
    values = np.where(condition.values, taken.values, left.values)
    errors = np.where(condition.values, taken.errors, left.errors)
    other = np.where(condition.values, left.values, taken.values)
    either = np.maximum(taken.errors, left.errors) + np.abs(other - values)
    return _Value(values, np.where(condition.errors, either, errors))


def _compare(function: str, left: _Value, right: _Value) -> _Value:
    values = COMPARISONS[function][1](left.values, right.values)
    margin = left.errors + right.errors
    return _Value(values, np.broadcast_to((margin > 0.0) & ~(np.abs(left.values - right.values) > margin), values.shape))


def _apply(node: Call, arguments: list[_Value]) -> _Value:
    function = FUNCTIONS[node.function]
    exact = tuple(a.values for a in arguments)
    values = np.asarray(function.compute(*exact), np.float64)
    errors = np.zeros(values.shape)
    if any(a.errors.any() for a in arguments):
        errors = np.broadcast_to(function.spread(function.compute, exact, tuple(a.errors for a in arguments)), values.shape)
    own = U * np.asarray(function.own_error(values, *exact))
    if own.any():
        # Roundings are relative to what the device has, which may be larger by its error.
        errors = errors * (1.0 + 32.0 * U) + own + (_SMALLEST_SUBNORMAL if node.function in _EXACT else _SMALLEST_NORMAL)
    # What fp32 cannot hold is infinite on the device.
    overflown = np.abs(values) > _LARGEST
    return _Value(
        np.where(overflown, np.copysign(np.inf, values), values), np.where(np.isfinite(errors) | ~np.isfinite(values), errors, np.inf)
    )
