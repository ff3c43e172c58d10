"""The table of a chain's functions: what each computes, its error in fp32, and its name on the device.

``compute`` is the function in float64. ``own_error`` bounds the error of the device function on exact arguments in units of u = 2^-24; one
unit in the last place of a result is at most two times u times its magnitude. ``spread`` bounds how far the result moves when the arguments
move by at most their errors. Ulps are those of the CUDA C++ Programming Guide, "Mathematical Functions".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Spread = Callable[[Callable[..., Any], tuple[Floats, ...], tuple[Floats, ...]], Floats]


@dataclass(frozen=True)
class Function:
    """A row of the table. ``arguments`` and ``result`` are kinds, ``float`` or ``bool``; ``cuda`` is formatted with the arguments."""

    name: str
    arguments: tuple[str, ...]
    cuda: str
    compute: Callable[..., Any]
    own_error: Callable[..., Any]
    spread: Spread
    result: str = "float"
    meaning: str = ""


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_ROOT_HALF = math.sqrt(0.5)
_LINEAR, _CUBIC = 2.0 * math.sqrt(2.0 / math.pi), 2.0 * math.sqrt(2.0 / math.pi) * 0.044715


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _gelu(x: Floats) -> Floats:
    return np.asarray(0.5 * x * _erfc(-_ROOT_HALF * x))


def _gelu_grad(x: Floats) -> Floats:
    return np.asarray(0.5 * _erfc(-_ROOT_HALF * x) + x * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi))


def _gelu_tanh(x: Floats) -> Floats:
    return np.asarray(x * _sigmoid(x * (_LINEAR + _CUBIC * x * x)))


def _gelu_tanh_grad(x: Floats) -> Floats:
    s = _sigmoid(x * (_LINEAR + _CUBIC * x * x))
    return np.asarray(s + x * s * (1.0 - s) * (_LINEAR + 3.0 * _CUBIC * x * x))


def _silu_grad(x: Floats) -> Floats:
    s = _sigmoid(x)
    return np.asarray(s + x * s * (1.0 - s))


def _move_to_corners(compute: Callable[..., Any], values: tuple[Floats, ...], errors: tuple[Floats, ...]) -> Floats:
    """Return how far a function moves that is monotone in each argument: the farthest corner of the arguments' intervals."""
    middle = compute(*values)
    moved = np.zeros_like(middle)
    for signs in itertools.product((-1.0, 1.0), repeat=len(values)):
        moved = np.maximum(moved, np.abs(compute(*(v + s * e for v, s, e in zip(values, signs, errors, strict=True))) - middle))
    return np.asarray(np.where(np.isnan(moved) & ~np.isnan(middle), np.inf, moved))


def _move_root(compute: Callable[..., Any], values: tuple[Floats, ...], errors: tuple[Floats, ...]) -> Floats:
    """Return how far a square root moves: its argument's interval ends at 0, below which it is NaN, and that is no number to be off by."""
    (x,), (error,) = values, errors
    low = np.where(x >= 0.0, np.maximum(x - error, 0.0), x)
    return np.asarray(np.maximum(compute(x + error) - compute(x), compute(x) - compute(low)))


def _move_by(slope: float) -> Spread:
    """Return the spread of a function of one argument whose slope is nowhere steeper."""
    return lambda compute, values, errors: slope * errors[0]


def _float(
    name: str, arity: int, cuda: str, compute: Callable[..., Any], roundings: Any, spread: Spread = _move_to_corners, meaning: str = ""
) -> Function:
    own = roundings if callable(roundings) else _relative(lambda *_: roundings)
    return Function(name, ("float",) * arity, cuda, compute, own, spread, meaning=meaning)


def _relative(count: Callable[..., Any]) -> Callable[..., Any]:
    """Return the error of so many roundings, each relative to the result."""
    return lambda result, *arguments: count(*arguments) * np.abs(result)


def _absolute(count: float) -> Callable[..., Any]:
    """Return the error of terms of about 1 that may cancel."""
    return lambda result, *arguments: np.full(np.shape(result), count)


def _gelu_roundings(x: Floats) -> Floats:
    # erfcf errs by 4 ulp; its argument z by two roundings, which move erfc(z) by z (2 z + 1.2) of itself each at the most.
    z = _ROOT_HALF * np.abs(x)
    return np.asarray(12.0 + np.where(x < 0.0, 2.0 * z * (2.0 * z + 1.2), 2.0))


def _gelu_tanh_roundings(x: Floats) -> Floats:
    # The power t has five roundings, which move x sigmoid(t) by t of itself each at the most.
    return np.asarray(12.0 + 5.0 * np.where(x < 0.0, np.abs(x * (_LINEAR + _CUBIC * x * x)), 0.3))


def _round_to_bfloat16(x: Floats) -> Floats:
    import ml_dtypes

    return np.asarray(np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).astype(np.float64))


def _move_rounded(unit: float, subnormal: float) -> Spread:
    # An argument with an error may be rounded to the neighbour; an exact one is rounded exactly.
    def spread(compute: Callable[..., Any], values: tuple[Floats, ...], errors: tuple[Floats, ...]) -> Floats:
        step = 2.0 * unit * np.abs(values[0]) + subnormal
        return np.asarray(np.where(errors[0] > 0.0, errors[0] * (1.0 + 2.0 * unit) + step, 0.0))

    return spread


def _maximum(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.maximum(a, b))


def _relu_grad(x: Floats) -> Floats:
    return np.asarray(np.where(np.isnan(x), x, np.where(x > 0.0, 1.0, 0.0)))


