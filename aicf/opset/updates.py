"""Optimizer rules that update a parameter from its gradient: in place, with step and learning rate read from memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.chains import call_chain
from aicf.opset.definition import Arrays, Builder, OpDef, Types, V, same_floats
from aicf.opset.types import Attrs, Type


def _number(attrs: Attrs, name: str) -> float:
    value = attrs[name]
    assert isinstance(value, (int, float))
    return float(value)


def _check(op: str, names: tuple[str, ...], types: Types, scalars: tuple[tuple[str, Type], ...]) -> Type:
    """Return the parameter's type; all tensors of an update have it, and the scalars have theirs."""
    p = types[0]
    assert p is not None
    # A gradient may have come in 16 bits; what it changes is in fp32.
    rest = [(name, t) for name, t in zip(names, types, strict=False) if name != "grad"]
    same_floats(op, [name for name, _ in rest], [t for _, t in rest])
    same_floats(op, ("grad",), types[1:2])
    for name, found in zip(names, types, strict=False):
        if found is not None and found.shape != p.shape:
            raise ValueError(f"{op}: {name}: expected shape {p.shape}, got {found.shape}")
    for (name, wanted), found in zip(scalars, types[len(names) :], strict=True):
        if found != wanted:
            raise TypeError(f"{op}: {name}: expected {wanted}, got {found}")
    return p


STEP, RATE = Type("int64", ()), Type("float32", ())


def _infer_adam(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return (_check("Adam", ("p", "grad", "m", "v"), types, (("step", STEP), ("lr", RATE))),) * 3


def _adam(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    """Return p, m, v after step ``step`` (from 1 on); with ``decoupled`` decay as AdamW has it, else as part of the gradient."""
    p, grad, m, v, step, lr = arrays
    beta1, beta2, decay = _number(attrs, "beta1"), _number(attrs, "beta2"), _number(attrs, "weight_decay")
    if attrs["decoupled"]:
        p = p * (1.0 - lr * decay)
    else:
        grad = grad + decay * p
    m = beta1 * m + (1.0 - beta1) * grad
    v = beta2 * v + (1.0 - beta2) * grad * grad
    first, second = m / (1.0 - beta1**step), v / (1.0 - beta2**step)
    return p - lr * first / (np.sqrt(second) + _number(attrs, "eps")), m, v


def _infer_optimizer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    step, lr, done = types[4:]
    if (step is None) == (done is None):
        raise TypeError("optimizer: expected either step or steps_done")
    p = _check("optimizer", ("p", "grad", "m", "v"), (*types[:4], step or done, lr), (("step", STEP), ("lr", RATE)))
    return (p, p, p) if done is None else (p, p, p, STEP)


def _optimizer(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    """Return what Adam does, and with ``steps_done`` in place of ``step`` that number with this step."""
    *rest, step, lr, done = arrays
    if done is None:
        return _adam((*rest, step, lr), attrs)
    return *_adam((*rest, done + 1, lr), attrs), done + 1


def _infer_sgd(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    p = _check("SGD", ("p", "grad", "momentum"), types, (("lr", RATE),))
    return (p,) if types[2] is None else (p, p)


def _sgd(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    p, grad, velocity, lr = arrays
    grad = grad + _number(attrs, "weight_decay") * p
    if velocity is None:
        return (p - lr * grad,)
    momentum = _number(attrs, "momentum")
    velocity = momentum * velocity + grad
    return p - lr * (grad + momentum * velocity if attrs["nesterov"] else velocity), velocity


def _infer_lion(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return (_check("Lion", ("p", "grad", "m"), types, (("lr", RATE),)),) * 2


def _lion(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    p, grad, m, lr = arrays
    beta1, beta2 = _number(attrs, "beta1"), _number(attrs, "beta2")
    direction = np.sign(beta1 * m + (1.0 - beta1) * grad)
    return p - lr * (direction + _number(attrs, "weight_decay") * p), beta2 * m + (1.0 - beta2) * grad


def _lower_sgd(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    decay, momentum, has_momentum = _number(attrs, "weight_decay"), _number(attrs, "momentum"), inputs[2] is not None
    lr = f"x{2 + has_momentum}"
    body = f"g = x1 + {decay!r} * x0" if decay else "g = x1"
    if has_momentum:
        direction = f"(g + {momentum!r} * y1)" if attrs["nesterov"] else "y1"
        body += f"; y1 = {momentum!r} * x2 + g; y0 = x0 - {lr} * {direction}"
    else:
        body += f"; y0 = x0 - {lr} * g"
    return _call_update(b, body, inputs, 1 + has_momentum)


def _lower_lion(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    beta1, beta2, decay = _number(attrs, "beta1"), _number(attrs, "beta2"), _number(attrs, "weight_decay")
    direction = f"sign({beta1!r} * x2 + {1.0 - beta1!r} * x1) + {decay!r} * x0"
    return _call_update(b, f"y0 = x0 - x3 * ({direction}); y1 = {beta2!r} * x2 + {1.0 - beta2!r} * x1", inputs, 2)


def _call_update(b: Builder, body: str, inputs: Sequence[V | None], num_results: int) -> Sequence[V] | None:
    there = [(x, b.type_of(x)) for x in inputs if x is not None]
    return call_chain(b, body, there, [there[0][1]] * num_results)


def _lower_adam(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V]:
    return b.call("optimizer", (*inputs, None), attrs)


_ADAM_INPUTS, _ADAM_OUTPUTS = ("p", "grad", "m", "v", "step", "lr"), ("p_new", "m_new", "v_new")
_ADAM: Attrs = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "decoupled": True}
_ADAM_IN_PLACE = {"p_new": "p", "m_new": "m", "v_new": "v"}

OPS = (
    OpDef(
        "Adam",
        _ADAM_INPUTS,
        _ADAM_OUTPUTS,
        _infer_adam,
        _adam,
        _ADAM,
        amp="never",
        in_place=_ADAM_IN_PLACE,
        lower=_lower_adam,
        any_float=("grad",),
    ),
    OpDef(
        "optimizer",
        ("p", "grad", "m", "v", "step?", "lr", "steps_done?"),
        (*_ADAM_OUTPUTS, "steps_new"),
        _infer_optimizer,
        _optimizer,
        _ADAM,
        in_place={**_ADAM_IN_PLACE, "steps_new": "steps_done"},
        is_frozen=True,
    ),
    OpDef(
        "SGD",
        ("p", "grad", "momentum?", "lr"),
        ("p_new", "momentum_new"),
        _infer_sgd,
        _sgd,
        {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
        amp="never",
        in_place={"p_new": "p", "momentum_new": "momentum"},
        lower=_lower_sgd,
    ),
    OpDef(
        "Lion",
        ("p", "grad", "m", "lr"),
        ("p_new", "m_new"),
        _infer_lion,
        _lion,
        {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0},
        amp="never",
        in_place={"p_new": "p", "m_new": "m"},
        lower=_lower_lion,
    ),
)
