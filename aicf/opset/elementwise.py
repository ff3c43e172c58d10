"""Elementwise functions of one to three values that broadcast, one row each: arity, meaning, and the gradient of each operand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicf.opset.chains import COUNTERS, call_chain, find_grid
from aicf.opset.definition import REQUIRED, Arrays, Backward, Builder, OpDef, Types, V
from aicf.opset.erf import compute_erf
from aicf.opset.types import Attrs, Type, broadcast_shapes

_GELU_C, _GELU_A = math.sqrt(2.0 / math.pi), 0.044715


@dataclass(frozen=True)
class Slope:
    """The gradient with respect to one operand: what of the call it reads (``x0``, ``y``), and the rule."""

    reads: str
    rule: Callable[[Backward, V], V]


@dataclass(frozen=True)
class Function:
    """A row of the table. Without slopes there is no gradient: comparisons, and steps."""

    meaning: Callable[..., Any]
    slopes: tuple[Slope, ...] = ()
    arity: int = 1
    is_test: bool = False  # the result is a boolean


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def _normal(x: Any) -> Any:
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _tanh_of_gelu(z: Any) -> tuple[Any, Any]:
    return np.tanh(_GELU_C * (z + _GELU_A * z**3)), _GELU_C * (1.0 + 3.0 * _GELU_A * z * z)


def _gelu_tanh_slope(z: Any) -> Any:
    t, du = _tanh_of_gelu(z)
    return 0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * du


def _silu_slope(z: Any) -> Any:
    s = _sigmoid(z)
    return s * (1.0 + z * (1.0 - s))


def _gelu_tanh_curvature(g: Backward) -> V:
    """Return the second derivative of tanh-GELU, of elementwise functions."""
    z = g["x0"]
    square = g.each("square", z)
    t = g.each("tanh", g.scale(g.mul(z, g.shift(g.scale(square, _GELU_A), 1.0)), _GELU_C))
    du = g.scale(g.shift(g.scale(square, 3.0 * _GELU_A), 1.0), _GELU_C)
    rest = g.shift(g.neg(g.each("square", t)), 1.0)
    bent = g.scale(z, 6.0 * _GELU_A * _GELU_C)
    inner = g.sub(bent, g.scale(g.mul(t, g.each("square", du)), 2.0))
    return g.add(g.mul(rest, du), g.scale(g.mul(g.mul(z, rest), inner), 0.5))


def _gelu_erf_curvature(g: Backward) -> V:
    square = g.each("square", g["x0"])
    return g.mul(g.scale(g.each("exp", g.scale(square, -0.5)), 1.0 / math.sqrt(2.0 * math.pi)), g.shift(g.neg(square), 2.0))


def _silu_curvature(g: Backward) -> V:
    s = g.each("sigmoid", g["x0"])
    slope = g.mul(s, g.shift(g.neg(s), 1.0))
    return g.mul(slope, g.shift(g.mul(g["x0"], g.shift(g.scale(s, -2.0), 1.0)), 2.0))


def _with_slope(function: str) -> Slope:
    """Return the rule of an activation whose slope is a function of its own: fused backward passes look for that product."""
    return Slope("x0", lambda g, dy: g.mul(dy, g.each(function, g["x0"])))


def _pick(dy_if_first: bool) -> Callable[[Backward, V], V]:
    """Return maximum's and minimum's rule: ties share the gradient equally."""

    def rule(g: Backward, dy: V) -> V:
        mine, other = (g["x0"], g["x1"]) if dy_if_first else (g["x1"], g["x0"])
        won = g.cast(g.each("eq", mine, g["y"]), g.of("y").dtype)
        lost = g.cast(g.each("eq", other, g["y"]), g.of("y").dtype)
        return g.div(g.mul(dy, won), g.add(won, lost))

    return rule


def _choose(g: Backward, dy: V, *, first: bool) -> V:
    zero = g.full(0.0, dy)
    return g.each("where", g["x0"], dy, zero) if first else g.each("where", g["x0"], zero, dy)


FUNCTIONS: dict[str, Function] = {
    "neg": Function(np.negative, (Slope("", lambda g, dy: g.neg(dy)),)),
    "abs": Function(np.abs, (Slope("x0", lambda g, dy: g.mul(dy, g.each("sign", g["x0"]))),)),
    "sign": Function(np.sign),
    "exp": Function(np.exp, (Slope("y", lambda g, dy: g.mul(dy, g["y"])),)),
    "log": Function(np.log, (Slope("x0", lambda g, dy: g.div(dy, g["x0"])),)),
    "expm1": Function(np.expm1, (Slope("y", lambda g, dy: g.mul(dy, g.shift(g["y"], 1.0))),)),
    "log1p": Function(np.log1p, (Slope("x0", lambda g, dy: g.div(dy, g.shift(g["x0"], 1.0))),)),
    "sqrt": Function(np.sqrt, (Slope("y", lambda g, dy: g.scale(g.div(dy, g["y"]), 0.5)),)),
    "rsqrt": Function(lambda x: 1.0 / np.sqrt(x), (Slope("x0 y", lambda g, dy: g.scale(g.div(g.mul(dy, g["y"]), g["x0"]), -0.5)),)),
    "square": Function(np.square, (Slope("x0", lambda g, dy: g.scale(g.mul(dy, g["x0"]), 2.0)),)),
    "sin": Function(np.sin, (Slope("x0", lambda g, dy: g.mul(dy, g.each("cos", g["x0"]))),)),
    "cos": Function(np.cos, (Slope("x0", lambda g, dy: g.neg(g.mul(dy, g.each("sin", g["x0"])))),)),
    "erf": Function(
        compute_erf,
        (Slope("x0", lambda g, dy: g.scale(g.mul(dy, g.each("exp", g.neg(g.each("square", g["x0"])))), 2.0 / math.sqrt(math.pi))),),
    ),
    "tanh": Function(np.tanh, (Slope("y", lambda g, dy: g.mul(dy, g.shift(g.neg(g.each("square", g["y"])), 1.0))),)),
    "sigmoid": Function(_sigmoid, (Slope("y", lambda g, dy: g.mul(dy, g.mul(g["y"], g.shift(g.neg(g["y"]), 1.0)))),)),
    # relu's slope is told by its output, so that an epilogue need not keep its input.
    "relu": Function(lambda x: np.where(x < 0, 0.0, x), (Slope("y", lambda g, dy: g.mul(dy, g.each("relu_slope", g["y"]))),)),
    "relu_slope": Function(lambda x: np.where(np.isnan(x), x, x > 0)),
    "gelu_tanh": Function(lambda z: 0.5 * z * (1.0 + _tanh_of_gelu(z)[0]), (_with_slope("gelu_tanh_slope"),)),
    "gelu_tanh_slope": Function(_gelu_tanh_slope, (Slope("x0", lambda g, dy: g.mul(dy, _gelu_tanh_curvature(g))),)),
    "gelu_erf": Function(lambda z: 0.5 * z * (1.0 + compute_erf(z / math.sqrt(2.0))), (_with_slope("gelu_erf_slope"),)),
    "gelu_erf_slope": Function(
        lambda z: 0.5 * (1.0 + compute_erf(z / math.sqrt(2.0))) + z * _normal(z),
        (Slope("x0", lambda g, dy: g.mul(dy, _gelu_erf_curvature(g))),),
    ),
    "silu": Function(lambda z: z * _sigmoid(z), (_with_slope("silu_slope"),)),
    "silu_slope": Function(_silu_slope, (Slope("x0", lambda g, dy: g.mul(dy, _silu_curvature(g))),)),
    "add": Function(np.add, (Slope("", lambda g, dy: dy), Slope("", lambda g, dy: dy)), 2),
    "sub": Function(np.subtract, (Slope("", lambda g, dy: dy), Slope("", lambda g, dy: g.neg(dy))), 2),
    "mul": Function(np.multiply, (Slope("x1", lambda g, dy: g.mul(dy, g["x1"])), Slope("x0", lambda g, dy: g.mul(dy, g["x0"]))), 2),
    "div": Function(
        np.divide,
        (Slope("x1", lambda g, dy: g.div(dy, g["x1"])), Slope("x1 y", lambda g, dy: g.neg(g.div(g.mul(dy, g["y"]), g["x1"])))),
        2,
    ),
    "pow": Function(
        np.power,
        (
            Slope("x0 x1", lambda g, dy: g.mul(dy, g.mul(g["x1"], g.each("pow", g["x0"], g.shift(g["x1"], -1.0))))),
            Slope("x0 y", lambda g, dy: g.mul(dy, g.mul(g["y"], g.each("log", g["x0"])))),
        ),
        2,
    ),
    "max": Function(np.maximum, (Slope("x0 x1 y", _pick(True)), Slope("x0 x1 y", _pick(False))), 2),
    "min": Function(np.minimum, (Slope("x0 x1 y", _pick(True)), Slope("x0 x1 y", _pick(False))), 2),
    "where": Function(
        lambda c, a, b: np.where(c, a, b),
        (
            Slope("", lambda g, dy: None),
            Slope("x0", lambda g, dy: _choose(g, dy, first=True)),
            Slope("x0", lambda g, dy: _choose(g, dy, first=False)),
        ),
        3,
    ),
    "eq": Function(np.equal, arity=2, is_test=True),
    "lt": Function(np.less, arity=2, is_test=True),
    "le": Function(np.less_equal, arity=2, is_test=True),
    "gt": Function(np.greater, arity=2, is_test=True),
    "ge": Function(np.greater_equal, arity=2, is_test=True),
}


def find_function(attrs: Attrs) -> Function:
    """Return the row that a call names; raises ValueError listing those that there are."""
    name = str(attrs["function"])
    if name not in FUNCTIONS:
        raise ValueError(f"Elementwise: no function {name!r}; there are: {', '.join(FUNCTIONS)}")
    return FUNCTIONS[name]


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    function, name = find_function(attrs), str(attrs["function"])
    there = [t for t in types if t is not None]
    if len(there) != function.arity or len(types) != function.arity:
        raise TypeError(f"Elementwise {name}: takes {function.arity} values, got {len(types)}")
    operands = there
    if name == "where":
        if there[0].dtype != "bool":
            raise TypeError(f"Elementwise where: the condition must be bool, got {there[0].dtype}")
        operands = there[1:]
    if len({t.dtype for t in operands}) > 1:
        dtypes = " and ".join(t.dtype for t in operands)
        raise TypeError(f"Elementwise {name}: values have dtypes {dtypes}; cast one of them: x.cast({operands[0].dtype!r})")
    dtype = operands[0].dtype
    if not operands[0].is_float and not function.is_test and name not in ("add", "sub", "mul", "max", "min", "where"):
        raise TypeError(f"Elementwise {name}: expected a floating dtype, got {dtype}")
    return (Type("bool" if function.is_test else dtype, broadcast_shapes(f"Elementwise {name}", *(t.shape for t in there))),)


def _evaluate(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    return (find_function(attrs).meaning(*arrays),)


def _differentiate(g: Backward, dy: V) -> list[V | None]:
    """Return each needed operand's gradient, summed over what was broadcast."""
    found: list[V | None] = []
    function = find_function(g.attrs)
    for i in range(function.arity):
        name = f"x{i}"
        made = function.slopes[i].rule(g, dy) if name in g.needed and function.slopes else None
        found.append(None if made is None else g.sum_to(made, g.of(name).shape))
    return found


