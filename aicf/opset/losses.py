"""Cross-entropy of logits and class indices: the loss and its gradient, computed in one pass over the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import Arrays, Backward, Builder, OpDef, Types, V, same_floats
from aicf.opset.embedding import check_range
from aicf.opset.softmax import log_softmax
from aicf.opset.types import Attrs, Type

REDUCTIONS = ("mean", "sum")


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    logits, labels = types
    assert logits is not None and labels is not None
    same_floats("CrossEntropy", ("logits",), (logits,))
    if len(logits.shape) != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"CrossEntropy: expected logits [rows, classes] and a label per row, got {logits.shape} and {labels.shape}")
    if labels.dtype not in ("int64", "int32"):
        raise TypeError(f"CrossEntropy: labels: expected int64 or int32, got {labels.dtype}")
    if attrs["reduction"] not in REDUCTIONS:
        raise ValueError(f"CrossEntropy: reduction: expected one of {', '.join(REDUCTIONS)}, got {attrs['reduction']!r}")
    loss = Type(logits.dtype if logits.dtype == "float64" else "float32", ())
    return (loss, logits, Type(logits.dtype, logits.shape[1:])) if attrs["with_dbias"] else (loss, logits)


def _weigh_rows(labels: Any, attrs: Attrs) -> Any:
    """Return each row's weight in the loss: 0 where its label is to be ignored."""
    counted = (labels != attrs["ignore_index"]).astype(np.float64)
    return counted / counted.sum() if attrs["reduction"] == "mean" else counted


def _cross_entropy(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    logits, labels = arrays
    weights, smoothing = _weigh_rows(labels, attrs), attrs["label_smoothing"]
    assert isinstance(smoothing, (int, float))
    check_range("CrossEntropy", labels[labels != attrs["ignore_index"]], logits.shape[1])
    target = np.full(logits.shape, smoothing / logits.shape[1])
    there = np.flatnonzero(labels != attrs["ignore_index"])
    target[there, labels[there]] += 1.0 - smoothing
    logs = log_softmax(logits)
    loss = -(np.where(weights > 0, (target * logs).sum(1), 0.0) * weights).sum()
    gradient = np.where(weights[:, None] > 0, (np.exp(logs) - target) * weights[:, None], 0.0)
    return (loss, gradient, gradient.sum(0)) if attrs["with_dbias"] else (loss, gradient)


def _differentiate(g: Backward, dloss: V | None, ddlogits: V | None = None, ddbias: V | None = None) -> tuple[V | None, None]:
    """Weigh the gradient, which is an output of the call; its own derivative is softmax's, weighted by row as the loss is."""
    if ddlogits is not None or ddbias is not None:
        raise NotImplementedError("CrossEntropy: its gradient has no derivative; write the loss with log_softmax for second derivatives")
    if dloss is None:
        return None, None
    return g.mul(g["dlogits"], g.cast(dloss, g.of("logits").dtype)), None


def _lower(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V]:
    return list(b.call("cross_entropy", inputs, attrs))


# ``with_dbias``: the sums of the gradient's columns as well, the gradient of the bias of the layer that makes the logits.
_ATTRIBUTES: Attrs = {"reduction": "mean", "ignore_index": -100, "label_smoothing": 0.0, "with_dbias": False}

OPS = (
    OpDef(
        "CrossEntropy",
        ("logits", "labels"),
        ("loss", "dlogits", "dbias"),
        _infer,
        _cross_entropy,
        _ATTRIBUTES,
        _differentiate,
        lambda attrs, needed: {"dlogits"},
        amp="follow",  # what it adds up is in fp32, whatever the logits are
        needs_range=True,  # its gradient is small, and is made before it is scaled
        lower=_lower,
    ),
    OpDef(
        "cross_entropy",
        ("logits", "labels"),
        ("loss", "dlogits", "dbias"),
        _infer,
        _cross_entropy,
        {**_ATTRIBUTES, "with_gradient": True},
        _differentiate,
        lambda attrs, needed: {"dlogits"},
        is_frozen=True,
    ),
)
