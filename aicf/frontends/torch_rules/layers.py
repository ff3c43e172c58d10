"""Products, sums over axes, softmax, norms, embeddings and losses of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from aicf import functional as F
from aicf.frontends.network import Refusal
from aicf.frontends.torch_rules.elementwise import promote, to_float
from aicf.frontends.torch_rules.table import rule
from aicf.tensor import Tensor, apply


@rule("linear")
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    return F.linear(input, weight, bias)


@rule("matmul", "mm", "bmm", "mv", "dot")
def _matmul(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    return F.matmul(input, other)


@rule("addmm", "baddbmm", "addmv")
def _addmm(input: Tensor, left: Tensor, right: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:  # noqa: A002
    product = F.matmul(left, right)
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


@rule("softmax", "functional.softmax", dtype=(None,))
def _softmax(input: Tensor, dim: int, dtype: Any = None, *, _stacklevel: int = 3) -> Tensor:  # noqa: A002
    return F.softmax(to_float(input), dim)


@rule("log_softmax", "functional.log_softmax", dtype=(None,))
def _log_softmax(input: Tensor, dim: int, dtype: Any = None, *, _stacklevel: int = 3) -> Tensor:  # noqa: A002
    return F.log_softmax(to_float(input), dim)


@rule("_softmax", half_to_float=(False,))
def _softmax_of_aten(input: Tensor, dim: int, half_to_float: bool) -> Tensor:  # noqa: A002
    return F.softmax(input, dim)


@rule("_log_softmax", half_to_float=(False,))
def _log_softmax_of_aten(input: Tensor, dim: int, half_to_float: bool) -> Tensor:  # noqa: A002
    return F.log_softmax(input, dim)


# ---- over axes


def _reduction(function: Callable[[Tensor, Any, bool], Tensor]) -> Callable[..., Tensor]:
    def reduce(input: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:  # noqa: A002
        axes = None if dim is None or dim == [] else dim if isinstance(dim, int) else tuple(dim)
        return function(input, axes, keepdim)

    return reduce


rule("sum", dtype=(None,))(_reduction(lambda x, axes, keep: (x if x.type.is_float else x.cast("int64")).sum(axes, keep=keep)))
rule("mean", dtype=(None,))(_reduction(lambda x, axes, keep: x.mean(axes, keep=keep)))
rule("amax", dtype=(None,))(_reduction(lambda x, axes, keep: x.max(axes, keep=keep)))
rule("amin", dtype=(None,))(_reduction(lambda x, axes, keep: x._reduce("min", axes, keep)))
rule("logsumexp", dtype=(None,))(_reduction(lambda x, axes, keep: F.log_sum_exp(x, axes, keep=keep)))


@rule("argmax")
def _argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:  # noqa: A002
    return F.flatten(input).argmax(0) if dim is None else input.argmax(dim, keep=keepdim)


@rule("var")
def _var(input: Tensor, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Tensor:  # noqa: A002
    axes = tuple(range(input.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    count = math.prod(input.shape[a] for a in axes)
    centred = input - input.mean(axes, keep=True)
    return F.square(centred).sum(axes, keep=keepdim) * (1.0 / (count - (1 if correction is None else correction)))


@rule("std")
def _std(input: Tensor, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Tensor:  # noqa: A002
    return F.sqrt(_var(input, dim, correction=correction, keepdim=keepdim))


# ---- norms


@rule("layer_norm")
def _layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    if weight is None and bias is not None:
        return _layer_norm(input, normalized_shape, None, None, eps) + bias  # type: ignore[no-any-return]
    rows = input.reshape(-1, math.prod(normalized_shape))
    scale, shift = (None if t is None else F.flatten(t) for t in (weight, bias))
    return F.layer_norm(rows, scale, shift, eps).reshape(*input.shape)


@rule("native_layer_norm")
def _native_layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[Any, ...]:  # noqa: A002
    rows = input.reshape(-1, math.prod(normalized_shape))
    scale, shift = (None if t is None else F.flatten(t) for t in (weight, bias))
    y, *statistics = apply("LayerNorm", (rows, scale, shift), eps=eps)
    kept = (*input.shape[: input.ndim - len(normalized_shape)], *[1] * len(normalized_shape))
    return (y.reshape(*input.shape), *(each.reshape(*kept) for each in statistics))


@rule("rms_norm")
def _rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:  # noqa: A002
    smallest = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}.get(input.dtype, 2.0**-23)
    rows = input.reshape(-1, math.prod(normalized_shape))
    return F.rms_norm(rows, None if weight is None else F.flatten(weight), smallest if eps is None else eps).reshape(*input.shape)


@rule("group_norm")
def _group_norm(
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    return F.group_norm(input, num_groups, weight, bias, eps)


@rule("batch_norm", training=(False,))
def _batch_norm(
    input: Tensor,  # noqa: A002
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    return F.batch_norm(input, running_mean, running_var, weight, bias, eps)


@rule("functional.batch_norm", training=(False,))
def _batch_norm_of_functional(
    input: Tensor,  # noqa: A002
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    return F.batch_norm(input, running_mean, running_var, weight, bias, eps)


@rule("_native_batch_norm_legit_no_training")
def _native_batch_norm(
    input: Tensor,  # noqa: A002
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, None, None]:
    return F.batch_norm(input, running_mean, running_var, weight, bias, eps), None, None


# ---- embeddings, attention, losses


@rule("embedding", padding_idx=(-1,), scale_grad_by_freq=(False,), sparse=(False,))
def _embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    return F.embedding(weight, indices)


@rule("functional.embedding", padding_idx=(None,), max_norm=(None,), scale_grad_by_freq=(False,), sparse=(False,))
def _embedding_of_functional(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    return F.embedding(weight, input)


@rule("scaled_dot_product_attention", dropout_p=(0.0,), is_causal=(False,), enable_gqa=(False,))
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    scores = (query @ key.permute(*range(key.ndim - 2), key.ndim - 1, key.ndim - 2)) * (scale or 1.0 / math.sqrt(query.shape[-1]))
    if attn_mask is not None:
        scores = F.where(attn_mask, scores, -math.inf) if attn_mask.dtype == "bool" else scores + attn_mask
    return F.softmax(scores) @ value


@rule("mse_loss", reduction=("mean", 1))
def _mse_loss(input: Tensor, target: Tensor, reduction: Any = "mean") -> Tensor:  # noqa: A002
    return F.mse_loss(*promote(input, target))


@rule("functional.mse_loss", reduction=("mean",), size_average=(None,), reduce=(None,), weight=(None,))
def _mse_loss_of_functional(
    input: Tensor,  # noqa: A002
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Tensor:
    return F.mse_loss(*promote(input, target))


def _find_classes(input: Tensor, target: Tensor, reduction: Any, ignore_index: int, label_smoothing: float) -> Tensor:  # noqa: A002
    """Return the cross-entropy of logits [N, C, ...], whose classes come second."""
    if target.type.is_float:
        raise Refusal("targets that are probabilities are not supported; use class indices")
    rows = F.move_axis(input, 1, -1) if input.ndim > 1 else F.unsqueeze(input, (0,))
    logits = rows.reshape(-1, rows.shape[-1])
    kind = "mean" if reduction in ("mean", 1) else "sum"
    return F.cross_entropy(logits, F.flatten(target), reduction=kind, ignore_index=ignore_index, label_smoothing=label_smoothing)


@rule("cross_entropy_loss", weight=(None,), reduction=(1, 2))
def _cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    return _find_classes(input, target, reduction, ignore_index, label_smoothing)


@rule("functional.cross_entropy", weight=(None,), size_average=(None,), reduce=(None,), reduction=("mean", "sum"))
def _cross_entropy_of_functional(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    return _find_classes(input, target, reduction, ignore_index, label_smoothing)