def _jump(compute: Callable[..., Any], values: tuple[Floats, ...], errors: tuple[Floats, ...]) -> Floats:
    """Return the spread of a step function: what it gives at either end."""
    middle, low, high = (compute(values[0] + sign * errors[0]) for sign in (0.0, -1.0, 1.0))
    return np.asarray(np.maximum(np.abs(high - middle), np.abs(low - middle)))


_FLOATS = (
    _float("add", 2, "({} + {})", np.add, 1.0),
    _float("sub", 2, "({} - {})", np.subtract, 1.0),
    _float("mul", 2, "({} * {})", np.multiply, 1.0),
    _float("div", 2, "__fdiv_rn({}, {})", np.divide, 1.0),
    _float("fma", 3, "fmaf({}, {}, {})", lambda a, b, c: a * b + c, 1.0, meaning="a * b + c, rounded once"),
    _float("neg", 1, "(-{})", np.negative, 0.0),
    _float("abs", 1, "fabsf({})", np.abs, 0.0, _move_by(1.0)),
    _float("max", 2, "find_maximum({}, {})", _maximum, 0.0, meaning="NaN where either is"),
    _float("min", 2, "find_minimum({}, {})", np.minimum, 0.0, meaning="NaN where either is"),
    _float("clip", 3, "clip({}, {}, {})", lambda x, a, b: np.minimum(np.maximum(x, a), b), 0.0, meaning="x within [low, high]"),
    _float("sign", 1, "find_sign({})", np.sign, 0.0, _jump),
    _float("exp", 1, "expf({})", np.exp, 4.0),
    _float("log", 1, "logf({})", np.log, 2.0),
    _float("log1p", 1, "log1pf({})", np.log1p, 2.0),
    _float("expm1", 1, "expm1f({})", np.expm1, 2.0),
    _float("sqrt", 1, "__fsqrt_rn({})", np.sqrt, 1.0, _move_root),
    _float("rsqrt", 1, "rsqrtf({})", lambda x: 1.0 / np.sqrt(x), 4.0),
    _float("pow", 2, "powf({}, {})", np.power, 8.0),
    _float("sin", 1, "sinf({})", np.sin, 4.0, _move_by(1.0)),
    _float("cos", 1, "cosf({})", np.cos, 4.0, _move_by(1.0)),
    _float("erf", 1, "erff({})", _erf, 4.0),
    _float("tanh", 1, "tanhf({})", np.tanh, 4.0),
    _float("sigmoid", 1, "sigmoid({})", _sigmoid, 7.0),
    _float("relu", 1, "relu({})", lambda x: np.maximum(x, 0.0), 0.0),
    _float("gelu", 1, "gelu_erf({})", _gelu, _relative(_gelu_roundings), _move_by(1.13), "x / 2 (1 + erf(x / sqrt 2))"),
    _float("gelu_tanh", 1, "gelu_tanh({})", _gelu_tanh, _relative(_gelu_tanh_roundings), _move_by(1.13)),
    _float("silu", 1, "silu({})", lambda x: x * _sigmoid(x), 12.0, _move_by(1.1)),
    _float("relu_grad", 1, "find_relu_slope({})", _relu_grad, 0.0, _jump, "1 where x > 0, else 0"),
    # The terms of the slopes are below 1.2 and have below 24 roundings together.
    _float("gelu_grad", 1, "find_gelu_slope({})", _gelu_grad, _absolute(24.0), _move_by(0.8), "the slope of gelu"),
    _float("gelu_tanh_grad", 1, "find_gelu_tanh_slope({})", _gelu_tanh_grad, _absolute(24.0), _move_by(0.9)),
    _float("silu_grad", 1, "find_silu_slope({})", _silu_grad, _absolute(16.0), _move_by(0.5)),
    _float("tanh_grad_from_y", 1, "fmaf(-{0}, {0}, 1.0f)", lambda y: 1.0 - y * y, 1.0, meaning="the slope of tanh where it is y"),
    _float("sigmoid_grad_from_y", 1, "({0} * (1.0f - {0}))", lambda y: y * (1.0 - y), 2.0, meaning="the slope of sigmoid where it is y"),
    _float("bf16", 1, "to_float(from_float<Bf16>({}))", _round_to_bfloat16, 0.0, _move_rounded(2.0**-8, 2.0**-133), "rounded to bfloat16"),
    _float(
        "f16",
        1,
        "to_float(from_float<Fp16>({}))",
        lambda x: np.asarray(np.asarray(x, np.float32).astype(np.float16).astype(np.float64)),
        0.0,
        _move_rounded(2.0**-11, 2.0**-24),
        "rounded to float16",
    ),
)
FUNCTIONS: Mapping[str, Function] = MappingProxyType({f.name: f for f in _FLOATS})
COMPARISONS: Mapping[str, tuple[str, Callable[..., Any]]] = MappingProxyType(
    {
        "lt": ("({} < {})", np.less),
        "le": ("({} <= {})", np.less_equal),
        "gt": ("({} > {})", np.greater),
        "ge": ("({} >= {})", np.greater_equal),
        "eq": ("({} == {})", np.equal),
        "ne": ("({} != {})", np.not_equal),
    }
)
LOGIC: Mapping[str, tuple[str, Callable[..., Any]]] = MappingProxyType(
    {"and": ("({} && {})", np.logical_and), "or": ("({} || {})", np.logical_or), "not": ("(!{})", np.logical_not)}
)
# What counters (i64) are added and subtracted by, under the names that trees have them by.
COUNTING: Mapping[str, str] = MappingProxyType({"add": "add_count", "sub": "sub_count"})
# Names that stand for other expressions.
MACROS: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        "swiglu": (("a", "b"), "silu(a) * b"),
        "geglu": (("a", "b"), "gelu(a) * b"),
        "square": (("a",), "a * a"),
        "softplus": (("a",), "max(a, 0) + log1p(exp(-abs(a)))"),
    }
)
