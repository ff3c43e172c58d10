"""Products, sums over axes, softmax and norms of ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aicf import functional as F
from aicf.frontends.network import Refusal
from aicf.frontends.onnx_rules.settings import Function, Settings, plain, rule
from aicf.frontends.onnx_rules.shapes import read_axes
from aicf.tensor import Tensor, apply


@rule("Gemm")
def _gemm(node: Settings) -> Function:
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    turns_a, turns_b = bool(node.get("transA", 0)), bool(node.get("transB", 0))
    node.require("broadcast", 0, 1)  # what it allowed is NumPy's rule

    def run(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        x = a.T if turns_a else a
        is_bias = c is None or (beta == 1.0 and c.shape == (b.shape[0],))
        if turns_b and alpha == 1.0 and is_bias:
            return F.linear(x, b, c)
        product = F.linear(x, b) if turns_b else x @ b
        product = product if alpha == 1.0 else product * alpha
        return product if c is None else product + (c if beta == 1.0 else c * beta)

    return run


plain("MatMul", F.matmul)


def _softmax(function: Callable[..., Tensor]) -> Callable[[Settings], Function]:
    def make(node: Settings) -> Function:
        axis = node.get("axis", -1 if node.version >= 13 else 1)

        def run_flat(x: Tensor) -> Tensor:
            split = axis % x.ndim
            return function(x.reshape(math.prod(x.shape[:split]), -1)).reshape(*x.shape)

        return (lambda x: function(x, axis)) if node.version >= 13 else run_flat

    return make


rule("Softmax")(_softmax(F.softmax))
rule("LogSoftmax")(_softmax(F.log_softmax))


# ---- reductions

Reduce = Callable[[Tensor, Any, bool], Tensor]
_REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keep=keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keep=keep),
    "ReduceMax": lambda x, axes, keep: x.max(axes, keep=keep),
    "ReduceMin": lambda x, axes, keep: x.min(axes, keep=keep),
    "ReduceL1": lambda x, axes, keep: abs(x).sum(axes, keep=keep),
    "ReduceL2": lambda x, axes, keep: F.sqrt(F.square(x).sum(axes, keep=keep)),
    "ReduceSumSquare": lambda x, axes, keep: F.square(x).sum(axes, keep=keep),
    "ReduceLogSum": lambda x, axes, keep: F.log(x.sum(axes, keep=keep)),
    "ReduceLogSumExp": lambda x, axes, keep: F.log_sum_exp(x, axes, keep=keep),
}
# What each of them does to an element alone: without axes, where a node asks for that, nothing is reduced.
_ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    "ReduceL1": F.abs,
    "ReduceL2": F.abs,
    "ReduceSumSquare": F.square,
    "ReduceLogSum": F.log,
}


def _reduction(name: str) -> Callable[[Settings], Function]:
    def make(node: Settings) -> Function:
        keep, leaves = bool(node.get("keepdims", 1)), bool(node.get("noop_with_empty_axes", 0))

        def run(x: Tensor, given: Any = None) -> Tensor:
            axes = read_axes(node, given) or None
            if axes is None and leaves:
                return _ALONE[name](x) if name in _ALONE else x
            return _REDUCTIONS[name](x, axes, keep)

        return run

    return make


for _name in _REDUCTIONS:
    rule(_name, hosts=(1,))(_reduction(_name))


def _index_of(sign: float) -> Callable[[Settings], Function]:
    def make(node: Settings) -> Function:
        node.require("select_last_index", 0)
        axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
        return lambda x: (x if sign > 0 else -x).argmax(axis, keep=keep)

    return make


rule("ArgMax")(_index_of(1.0))
rule("ArgMin")(_index_of(-1.0))


@rule("GlobalAveragePool")
def _global_average(node: Settings) -> Function:
    return lambda x: x.mean(tuple(range(2, x.ndim)), keep=True)


@rule("GlobalMaxPool")
def _global_max(node: Settings) -> Function:
    return lambda x: x.max(tuple(range(2, x.ndim)), keep=True)


# ---- norms


@rule("LayerNormalization")
def _layer_norm(node: Settings) -> Function:
    axis, eps = node.get("axis", -1), node.get("epsilon", 1e-5)
    node.require("stash_type", 1)

    def run(x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
        split = axis % x.ndim
        shape = x.shape[split:]
        weight, shift = (None if t is None else F.broadcast(t, shape).reshape(-1) for t in (scale, bias))
        y, mean, rstd = apply("LayerNorm", (x.reshape(-1, math.prod(shape)), weight, shift), eps=eps)
        kept = (*x.shape[:split], *[1] * len(shape))
        made = y.reshape(*x.shape), mean.reshape(*kept), rstd.reshape(*kept)
        return made if len(node.reads) > 1 else made[0]

    return run


@rule("RMSNormalization")
def _rms_norm(node: Settings) -> Function:
    axis, eps = node.get("axis", -1), node.get("epsilon", 1e-5)
    node.require("stash_type", 1)

    def run(x: Tensor, scale: Tensor) -> Tensor:
        shape = x.shape[axis % x.ndim :]
        weight = F.broadcast(scale, shape).reshape(-1)
        return F.rms_norm(x.reshape(-1, math.prod(shape)), weight, eps).reshape(*x.shape)

    return run


@rule("BatchNormalization")
def _batch_norm(node: Settings) -> Function:
    eps = node.get("epsilon", 1e-5)
    node.require("training_mode", 0)
    node.require("spatial", 1)
    node.require("is_test", 1)
    node.refuse_outputs(1)
    return lambda x, scale, bias, mean, variance: F.batch_norm(x, mean, variance, scale, bias, eps)


@rule("InstanceNormalization")
def _instance_norm(node: Settings) -> Function:
    eps = node.get("epsilon", 1e-5)
    return lambda x, scale, bias: F.group_norm(x, x.shape[1], scale, bias, eps)


@rule("GroupNormalization")
def _group_norm(node: Settings) -> Function:
    groups, eps = node.attrs["num_groups"], node.get("epsilon", 1e-5)
    node.require("stash_type", 1)
    if node.version < 21:
        raise Refusal(f"version {node.version} has one scale per group; versions from 21 on are supported")
    return lambda x, scale, bias: F.group_norm(x, groups, scale, bias, eps)


@rule("MeanVarianceNormalization")
def _mean_variance(node: Settings) -> Function:
    axes = tuple(node.get("axes", (0, 2, 3)))

    def run(x: Tensor) -> Tensor:
        centred = x - x.mean(axes, keep=True)
        return centred / (F.sqrt(F.square(centred).mean(axes, keep=True)) + 1e-9)

    return run


# ---- losses


@rule("SoftmaxCrossEntropyLoss")
def _cross_entropy(node: Settings) -> Function:
    reduction, ignored = node.get("reduction", "mean"), node.get("ignore_index", -100)
    node.require("reduction", "mean", "sum")
    if node.num_inputs > 2:
        raise Refusal("class weights are not supported")

    def run(scores: Tensor, labels: Tensor) -> Any:
        rows = F.move_axis(scores, 1, -1)
        logits = rows.reshape(-1, rows.shape[-1])
        loss = F.cross_entropy(logits, F.flatten(labels), reduction=reduction, ignore_index=ignored).cast(scores.dtype)
        return (loss, F.log_softmax(scores, 1)) if len(node.reads) > 1 else loss

    return run
