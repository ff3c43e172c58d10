"""Ops as functions of tensors: ``F.linear``, ``F.softmax``, ``F.cross_entropy`` and so on, without modules or state."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from aicf.opset import Attr
from aicf.opset.filled import fill_choice
from aicf.opset.types import normalise_axes
from aicf.random import Generator, find_generator
from aicf.tensor import Scalar, Tensor, apply, apply_filled, make_scalar


def _one(op: str, *inputs: Tensor | None, **attrs: Attr) -> Tensor:
    (output,) = apply(op, inputs, **attrs)
    return output


def _each(function: str, x: Tensor) -> Tensor:
    return apply_filled(fill_choice("Elementwise", "function", function), (x,))[0]


def call(op: str, *inputs: Tensor | None, **attrs: Attr) -> Any:
    """Call an op of the opset by its name, one of a project's own (``ops/<name>/opset.py``) like any other.

    Returns its output, or a tuple where there are several. Raises KeyError for a name that no op has, and TypeError or ValueError for what
    the op does not take.
    """
    outputs = apply(op, inputs, **attrs)
    return outputs[0] if len(outputs) == 1 else outputs


def full(value: float, shape: Sequence[int] = (), dtype: str = "float32") -> Tensor:
    """Return a tensor of one number on the default backend."""
    return _one("Full", value=value, dtype=dtype, shape=tuple(shape))


def ones_like(x: Tensor) -> Tensor:
    """Return ones in the shape, dtype and backend of a tensor."""
    return _one("Broadcast", make_scalar(1, x.dtype, x.backend), shape=x.shape)


def exp(x: Tensor) -> Tensor:
    """Return ``e^x``."""
    return _each("exp", x)


def log(x: Tensor) -> Tensor:
    """Return the natural logarithm."""
    return _each("log", x)


def expm1(x: Tensor) -> Tensor:
    """Return ``e^x - 1``, exact near zero."""
    return _each("expm1", x)


def log1p(x: Tensor) -> Tensor:
    """Return ``log(1 + x)``, exact near zero."""
    return _each("log1p", x)


def sqrt(x: Tensor) -> Tensor:
    """Return the square root."""
    return _each("sqrt", x)


def rsqrt(x: Tensor) -> Tensor:
    """Return one over the square root."""
    return _each("rsqrt", x)


def square(x: Tensor) -> Tensor:
    """Return ``x^2``."""
    return _each("square", x)


def abs(x: Tensor) -> Tensor:  # noqa: A001  # as NumPy has it
    """Return the absolute value."""
    return _each("abs", x)


def sign(x: Tensor) -> Tensor:
    """Return -1, 0 or 1; it has no gradient."""
    return _each("sign", x)


def sin(x: Tensor) -> Tensor:
    """Return the sine."""
    return _each("sin", x)


def cos(x: Tensor) -> Tensor:
    """Return the cosine."""
    return _each("cos", x)


def erf(x: Tensor) -> Tensor:
    """Return the error function."""
    return _each("erf", x)


def tanh(x: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    return _each("tanh", x)


def sigmoid(x: Tensor) -> Tensor:
    """Return ``1 / (1 + e^-x)``."""
    return _each("sigmoid", x)


def relu(x: Tensor) -> Tensor:
    """Return ``max(x, 0)``; NaN stays."""
    return _each("relu", x)


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """Return ``x Phi(x)``, with ``approximate="tanh"`` by the tanh formula."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate: expected 'none' or 'tanh', got {approximate!r}")
    return _each("gelu_erf" if approximate == "none" else "gelu_tanh", x)


def silu(x: Tensor) -> Tensor:
    """Return ``x sigmoid(x)``."""
    return _each("silu", x)


