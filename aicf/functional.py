"""Ops as functions of tensors: ``F.linear``, ``F.softmax``, ``F.cross_entropy`` and so on. No module and no state."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.opset import Attr
from aicf.random import Generator, find_generator
from aicf.tensor import Scalar, Tensor, apply, make_scalar


def _one(op: str, *inputs: Tensor | None, **attrs: Attr) -> Tensor:
    (output,) = apply(op, inputs, **attrs)
    return output


def _each(function: str, x: Tensor) -> Tensor:
    return _one("Elementwise", x, function=function)


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


def maximum(x: Tensor, y: Tensor | Scalar) -> Tensor:
    """Return the greater of each pair; a tie shares the gradient."""
    return x._binary("max", y)


def minimum(x: Tensor, y: Tensor | Scalar) -> Tensor:
    """Return the lesser of each pair; a tie shares the gradient."""
    return x._binary("min", y)


def where(condition: Tensor, x: Tensor, y: Tensor | Scalar) -> Tensor:
    """Return x where the condition holds, y elsewhere."""
    return _one("Elementwise", condition, x, x._lift(y), function="where")


def concat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return tensors one behind the other along an axis."""
    return _one("Concat", *tensors, axis=axis)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, act: str = "none") -> Tensor:
    """Return ``act(x weight' + bias)``: x [..., K], weight [N, K], bias [N]."""
    return apply("Linear", (x, weight, bias), act=act)[0]


def softmax(x: Tensor) -> Tensor:
    """Return softmax over the last axis."""
    return _one("Softmax", x)


def log_softmax(x: Tensor) -> Tensor:
    """Return the logarithm of softmax over the last axis."""
    return _one("LogSoftmax", x)


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return x with mean 0 and variance 1 over the last axis, times weight, plus bias."""
    return apply("LayerNorm", (x, weight, bias), eps=eps)[0]


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Return x over its root mean square over the last axis, times weight."""
    return apply("RMSNorm", (x, weight), eps=eps)[0]


def embedding(table: Tensor, indices: Tensor) -> Tensor:
    """Return rows of a table [rows, columns] by index; raises IndexError for an index that has no row."""
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
