"""Every operator of PyTorch's table, called as ``torch.fx``, ``torch.jit`` and ``torch.export`` write it, against PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")

from aicf import Tensor, frontends  # noqa: E402
from aicf.frontends.torch_rules import RULES  # noqa: E402

TF = torch.nn.functional
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
LAYERS = (
    *("silu", "mish", "hardsigmoid", "hardswish", "relu6", "selu", "softsign", "logsigmoid", "gelu"),
    *("elu", "celu", "leaky_relu", "hardtanh", "softplus"),
)
PAIRS = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
CASES: dict[str, Callable[..., Any]] = {
    **{
        name: lambda x, y, name=name: getattr(x, name)()
        for name in ("square", "neg", "t", "float", "double", "half", "bfloat16", "contiguous")
    },
    **{
        name: lambda x, y, name=name: getattr(torch, name)(x)
        for name in ["abs", "cos", "erf", "exp", "expm1", "reciprocal", "sigmoid", "sign", "sin", "tanh", "relu"]
    },
    **{name: lambda x, y, name=name: getattr(torch, name)(x.abs() + 0.5) for name in ["log", "log1p", "sqrt", "rsqrt"]},
    **{name: lambda x, y, name=name: getattr(TF, name)(x) for name in LAYERS},
    **{name: lambda x, y, name=name: getattr(torch, name)(x, y) for name in PAIRS},
    "alpha": lambda x, y: torch.add(x, y, alpha=2) - torch.rsub(x, y, alpha=3),
    "numbers": lambda x, y: 2 / (1.5 - x * 3 + 1).abs().add(1) - (-x) ** 2,
    "integers": lambda x, y: (x > 0).long() * 2 + (y > 0) + 1.5 * (x > y).to(torch.int32),
    "quotient": lambda x, y: (x > 0).long() / 2 + (x > 0).long() / ((y > 0).long() + 1),
    "pow": lambda x, y: x.abs().pow(1.7) + x.pow(3) + x**2 + (x.abs() + 1) ** -0.5 + (x.abs() + 0.1).pow(y),
    "logic": lambda x, y: torch.logical_or(~(x > 0) & (y > 0), torch.logical_not(x > 1)),
    "where": lambda x, y: torch.where(x > y, x, 0.0) + x.masked_fill(y > 0, 2.0),
    "clamp": lambda x, y: x.clamp(min=0.1) + x.clamp(-0.5, 0.5) + torch.clamp(x, max=0.2),
    "softplus with a threshold": lambda x, y: TF.softplus(x * 30, beta=2.0, threshold=5.0),
    "prelu": lambda x, y: TF.prelu(x, y[0, :1].abs()),
    "promotion": lambda x, y: x.half() * y.bfloat16() + y.double() + (x > 0),
    "a number as a tensor": lambda x, y: x * y.double().sum() + (x > 0) * y.sum() + x * (y > 0).sum(),
    "max": lambda x, y: x.max() + torch.max(x, y) + y.min() - torch.min(x, y),
    "views": lambda x, y: x.view(2, 6).reshape(-1).view_as(y).unsqueeze(1).squeeze(1).expand(2, 3, 4).flatten(1).unflatten(1, (3, 4)),
    "axes": lambda x, y: x.transpose(0, 1).permute(1, 0).unsqueeze(-1).expand_as(y.unsqueeze(-1)).squeeze(),
    "repeat": lambda x, y: x.repeat(2, 1, 3) + torch.tile(y, (3,)),
    "cat": lambda x, y: torch.cat([x, y], dim=-1) + torch.stack([x, y], dim=1).reshape(3, 8),
    "split": lambda x, y: torch.cat([x.split(3, dim=1)[1], y.chunk(2, dim=1)[0], y.split([1, 3], dim=1)[1]], dim=1),
    "unbind": lambda x, y: x.unbind(1)[2] + x.select(0, 1)[1] + x.narrow(1, 1, 2).sum(),
    "index": lambda x, y: x[1:, None, ..., 2] + x[0, -1] + x[:, 1:3].sum(),
    "index_select": lambda x, y: x.index_select(1, torch.tensor([2, 0, 2])),
    "pad": lambda x, y: TF.pad(x, (1, 2, 0, 1)) + TF.pad(x, (1, 2, 0, 1), value=0.5) + TF.pad(TF.pad(y, (-1, 2)), (1, 1, 1, 0)),
    "like": lambda x, y: x.clone() + torch.zeros_like(x) + torch.ones_like(y) * 3,
    "size": lambda x, y: x.reshape(x.size(0), x.size()[1] // 2, -1) * x.numel() / x.dim() + x.shape[1],
    "linear": lambda x, y: TF.linear(x, y) + TF.linear(x, y, y[:, 0]),
    "matmul": lambda x, y: torch.matmul(x, y.t()) + x.mm(y.T) + torch.addmm(y[0, :3], x, y.t(), beta=2, alpha=0.5) + (x @ y[0]),
    "bmm": lambda x, y: torch.bmm(x.unsqueeze(0), y.mT.unsqueeze(0)),
    "softmax": lambda x, y: torch.softmax(x, 0) + TF.softmax(y, dim=-1) + TF.log_softmax(x, dim=1) + x.log_softmax(0),
    "sum": lambda x, y: x.sum() + x.sum(0) + x.sum(dim=(0, 1), keepdim=True) + (y > 0).sum(),
    "mean": lambda x, y: x.mean() + x.mean(dim=-1, keepdim=True) + x.amax(1, keepdim=True) + y.amin(dim=(0, 1)) + x.logsumexp(1)[:, None],
    "argmax": lambda x, y: x.argmax(1) + x.argmax() + y.argmax(dim=0, keepdim=True)[0, :3],
    "var": lambda x, y: x.var(dim=1, correction=0) + x.std(dim=1),
    "layer_norm": lambda x, y: TF.layer_norm(x, (4,)) + TF.layer_norm(x, (3, 4), y, x, 1e-3) + TF.layer_norm(x, (4,), None, y[0]),
    "rms_norm": lambda x, y: TF.rms_norm(x, (4,), y[0]) + TF.rms_norm(x, (3, 4)),
    "group_norm": lambda x, y: TF.group_norm(x.unsqueeze(-1), 2, y[0], y[1]),
    "batch_norm": lambda x, y: TF.batch_norm(x, y[0].detach(), y[1].detach().abs(), y[2], None, False, 0.1, 1e-3),
    "embedding": lambda x, y: TF.embedding((x > 0).long(), y),
    "attention": lambda x, y: TF.scaled_dot_product_attention(x[None], y[None], x[None], attn_mask=(y[:, :3] > 0) | (x[:, :3] > -9)),
    "mse_loss": lambda x, y: TF.mse_loss(x, y),
    "cross_entropy": lambda x, y: TF.cross_entropy(x, y.argmax(1), label_smoothing=0.1) + TF.cross_entropy(x, y.argmax(1), reduction="sum"),
    "cross_entropy of many": lambda x, y: TF.cross_entropy(x.reshape(1, 3, 4), y.reshape(1, 3, 4).argmax(1), ignore_index=2),
    "dropout": lambda x, y: TF.dropout(x, 0.3, training=False),
    "in place": lambda x, y: (x * 2).add_(y).mul_(3.0),
    "type_as": lambda x, y: (x > 0).type_as(y),
}


class Network(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any) -> Any:
        return self.function(x, y)


# What decomposed programs and programs for any batch have: test_torch.py.
ELSEWHERE = {"_softmax", "_log_softmax", "native_layer_norm", "_native_batch_norm_legit_no_training", "sym_size"}
RNG = np.random.default_rng(3)
X, Y = (RNG.normal(size=(3, 4)).astype(np.float32) for _ in range(2))


def find_faults(network: Any, function: Callable[..., Any]) -> list[str]:
    """Return what of a case's value and gradients differs from PyTorch's."""
    theirs, ours = [torch.from_numpy(a.copy()).requires_grad_() for a in (X, Y)], [Tensor(a, requires_grad=True) for a in (X, Y)]
    expected, found = function(*theirs), network(*ours)
    if f"torch.{found.dtype}" != str(expected.dtype) or found.shape != tuple(expected.shape):
        return [f"{found.type} instead of {expected.dtype}{tuple(expected.shape)}"]
    small = found.dtype in ("float16", "bfloat16")
    bound = {"rtol": 1e-2 if small else 2e-5, "atol": 1e-2 if small else 1e-5}
    faults = [] if np.allclose(np.asarray(found.numpy(), np.float64), expected.detach().double().numpy(), **bound) else ["values"]
    if not found.requires_grad:
        return faults  # a step: PyTorch's gradient of it is zero
    if expected.requires_grad:
        weights = torch.linspace(0.5, 1.5, expected.numel()).reshape(expected.shape).to(expected.dtype)
        (expected * weights).sum().backward()
        found.backward(Tensor(np.asarray(weights.double().numpy()), dtype=found.dtype))
        for name, t, mine in zip("xy", theirs, ours, strict=True):
            if t.grad is not None and t.grad.abs().max() > 0 and mine.grad is None:
                faults.append(f"no gradient of {name}")
            elif t.grad is not None and mine.grad is not None and not np.allclose(mine.grad.numpy(), t.grad.numpy(), **bound):
                faults.append(f"gradient of {name}: {mine.grad.numpy()} instead of {t.grad.numpy()}")
    return faults


def test_every_operator_gives_pytorchs_value_and_gradients() -> None:
    examples, faults, used = (torch.from_numpy(X), torch.from_numpy(Y)), {}, set()
    for name, function in CASES.items():
        for kind, make in {"fx": lambda m: m, "trace": lambda m: torch.jit.trace(m, examples, check_trace=False)}.items():
            try:
                network = frontends.torch(make(Network(function)))
                found = find_faults(network, function)
            except Exception as error:  # noqa: BLE001  # all that is wrong is told at once
                found = [f"{type(error).__name__}: {error}"]
            used |= {call.run for call in network._network.calls}
            faults |= {f"{name} by {kind}": found} if found else {}
    assert faults == {}
    assert {name for name, rule in RULES.items() if rule.function not in used} <= ELSEWHERE


def test_an_export_of_every_operator_gives_pytorchs_values() -> None:
    """One program of all cases: an export by itself takes as long as a hundred traces."""
    together = Network(lambda x, y: {name: function(x, y) for name, function in CASES.items()})
    expected = together(torch.from_numpy(X), torch.from_numpy(Y))
    found = frontends.torch(torch.export.export(together, (torch.from_numpy(X), torch.from_numpy(Y))))(Tensor(X), Tensor(Y))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert f"torch.{value.dtype}" == str(expected[name].dtype), name
        bound = 1e-2 if value.dtype in ("float16", "bfloat16") else 2e-5
        values = np.asarray(value.numpy(), np.float64)
        np.testing.assert_allclose(values, expected[name].double().numpy(), rtol=bound, atol=bound, err_msg=name)