def leaky_relu(x: Tensor, slope: float | Tensor = 0.01) -> Tensor:
    """Return x where it is positive, ``slope x`` elsewhere."""
    return where(x > 0, x, x * slope)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x where it is positive, ``alpha (e^x - 1)`` elsewhere."""
    # The exponential sees no positive number: it would overflow, and its slope would make NaN of a gradient of zero.
    is_positive = x > 0
    return where(is_positive, x, expm1(where(is_positive, 0.0, x)) * alpha)


def softplus(x: Tensor) -> Tensor:
    """Return ``log(1 + e^x)``."""
    return maximum(x, 0.0) + log1p(exp(-abs(x)))


def clip(x: Tensor, low: Tensor | Scalar | None = None, high: Tensor | Scalar | None = None) -> Tensor:
    """Return x, not below ``low`` and not above ``high``, which wins where the two cross; NaN stays."""
    if low is not None:
        x = where(x < low, low, x)
    return x if high is None else where(x > high, high, x)


def maximum(x: Tensor, y: Tensor | Scalar) -> Tensor:
    """Return the greater of each pair; a tie shares the gradient."""
    return x._binary("max", y)


def minimum(x: Tensor, y: Tensor | Scalar) -> Tensor:
    """Return the lesser of each pair; a tie shares the gradient."""
    return x._binary("min", y)


def where(condition: Tensor, x: Tensor | Scalar, y: Tensor | Scalar) -> Tensor:
    """Return x where the condition holds, y elsewhere; one of the two at least is a tensor."""
    like = x if isinstance(x, Tensor) else y
    if not isinstance(like, Tensor):
        raise TypeError("where: x or y must be a tensor; make one of a number: F.full(value, dtype=...)")
    return _one("Elementwise", condition, like._lift(x), like._lift(y), function="where")


def concat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return tensors one behind the other along an axis."""
    return _one("Concat", *tensors, axis=axis)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return tensors of one shape along a new axis."""
    return concat([unsqueeze(x, (axis,)) for x in tensors], axis % (tensors[0].ndim + 1))


def split(x: Tensor, sizes: Sequence[int], axis: int = 0) -> list[Tensor]:
    """Return parts of these sizes along an axis, which they must fill; raises ValueError."""
    (axis,) = normalise_axes(axis, x.ndim, "split")
    if sum(sizes) != x.shape[axis]:
        raise ValueError(f"split: sizes {tuple(sizes)} do not add up to the {x.shape[axis]} elements of axis {axis}")
    stops = itertools.accumulate(sizes)
    return [x[(*[slice(None)] * axis, slice(stop - size, stop))] for size, stop in zip(sizes, stops, strict=True)]


def pad(x: Tensor, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Tensor:
    """Return x with so many elements of a value before and after it along each axis; a negative number cuts elements off."""
    x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for a, b, n in zip(before, after, x.shape, strict=True))]
    before, after = [max(a, 0) for a in before], [max(b, 0) for b in after]
    if value == 0.0:
        return _one("Pad", x, before=tuple(before), after=tuple(after)) if any(before) or any(after) else x
    for axis, ends in enumerate(zip(before, after, strict=True)):
        first, last = (broadcast(x._lift(value), (*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in ends)
        x = concat([first, x, last], axis) if any(ends) else x
    return x


def broadcast(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return x repeated to a shape, by NumPy's rules."""
    return _one("Broadcast", x, shape=tuple(shape))


def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """Return x so many times along each axis; axes are added in front where there are more numbers than axes, as NumPy has it."""
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    repeats = (1,) * (len(shape) - len(repeats)) + tuple(repeats)
    wide = broadcast(x.reshape(*(n for size in shape for n in (1, size))), [n for pair in zip(repeats, shape, strict=True) for n in pair])
    return wide.reshape(*(count * size for count, size in zip(repeats, shape, strict=True)))


def unsqueeze(x: Tensor, axes: int | Sequence[int]) -> Tensor:
    """Return x with axes of one element, by their places in the result."""
    axes = (axes,) if isinstance(axes, int) else axes
    places = normalise_axes(axes, x.ndim + len(axes), "unsqueeze")
    rest = iter(x.shape)
    return x.reshape(*(1 if i in places else next(rest) for i in range(x.ndim + len(axes))))


