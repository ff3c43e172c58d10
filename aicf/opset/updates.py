"""Optimizer rules that update a parameter from its gradient: in place, with step and learning rate read from memory.

A network that was rewritten can have copied units: its parameter is ``p_scale`` times, and its gradient ``g_scale`` times, what the network
before had. With these two (arrays that broadcast to the parameter, 1 where they are not given) an update is ``p_scale`` times the one that
the network before would have got: the rate, eps and the decay within a gradient are scaled accordingly. Moments are of
the gradient as it is.

With a ``factor`` in memory the gradient is multiplied by it, and where it is not positive, or NaN, the step is left out: what comes out is
what went in. Loss scaling is made of that (:mod:`aicf.optim.scaling`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aicf.opset.chains import MAX_INPUTS, call_chain
from aicf.opset.definition import Arrays, Builder, OpDef, Types, V, same_floats
from aicf.opset.types import Attrs, Type


def _number(attrs: Attrs, name: str) -> float:
    value = attrs[name]
    assert isinstance(value, (int, float))
    return float(value)


def _check(op: str, names: tuple[str, ...], types: Types, scalars: tuple[tuple[str, Type], ...]) -> Type:
    """Return the parameter's type; all tensors of an update have it, the scalars have theirs, and scales broadcast to it."""
    p = types[0]
    assert p is not None
    # A gradient may have come in 16 bits; what it changes is in fp32.
    rest = [(name, t) for name, t in zip(names, types, strict=False) if name != "grad"]
    same_floats(op, [name for name, _ in rest], [t for _, t in rest])
    same_floats(op, ("grad",), types[1:2])
    for name, found in zip(names, types, strict=False):
        if found is not None and found.shape != p.shape:
            raise ValueError(f"{op}: {name}: expected shape {p.shape}, got {found.shape}")
    for (name, wanted), found in zip(scalars, types[len(names) :], strict=False):
        if found != wanted:
            raise TypeError(f"{op}: {name}: expected {wanted}, got {found}")
    *scales, factor = types[len(names) + len(scalars) :]
    if factor is not None and factor != RATE:
        raise TypeError(f"{op}: factor: expected {RATE}, got {factor}")
    for name, found in zip(SCALES, scales, strict=False):
        if found is None:
            continue
        fits = len(found.shape) == len(p.shape) and all(n in (1, m) for n, m in zip(found.shape, p.shape, strict=True))
        if found.dtype != p.dtype or not fits:
            raise ValueError(f"{op}: {name}: expected {p.dtype} that broadcasts to {p.shape}, got {found}")
    return p


def _read_scales(arrays: Arrays) -> tuple[Any, Any]:
    """Return the two scales, 1 for one that is not given."""
    p_scale, g_scale = arrays
    return 1.0 if p_scale is None else p_scale, 1.0 if g_scale is None else g_scale


def _is_skipped(factor: Any) -> bool:
    """Whether a step is left out; without a factor none is."""
    return factor is not None and not bool(np.all(factor > 0.0))


STEP, RATE = Type("int64", ()), Type("float32", ())
SCALES = ("p_scale", "g_scale")
LOSS_SCALE = "loss_scale"  # who owns the state that a scaled loss is multiplied by