def _find_saved(attrs: Attrs, needed: set[str]) -> set[str]:
    slopes = find_function(attrs).slopes
    return {name for i, slope in enumerate(slopes) if f"x{i}" in needed for name in slope.reads.split()}


def has_gradient(attrs: Attrs) -> bool:
    """Whether a function has slopes; a comparison has none, and neither has a step."""
    return bool(find_function(attrs).slopes)


# How a chain calls what has another name there; comparisons, sums and products have theirs.
_IN_CHAINS = {
    "square": "{0} * {0}",
    "relu_slope": "relu_grad({0})",
    "gelu_erf": "gelu({0})",
    "gelu_erf_slope": "gelu_grad({0})",
    "gelu_tanh_slope": "gelu_tanh_grad({0})",
    "silu_slope": "silu_grad({0})",
    "neg": "-{0}",
    "mul of booleans": "{0} & {1}",
    "min of booleans": "{0} & {1}",
    "max of booleans": "{0} | {1}",
    "eq of booleans": "({0} & {1}) | (~{0} & ~{1})",
    "where of booleans": "({0} & {1}) | (~{0} & {2})",
}


def _lower(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    function = str(attrs["function"])
    types = [b.type_of(x) for x in inputs]
    if types[-1].dtype in COUNTERS and function not in ("add", "sub"):
        return None
    if types[-1].dtype == "bool":
        function = f"{function} of booleans"
        if function not in _IN_CHAINS:
            return None
    names = [f"x{i}" for i in range(len(inputs))]
    text = _IN_CHAINS.get(function, f"{function}({', '.join(['{}'] * len(names))})").format(*names)
    (result,) = _infer(types, attrs)
    if find_grid(result.shape, [t.shape for t in types]) is None:  # no rows and columns: what is repeated is written out
        inputs = [b.broadcast(x, result.shape) if t.num_elems > 1 else x for x, t in zip(inputs, types, strict=True)]
        types = [b.type_of(x) for x in inputs]
    return call_chain(b, f"y0 = {text}", list(zip(inputs, types, strict=True)), [result])


ACTIVATIONS = ("none", "relu", "gelu_tanh", "gelu_erf", "silu")

OPS = (
    OpDef(
        "Elementwise",
        ("x*",),
        ("y",),
        _infer,
        _evaluate,
        {"function": REQUIRED},
        _differentiate,
        _find_saved,
        has_gradient,
        lower=_lower,
    ),
)
