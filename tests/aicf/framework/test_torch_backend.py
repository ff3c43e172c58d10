"""The backend of PyTorch's kernels: every op as NumPy has it, and the same models, optimizers and gradients on it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.backends import find_backend
from aicf.errors import UnsupportedError
from aicf.opset import find_dtype, find_op
from aicf.opset.elementwise import FUNCTIONS
from tests.aicf.framework.calls import CALLS, Call

torch = pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")

from aicf.backends import torch_rules  # noqa: E402

SERVED = [call for call in CALLS if call.op in torch_rules.RULES]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("call", SERVED, ids=str)
def test_an_op_is_what_numpy_says(call: Call, dtype: str) -> None:
    reference, backend, op = find_backend("numpy"), find_backend("torch"), find_op(call.op)
    attrs = op.fill(call.attrs)
    inputs = [None if x is None else np.asarray(x, dtype if np.asarray(x).dtype == np.float64 else None) for x in call.inputs]
    expected = reference.op_call(call.op, inputs, attrs)
    found = backend.op_call(call.op, [None if x is None else backend.from_host(x) for x in inputs], attrs)
    for x, y in zip(expected, (backend.to_host(array) for array in found), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert np.allclose(y, x, rtol=1e-12, atol=1e-12) if dtype == "float64" else np.allclose(y, x, rtol=1e-5, atol=1e-5)


def test_what_has_no_rule_is_refused_by_name() -> None:
    # Updates have no gradient, and are told by the training below.
    assert {call.op for call in SERVED} == set(torch_rules.RULES) - {"Adam", "SGD", "Lion", "Advance"}
    assert set(torch_rules.FUNCTIONS) == set(FUNCTIONS)
    backend = find_backend("torch")
    for call in CALLS:
        if call.op not in torch_rules.RULES:
            inputs = [None if x is None else backend.from_host(x) for x in call.inputs]
            with pytest.raises(UnsupportedError, match=f"^{call.op}: not supported on the torch backend"):
                backend.op_call(call.op, inputs, find_op(call.op).fill(call.attrs))


class Model(nn.Module):
    """A bit of everything that has parameters, and a mask."""

    def __init__(self) -> None:
        self.table = nn.Embedding(5, 6)
        self.norm, self.root = nn.LayerNorm(6), nn.RMSNorm(6)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.drop(F.gelu(self.root(self.norm(self.table(x))))))


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "plain SGD": lambda p: optim.SGD(p, lr=0.1),
    "Adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.01),
    "AdamW": lambda p: optim.AdamW(p, lr=optim.cosine(0.01, total=6, warmup=2)),
    "Lion": lambda p: optim.Lion(p, lr=0.01, weight_decay=0.1),
}


def train(backend: str, name: str) -> tuple[list[float], dict[str, Any]]:
    aicf.manual_seed(3)
    model = Model().to(backend)
    optimizer = OPTIMIZERS[name](model.parameters())
    x, y = Tensor(np.array([0, 2, 4, 2, 1]), backend=backend), Tensor(np.array([1, 0, 3, -100, 2]), backend=backend)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        optim.clip_grad_norm(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_model_trains_as_on_numpy(name: str) -> None:
    (losses, state), (expected, weights) = train("torch", name), train("numpy", name)
    assert np.allclose(losses, expected, rtol=1e-5, atol=0)
    assert len(set(losses)) == len(losses)
    for path, weight in weights.items():
        assert np.allclose(state[path], weight, rtol=1e-3, atol=1e-4), path


def test_arrays_are_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor([[1.0, 2.0]], backend="torch")
    assert isinstance(x.data, torch.Tensor)
    assert torch.from_dlpack(x).data_ptr() == x.data.data_ptr()
    assert repr(x) == "Tensor([[1., 2.]], dtype=float32)"
    half = np.array([1.5, -2.0], find_dtype("bfloat16"))
    assert Tensor(half, backend="torch").numpy().tobytes() == half.tobytes()
    with aicf.use_backend("torch"):
        assert Tensor(np.float64(2.0)).backend.name == "torch"
    with pytest.raises(TypeError, match="inputs are on torch and numpy"):
        x + Tensor(1.0)


def test_what_it_does_not_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(np.ones((2, 3), np.float32), backend="torch")
    with pytest.raises(UnsupportedError, match="transpose: not supported on the torch backend; use backend numpy or cuda"):
        F.call("transpose", x)
    with pytest.raises(UnsupportedError, match=r"Elementwise\(uint32\[2\], uint32\[2\]\): not supported by PyTorch"):
        F.maximum(*[Tensor(np.ones(2, np.uint32), backend="torch")] * 2)
    with pytest.raises(UnsupportedError, match="backend torch runs no plans, only eager calls; compile with backend= one of: numpy, cuda"):
        aicf.compile(nn.Linear(3, 2).to("torch"), (x,))
    with pytest.raises(ValueError, match="no backend 'tpu'; there are: numpy, cuda, torch"):
        aicf.compile(nn.Linear(3, 2), (x,), backend="tpu")


def test_without_pytorch_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "aicf.backends.torch", raising=False)
    monkeypatch.setattr("aicf.backends._opened", {})
    with pytest.raises(ImportError, match="backend 'torch' needs PyTorch, which is not installed: pip install torch"):
        find_backend("torch")