def _infer_adam(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return (_check("Adam", ("p", "grad", "m", "v"), types, (("step", STEP), ("lr", RATE))),) * 3


def _adam(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    """Return p, m, v after step ``step`` (from 1 on); with ``decoupled`` decay as AdamW has it, else as part of the gradient."""
    p, grad, m, v, step, lr, *scales, factor = arrays
    if _is_skipped(factor):
        return p, m, v
    grad = grad if factor is None else grad * factor
    p_scale, g_scale = _read_scales(scales or (None, None))
    beta1, beta2, decay = _number(attrs, "beta1"), _number(attrs, "beta2"), _number(attrs, "weight_decay")
    if attrs["decoupled"]:
        p = p * (1.0 - lr * decay)
    else:
        grad = grad + decay * (g_scale / p_scale) * p
    m = beta1 * m + (1.0 - beta1) * grad
    v = beta2 * v + (1.0 - beta2) * grad * grad
    first, second = m / (1.0 - beta1**step), v / (1.0 - beta2**step)
    return p - lr * p_scale * first / (np.sqrt(second) + _number(attrs, "eps") * g_scale), m, v


def _infer_optimizer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    step, lr, done, factor = types[4:]
    if (step is None) == (done is None):
        raise TypeError("optimizer: expected either step or steps_done")
    p = _check("optimizer", ("p", "grad", "m", "v"), (*types[:4], step or done, lr, factor), (("step", STEP), ("lr", RATE)))
    made: tuple[Type, ...] = (p, p, p)
    if attrs.get("with_copy"):
        if p.dtype != RATE.dtype:
            raise TypeError(f"optimizer: p: a copy in the gradient's dtype is made of float32, got {p.dtype}")
        assert types[1] is not None
        made = (*made, Type(types[1].dtype, p.shape))
    return made if done is None else (*made, STEP)


def _optimizer(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    """Return what Adam does, a copy of p that is rounded as p is before, and with ``steps_done`` the steps that were taken."""
    *rest, step, lr, done, factor = arrays
    made = _adam((*rest, step if done is None else done + 1, lr, factor), attrs)
    if attrs.get("with_copy"):
        made = (*made, made[0].astype(np.float32))
    return made if done is None else (*made, done + (not _is_skipped(factor)))


def _find_place(output: int, num_inputs: int, attrs: Attrs) -> int | None:
    """Return which input an output of the optimizer takes the memory of: p, m, v, and behind the copy the number of steps."""
    places = (0, 2, 3, None, 6) if attrs.get("with_copy") else (0, 2, 3, 6)
    return places[output]


def _infer_sgd(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    p = _check("SGD", ("p", "grad", "momentum"), types, (("lr", RATE),))
    return (p,) if types[2] is None else (p, p)


def _sgd(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    p, grad, velocity, lr, *scales, factor = arrays
    if _is_skipped(factor):
        return (p,) if velocity is None else (p, velocity)
    grad = grad if factor is None else grad * factor
    p_scale, g_scale = _read_scales(scales)
    grad = grad + _number(attrs, "weight_decay") * (g_scale / p_scale) * p
    rate = lr * (p_scale / g_scale)
    if velocity is None:
        return (p - rate * grad,)
    momentum = _number(attrs, "momentum")
    velocity = momentum * velocity + grad
    return p - rate * (grad + momentum * velocity if attrs["nesterov"] else velocity), velocity


def _infer_lion(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return (_check("Lion", ("p", "grad", "m"), types, (("lr", RATE),)),) * 2


def _lion(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    p, grad, m, lr, *scales, factor = arrays
    if _is_skipped(factor):
        return p, m
    grad = grad if factor is None else grad * factor
    p_scale, _ = _read_scales(scales)
    beta1, beta2 = _number(attrs, "beta1"), _number(attrs, "beta2")
    direction = np.sign(beta1 * m + (1.0 - beta1) * grad)
    return p - lr * (p_scale * direction + _number(attrs, "weight_decay") * p), beta2 * m + (1.0 - beta2) * grad


def _lower_sgd(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    p, grad, velocity, lr, *scales, factor = inputs
    decay, momentum = _number(attrs, "weight_decay"), _number(attrs, "momentum")
    ratio, inverse = _write_ratio(scales)
    body = f"g = {{grad}} + {decay!r}{inverse} * {{p}}" if decay else "g = {grad}"
    direction = "g"
    results = {"p": ""}
    if velocity is not None:
        direction = f"(g + {momentum!r} * moved)" if attrs["nesterov"] else "moved"
        body += f"; moved = {momentum!r} * {{velocity}} + g"
        results["velocity"] = "moved"
    results["p"] = f"{{p}} - {{lr}}{ratio} * {direction}"
    named = {"p": p, "grad": grad, "velocity": velocity, "lr": lr, **_name_scales(scales)}
    return _call_update(b, body, results, named, factor)


def _lower_lion(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    p, grad, m, lr, p_scale, _, factor = inputs  # a sign does not depend on the gradient's scale
    beta1, beta2, decay = _number(attrs, "beta1"), _number(attrs, "beta2"), _number(attrs, "weight_decay")
    scale = "" if p_scale is None else "{p_scale} * "
    direction = f"{scale}sign({beta1!r} * {{m}} + {1.0 - beta1!r} * g) + {decay!r} * {{p}}"
    results = {"p": f"{{p}} - {{lr}} * ({direction})", "m": f"{beta2!r} * {{m}} + {1.0 - beta2!r} * g"}
    return _call_update(b, "g = {grad}", results, {"p": p, "grad": grad, "m": m, "lr": lr, "p_scale": p_scale}, factor)


def _lower_adam(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    has_scales = any(x is not None for x in inputs[6:8])
    return _lower_scaled_adam(b, inputs, attrs) if has_scales else b.call("optimizer", (*inputs[:6], None, inputs[8]), attrs)


def _lower_scaled_adam(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Write a step with scales as two chains, of the moments and of the parameter: the frozen op takes none."""
    p, grad, m, v, step, lr, *scales, factor = inputs
    beta1, beta2, eps, decay = (_number(attrs, name) for name in ("beta1", "beta2", "eps", "weight_decay"))
    moments: dict[str, V | None] = {"m": m, "v": v, "grad": grad}
    body = "g = {grad}"
    if decay and not attrs["decoupled"]:
        body = f"g = {{grad}} + {decay!r}{_write_ratio(scales)[1]} * {{p}}"
        moments |= {"p": p, **_name_scales(scales)}
    averages = {"m": f"{beta1!r} * {{m}} + {1.0 - beta1!r} * g", "v": f"{beta2!r} * {{v}} + {1.0 - beta2!r} * g * g"}
    made = _call_update(b, body, averages, moments, factor)
    if made is None:
        return None
    named = {"p": p, "m": made[0], "v": made[1], "rate": _correct(b, lr, beta1, step), **_name_scales(scales)}
    root, kept = "sqrt({v})", "{p}"
    if beta2:
        named["second"] = _find_correction(b, beta2, step)
        root = "sqrt({v} / {second})"
    if decay and attrs["decoupled"]:
        named["keep"] = b.shift(b.scale(lr, -decay), 1.0)
        kept = "{keep} * {p}"
    floor = repr(eps) if scales[1] is None else f"{eps!r} * {{g_scale}}"
    rate = "{rate}" if scales[0] is None else "{rate} * {p_scale}"
    if scales[0] is not None and sum(x is not None for x in (*named.values(), factor)) > MAX_INPUTS:
        # The product that the chain would begin with, by a launch of its own.
        named["rate"], rate = b.mul(named["rate"], named.pop("p_scale")), "{rate}"
    new = _call_update(b, "", {"p": f"{kept} - {rate} * {{m}} / ({root} + {floor})"}, named, factor)
    return None if new is None else (*new, *made)


def _find_correction(b: Builder, beta: float, step: V) -> V:
    """Return ``1 - beta^step`` without the digits that the difference would lose."""
    return b.neg(b.each("expm1", b.scale(b.cast(step, "float32"), math.log(beta))))


def _correct(b: Builder, lr: V, beta: float, step: V) -> V:
    return b.div(lr, _find_correction(b, beta, step)) if beta else lr


def _name_scales(scales: Sequence[V | None]) -> dict[str, V | None]:
    return dict(zip(SCALES, scales, strict=True))


def _write_ratio(scales: Sequence[V | None]) -> tuple[str, str]:
    """Return factors ``p_scale / g_scale`` and ``g_scale / p_scale`` as text, of those that are there."""
    p_scale, g_scale = scales
    over, under = (("" if x is None else f"{{{name}}}") for x, name in ((p_scale, "p_scale"), (g_scale, "g_scale")))
    times = [f" * {x}" if x else "" for x in (over, under)]
    per = [f" / {x}" if x else "" for x in (over, under)]
    return times[0] + per[1], times[1] + per[0]


def _call_update(b: Builder, body: str, results: Mapping[str, str], named: Mapping[str, V | None], factor: V | None) -> Sequence[V] | None:
    """Append a chain written with operands by name, the first of which has the results' type; ``results`` says what each becomes.

    With a factor the gradient is multiplied by it, and all stays as it is where it is not positive.
    """
    there = {name: x for name, x in (*named.items(), ("factor", factor)) if x is not None}
    if factor is not None:
        body = body.replace("{grad}", "({grad} * {factor})")
        results = {name: f"where({{factor}} > 0.0, {new}, {{{name}}})" for name, new in results.items()}
    lines = [body] if body else []
    lines += [f"y{i} = {new}" for i, new in enumerate(results.values())]
    text = "; ".join(lines).format(**{name: f"x{i}" for i, name in enumerate(there)})
    types = [b.type_of(x) for x in there.values()]
    return call_chain(b, text, list(zip(there.values(), types, strict=True)), types[:1] * len(results))


_ADAM_INPUTS, _ADAM_OUTPUTS = ("p", "grad", "m", "v", "step", "lr"), ("p_new", "m_new", "v_new")
_OPTIONS = (*(f"{name}?" for name in SCALES), "factor?")
_ADAM: Attrs = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "decoupled": True}
_ADAM_IN_PLACE = {"p_new": "p", "m_new": "m", "v_new": "v"}

OPS = (
    OpDef(
        "Adam",
        (*_ADAM_INPUTS, *_OPTIONS),
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
        ("p", "grad", "m", "v", "step?", "lr", "steps_done?", "factor?"),
        (*_ADAM_OUTPUTS, "copy", "steps_new"),
        _infer_optimizer,
        _optimizer,
        {**_ADAM, "with_copy": False},
        is_frozen=True,
        takes=_find_place,
    ),
    OpDef(
        "SGD",
        ("p", "grad", "momentum?", "lr", *_OPTIONS),
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
        ("p", "grad", "m", "lr", *_OPTIONS),
        ("p_new", "m_new"),
        _infer_lion,
        _lion,
        {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0},
        amp="never",
        in_place={"p_new": "p", "m_new": "m"},
        lower=_lower_lion,
    ),
)
