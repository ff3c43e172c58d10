"""The examples that people run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from aicf.data import DataLoader

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
pytest.importorskip("sklearn", reason="scikit-learn is not installed here: pip install scikit-learn")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_digits_train_to_the_same_bits_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("mlp_digits")
    monkeypatch.setattr(module, "EPOCHS", 1)
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(320, 64)).astype(np.float32), rng.integers(0, 10, size=320)
    eager, compiled = (train(DataLoader((x, y), batch=64, seed=1)) for train in (module.train_eagerly, module.train_compiled))
    for (path, p), (_, q) in zip(eager.named_parameters(), compiled.named_parameters(), strict=True):
        assert np.array_equal(p.numpy(), q.numpy()), path


@pytest.mark.slow
def test_digits_are_learned(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["mlp_digits.py"])
    load("mlp_digits").main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "the weights are the same, bit for bit"
    for line in lines[:2]:
        assert float(line.split("accuracy")[1].split()[0]) > 0.97


def test_an_onnx_model_runs_as_the_reference_does(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx_ir", reason="onnx-ir is not installed here: pip install 'aicf[onnx]'")
    monkeypatch.setattr("sys.argv", ["onnx_infer.py"])
    load("onnx_infer").main()
    network, *_, line = capsys.readouterr().out.splitlines()
    assert network == "Imported(digits.onnx"
    assert line.startswith("probability (64, 10): at most ")
    assert float(line.split("at most ")[1].split()[0]) < 1e-6


def test_a_network_of_pytorch_goes_on_training_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed here: pip install torch")
    monkeypatch.setattr("sys.argv", ["torch_import.py"])
    module = load("torch_import")
    monkeypatch.setattr(module, "EPOCHS", 1)
    module.main()
    *_, apart, accuracy = capsys.readouterr().out.splitlines()
    # 21 steps of fp32; Adam's slope is steep where a moment is small.
    assert float(apart.split(": ")[1].split()[0]) < 1e-3
    assert float(accuracy.split(": ")[1]) > 0.8
