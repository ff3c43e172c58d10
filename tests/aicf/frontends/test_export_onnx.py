"""A module that was exported to ONNX computes the same by ONNX's reference, and comes back as a module; so does one that was rewritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, frontends, nn, optim
from aicf import functional as F
from aicf.errors import UnsupportedError
from aicf.rewrite import Run

onnx = pytest.importorskip("onnx")
evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(16, 6)).astype(np.float32), RNG.integers(0, 3, size=16)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def compute(proto: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    return evaluator(proto).run(None, {f"x{i}": a for i, a in enumerate(arrays)})


def test_a_rewritten_network_is_exported_in_its_present_structure(tmp_path: Path) -> None:
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    run = Run(aicf.compile_step(model, loss, optim.Adam(model.parameters(), 1e-2), (Tensor(X), Tensor(Y))))
    run.fit([(X, Y)], 3)
    run.widen("0", 12)
    run.insert_norm("0", "rms")
    run.deepen("1", hidden=4, activation="gelu")
    run.fit([(X, Y)], 3)
    proto = frontends.export_onnx(run.model, (Tensor(X),), tmp_path / "model.onnx")
    names = {i.name: tuple(i.dims) for i in proto.graph.initializer}
    assert names["0.weight"] == (12, 6) and run.model.training
    run.model.eval()
    wanted = run.model(Tensor(X)).numpy()
    np.testing.assert_allclose(compute(proto, X)[0], wanted, rtol=1e-5, atol=1e-6)
    again = frontends.onnx(tmp_path / "model.onnx")
    np.testing.assert_allclose(again(Tensor(X)).numpy(), wanted, rtol=1e-5, atol=1e-6)


class Every(nn.Module):
    """One call of everything that is exported."""

    def __init__(self) -> None:
        self.table, self.up, self.norm, self.rms = nn.Embedding(9, 6), nn.Linear(6, 5, bias=False), nn.LayerNorm(5), nn.RMSNorm(5)

    def forward(self, tokens: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.rms(F.gelu(self.norm(F.silu(self.up(self.table(tokens))))))  # [4, 3, 5]
        h = F.softmax(h.permute(0, 2, 1).reshape(4, 15)) + F.sqrt(F.abs(x[:, 1:16]))
        picked = F.where(h > 0.5, h * h, F.sigmoid(h) - (h @ h.T).sum(1, keep=True))
        return F.log_softmax(picked), F.maximum(picked.sum(0), F.tanh(h.max()))


def test_each_operator_means_what_the_call_did() -> None:
    aicf.manual_seed(1)
    model, tokens = Every(), RNG.integers(0, 9, (4, 3))
    x = RNG.normal(size=(4, 20)).astype(np.float32)
    proto = frontends.export_onnx(model, (Tensor(tokens), Tensor(x)))
    for found, wanted in zip(compute(proto, tokens, x), model(Tensor(tokens), Tensor(x)), strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_what_has_no_operator_is_listed() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.expm1(x) + F.log1p(F.expm1(x))

    with pytest.raises(UnsupportedError, match=r"Odd has calls that are not exported: .*expm1.*expm1.*log1p"):
        frontends.export_onnx(Odd(), (Tensor(X),))
