"""What each op is in PyTorch's functions: one rule per op, from inputs, attributes and the types of the outputs to the outputs.

Rules compute in the dtype of their inputs, as PyTorch does; statistics, losses and sums of squares of 16-bit values are in float32. The
backend casts an output that is not in the dtype that its type says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as TF

from aicf.errors import UnsupportedError
from aicf.opset import Attrs, Type
from contract.expressions.philox import draw_sequence, find_kept

Rule = Callable[[Sequence[Any], Attrs, Sequence[Type]], Sequence[Any]]
_aten: Any = torch.ops.aten


def _gelu_slope(z: Any, approximate: str) -> Any:
    return _aten.gelu_backward(torch.ones_like(z), z, approximate=approximate)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "exp": torch.exp,
    "log": torch.log,
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "square": torch.square,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "relu_slope": lambda x: torch.where(torch.isnan(x), x, (x > 0).to(x.dtype)),
    "gelu_tanh": lambda z: TF.gelu(z, approximate="tanh"),
    "gelu_tanh_slope": lambda z: _gelu_slope(z, "tanh"),
    "gelu_erf": TF.gelu,
    "gelu_erf_slope": lambda z: _gelu_slope(z, "none"),
    "silu": TF.silu,
    "silu_slope": lambda z: _aten.silu_backward(torch.ones_like(z), z),
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "max": torch.maximum,
    "min": torch.minimum,
    "where": torch.where,
    "eq": torch.eq,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}


def _wide(x: Any) -> Any:
    """Return a floating value in the dtype that sums of it are made in."""
    return x if x.dtype == torch.float64 else x.float()


def _cast(x: Any, dtype: str) -> Any:
    return x.to(getattr(torch, dtype))


# ---- moves


def _slice(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    return [inputs[0][tuple(slice(a, b) for a, b in zip(attrs["starts"], attrs["stops"], strict=True))]]  # type: ignore[arg-type]


def _pad(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    pairs: list[tuple[int, int]] = list(zip(attrs["before"], attrs["after"], strict=True))  # type: ignore[arg-type]
    return [TF.pad(inputs[0], [n for pair in reversed(pairs) for n in pair])]  # PyTorch's begin with the last axis


def _reshape(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    return [inputs[0].reshape(results[0].shape)]


def _broadcast(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    return [inputs[0].broadcast_to(results[0].shape)]


def _full(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    return [torch.full(results[0].shape, attrs["value"], dtype=getattr(torch, results[0].dtype))]


# ---- reductions


def _reduce(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    (x,), keep, given = inputs, bool(attrs["keep"]), attrs["axes"]
    axes: Any = list(range(x.ndim)) if given is None else [given] if isinstance(given, int) else list(given)  # type: ignore[arg-type]
    if attrs["function"] == "argmax":
        return [torch.argmax(x, axes[0], keepdim=keep)]
    if not axes:  # PyTorch would take all
        return [x.clone()]
    function = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}[str(attrs["function"])]
    return [function(x, axes, keepdim=keep)]


def _sum_squares(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    total = sum(_wide(x).square().sum().to(getattr(torch, results[0].dtype)) for x in inputs)
    return [total]


# ---- products


def _linear(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    x, w, bias = inputs
    z = TF.linear(x, w if attrs["w_layout"] == "nk" else w.T, bias)
    y = z if attrs["act"] == "none" else FUNCTIONS[str(attrs["act"])](z)
    return [y, z] if attrs["keep_z"] else [y]


def _linear_grad(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    dy, x, w, z, total = inputs
    wants, made, is_nk = str(attrs["wants"]).split(), {}, attrs["w_layout"] == "nk"
    n, k = w.shape if is_nk else w.shape[::-1]
    if "x" in wants or "bias" in wants:
        dx = dy @ (w if is_nk else w.T)
        made["x"] = dx if attrs["act"] == "none" else dx * FUNCTIONS[f"{attrs['act']}_slope"](z)
        made["bias"] = made["x"].reshape(-1, k).sum(0)
    if "w" in wants:
        left, right = dy.reshape(-1, n), x.reshape(-1, k)
        left, right = (left, right) if is_nk else (right, left)
        made["w"] = left.T @ right if total is None else torch.addmm(total, left.T, right)
    return [made[name] for name in wants]


def _matmul(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    a, b = inputs
    return [torch.matmul(a.mT if attrs["transpose_a"] else a, b.mT if attrs["transpose_b"] else b)]


# ---- softmax and norms


def _softmax_grad(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    dy, y = inputs
    function = _aten._log_softmax_backward_data if attrs["log"] else _aten._softmax_backward_data
    return [function(dy, y, -1, y.dtype)]


def _layer_norm(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> Sequence[Any]:
    x, weight, bias = inputs
    made: Sequence[Any] = torch.native_layer_norm(x, x.shape[-1:], weight, bias, attrs["eps"])
    return made


def _layer_norm_grad(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    dy, x, weight, mean, rstd = inputs
    scale = torch.ones_like(x[(0,) * (x.ndim - 1)]) if weight is None else weight  # without one there are no sums for it
    made = _aten.native_layer_norm_backward(dy.contiguous(), x.contiguous(), x.shape[-1:], mean, rstd, scale, scale, [True] * 3)
    return list(made)


def _rms_norm(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    x, weight = inputs
    rrms = torch.rsqrt(_wide(x).square().mean(-1, keepdim=True) + attrs["eps"])
    y = _wide(x) * rrms
    return [y if weight is None else y * weight, rrms]


def _rms_norm_grad(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    dy, x, weight, rrms = inputs
    h = _wide(x) * rrms
    d = _wide(dy) if weight is None else _wide(dy) * weight
    return [rrms * (d - h * (d * h).mean(-1, keepdim=True)), (dy * h).sum(tuple(range(dy.ndim - 1))) if dy.ndim > 1 else dy * h]


# ---- tables, masks and losses


def _embedding(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    table, indices = inputs
    return [TF.embedding(indices, table)]


def _scatter_add(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    rows, indices = inputs
    made = torch.zeros(results[0].shape, dtype=rows.dtype, device=rows.device)
    return [made.index_put_((indices.long(),), rows, accumulate=True)]  # in a fixed order, on a GPU too


def _dropout(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    """Drop the elements that the other backends drop; the words are drawn on the host."""
    x, counter = inputs
    seed, offset = counter.cpu().numpy()
    p: Any = attrs["p"]
    words = draw_sequence(x.numel(), int(seed), int(offset) + int(attrs["skip"])).reshape(tuple(x.shape))  # type: ignore[arg-type]
    kept = torch.from_numpy(find_kept(words, p)).to(x.device)
    return [torch.where(kept, x / (1.0 - p), torch.zeros((), dtype=x.dtype, device=x.device))]


def _advance(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    words = inputs[0].view(torch.int64).clone()  # sums in 64 bits are the same with and without signs
    words[1] += attrs["by"]
    return [words.view(torch.uint64)]


def _cross_entropy(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    logits, labels = inputs
    smoothing: Any = attrs["label_smoothing"]
    logs, counted = torch.log_softmax(_wide(logits), 1), labels != attrs["ignore_index"]
    weights = counted.to(logs.dtype)
    weights = weights / weights.sum() if attrs["reduction"] == "mean" else weights
    places = torch.where(counted, labels, torch.zeros_like(labels)).long()[:, None]
    target = torch.full_like(logs, smoothing / logs.shape[1])
    target.scatter_add_(1, places, torch.full_like(logs, 1.0 - smoothing)[:, :1])
    zero = torch.zeros((), dtype=logs.dtype, device=logs.device)
    loss = -(torch.where(counted, (target * logs).sum(1), zero) * weights).sum()
    gradient = torch.where(counted[:, None], (logs.exp() - target) * weights[:, None], zero)
    return [loss, gradient, gradient.sum(0)] if attrs["with_dbias"] else [loss, gradient]


# ---- updates


def _refuse_factor(factor: Any) -> None:
    if factor is not None:  # part of compiled steps, and this backend runs none
        raise UnsupportedError("backend torch: updates take no factor of a scaled loss; compile the step for another backend")


def _read_scales(scales: Sequence[Any]) -> tuple[Any, Any]:
    p_scale, g_scale = scales
    return 1.0 if p_scale is None else p_scale, 1.0 if g_scale is None else g_scale


def _adam(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    p, grad, m, v, step, lr, *scales, factor = inputs
    _refuse_factor(factor)
    p_scale, g_scale = _read_scales(scales)
    beta1, beta2, eps, decay = (float(attrs[name]) for name in ("beta1", "beta2", "eps", "weight_decay"))  # type: ignore[arg-type]
    grad = grad.to(p.dtype)
    if attrs["decoupled"]:
        p = p * (1.0 - lr * decay)
    elif decay:
        grad = grad + decay * (g_scale / p_scale) * p
    m = beta1 * m + (1.0 - beta1) * grad
    v = beta2 * v + (1.0 - beta2) * grad * grad
    first, second = (x / (1.0 - beta ** step.double()).to(x.dtype) for x, beta in ((m, beta1), (v, beta2)))
    return [p - lr * p_scale * first / (second.sqrt() + eps * g_scale), m, v]


def _sgd(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    p, grad, velocity, lr, *scales, factor = inputs
    _refuse_factor(factor)
    p_scale, g_scale = _read_scales(scales)
    momentum, decay = float(attrs["momentum"]), float(attrs["weight_decay"])  # type: ignore[arg-type]
    grad = grad.to(p.dtype) + decay * (g_scale / p_scale) * p
    rate = lr * (p_scale / g_scale)
    if velocity is None:
        return [p - rate * grad]
    velocity = momentum * velocity + grad
    return [p - rate * (grad + momentum * velocity if attrs["nesterov"] else velocity), velocity]


def _lion(inputs: Sequence[Any], attrs: Attrs, results: Sequence[Type]) -> list[Any]:
    p, grad, m, lr, *scales, factor = inputs
    _refuse_factor(factor)
    p_scale, _ = _read_scales(scales)
    beta1, beta2, decay = (float(attrs[name]) for name in ("beta1", "beta2", "weight_decay"))  # type: ignore[arg-type]
    grad = grad.to(p.dtype)
    direction = torch.sign(beta1 * m + (1.0 - beta1) * grad)
    return [p - lr * (p_scale * direction + decay * p), beta2 * m + (1.0 - beta2) * grad]


RULES: Mapping[str, Rule] = {
    "Elementwise": lambda inputs, attrs, results: [FUNCTIONS[str(attrs["function"])](*inputs)],
    "Cast": lambda inputs, attrs, results: [_cast(inputs[0], results[0].dtype)],
    "Detach": lambda inputs, attrs, results: [inputs[0]],
    "Copy": lambda inputs, attrs, results: [inputs[0].clone()],
    "Full": _full,
    "Reshape": _reshape,
    "Permute": lambda inputs, attrs, results: [inputs[0].permute(attrs["order"])],
    "Broadcast": _broadcast,
    "Slice": _slice,
    "Pad": _pad,
    "Concat": lambda inputs, attrs, results: [torch.cat(list(inputs), attrs["axis"])],
    "Reduce": _reduce,
    "SumSquares": _sum_squares,
    "Linear": _linear,
    "LinearGrad": _linear_grad,
    "MatMul": _matmul,
    "Softmax": lambda inputs, attrs, results: [torch.softmax(inputs[0], -1)],
    "LogSoftmax": lambda inputs, attrs, results: [torch.log_softmax(inputs[0], -1)],
    "SoftmaxGrad": _softmax_grad,
    "LayerNorm": _layer_norm,
    "LayerNormGrad": _layer_norm_grad,
    "RMSNorm": _rms_norm,
    "RMSNormGrad": _rms_norm_grad,
    "Embedding": _embedding,
    "ScatterAdd": _scatter_add,
    "Dropout": _dropout,
    "Advance": _advance,
    "CrossEntropy": _cross_entropy,
    "Adam": _adam,
    "SGD": _sgd,
    "Lion": _lion,
}