def squeeze(x: Tensor, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return x without axes of one element, by default all of them; raises ValueError for one that has more."""
    ones = [i for i, n in enumerate(x.shape) if n == 1] if axes is None else normalise_axes(axes, x.ndim, "squeeze")
    if wrong := [i for i in ones if x.shape[i] != 1]:
        raise ValueError(f"squeeze: axis {wrong[0]} of shape {x.shape} has more than one element")
    return x.reshape(*(n for i, n in enumerate(x.shape) if i not in ones))


def flatten(x: Tensor, start: int = 0, stop: int = -1) -> Tensor:
    """Return x with its axes from start to stop, that one too, as one; a scalar has one element."""
    if x.ndim == 0:
        return x.reshape(1)
    start, stop = start % x.ndim, stop % x.ndim
    return x.reshape(*x.shape[:start], math.prod(x.shape[start : stop + 1]), *x.shape[stop + 1 :])


def move_axis(x: Tensor, source: int, target: int) -> Tensor:
    """Return x with one axis in another place, x itself where it is there."""
    source, target = source % x.ndim, target % x.ndim
    order = [i for i in range(x.ndim) if i != source]
    order.insert(target, source)
    return x if source == target else x.permute(*order)


def gather(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Return slices of x along an axis, one per index, in the place of that axis; raises IndexError for an index that has none."""
    (axis,) = normalise_axes(axis, x.ndim, "gather")
    front = move_axis(x, axis, 0)
    rest = front.shape[1:]
    rows = embedding(front.reshape(front.shape[0], math.prod(rest)), indices.reshape(indices.type.num_elems))
    made = rows.reshape(*indices.shape, *rest)
    order = [*range(indices.ndim, indices.ndim + axis), *range(indices.ndim), *range(indices.ndim + axis, made.ndim)]
    return made if axis == 0 else made.permute(*order)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """Return the product of matrices, or of batches of them, which broadcast; a vector is a row on the left and a column on the right."""
    left, right = (x.reshape(1, *x.shape) if x.ndim == 1 else x), (y.reshape(*y.shape, 1) if y.ndim == 1 else y)
    made = left @ right
    gone = [made.ndim - 2] * (x.ndim == 1) + [made.ndim - 1] * (y.ndim == 1)
    return squeeze(made, gone) if gone else made


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, act: str = "none") -> Tensor:
    """Return ``act(x weight' + bias)``: x [..., K], weight [N, K], bias [N]."""
    return apply_filled(fill_choice("Linear", "act", act), (x, weight, bias))[0]


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Return softmax over an axis."""
    return move_axis(_one("Softmax", move_axis(x, axis, -1)), -1, axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Return the logarithm of softmax over an axis."""
    return move_axis(_one("LogSoftmax", move_axis(x, axis, -1)), -1, axis)


def log_sum_exp(x: Tensor, axes: int | Sequence[int] | None = None, *, keep: bool = False) -> Tensor:
    """Return the logarithm of the sum of exponentials over axes; no exponential overflows."""
    chosen = normalise_axes(axes, x.ndim, "log_sum_exp")
    # What is taken off cancels, and its gradient is left out; an infinite one would make NaN of what it is taken from.
    peak = x.detach().max(chosen, keep=True)
    peak = where(abs(peak) < math.inf, peak, 0.0)
    made = log(exp(x - peak).sum(chosen, keep=True)) + peak
    return made if keep else squeeze(made, chosen)


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return x with mean 0 and variance 1 over the last axis, times weight, plus bias."""
    return apply("LayerNorm", (x, weight, bias), eps=eps)[0]


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Return x over its root mean square over the last axis, times weight."""
    return apply("RMSNorm", (x, weight), eps=eps)[0]


def batch_norm(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return x [N, C, ...] less the mean over the deviation of its channel, times weight, plus bias: statistics that were found before."""
    shape = (-1, *[1] * (x.ndim - 2))
    scale = rsqrt(variance + eps) if weight is None else rsqrt(variance + eps) * weight
    made = (x - mean.reshape(*shape)) * scale.reshape(*shape)
    return made if bias is None else made + bias.reshape(*shape)


def group_norm(x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return x [N, C, ...] with mean 0 and variance 1 over each group of channels, times weight, plus bias, which are per channel."""
    made = layer_norm(x.reshape(x.shape[0], groups, -1), eps=eps).reshape(*x.shape)
    shape = (-1, *[1] * (x.ndim - 2))
    made = made if weight is None else made * weight.reshape(*shape)
    return made if bias is None else made + bias.reshape(*shape)


def embedding(table: Tensor, indices: Tensor) -> Tensor:
    """Return rows of a table [rows, columns] by index; an index that has no row raises IndexError on the host, and ends a launch."""
    return _one("Embedding", table, indices)


def dropout(x: Tensor, p: float = 0.5, *, training: bool = True, generator: Generator | None = None) -> Tensor:
    """Return x with elements set to zero with probability p, and the others over 1 - p; x itself where not training."""
    if not training or p == 0.0:
        return x
    counter, skip = (generator or find_generator()).draw(x)
    return _one("Dropout", x, counter, p=p, skip=skip)


def cross_entropy(
    logits: Tensor, labels: Tensor, *, reduction: str = "mean", ignore_index: int = -100, label_smoothing: float = 0.0
) -> Tensor:
    """Return the cross-entropy of logits [rows, classes] and class indices [rows], over the rows whose label is not ignored."""
    return apply("CrossEntropy", (logits, labels), reduction=reduction, ignore_index=ignore_index, label_smoothing=label_smoothing)[0]


def mse_loss(x: Tensor, target: Tensor) -> Tensor:
    """Return the mean of squared differences."""
    return square(x - target).mean()


def bce_with_logits(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean binary cross-entropy of logits and targets in [0, 1]: max(z, 0) - z t + log(1 + e^-|z|)."""
    return (maximum(logits, 0.0) - logits * target + log(exp(-abs(logits)) + 1.0)).mean()
