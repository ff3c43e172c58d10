"""The examples that people run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from aicf.data import DataLoader

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
# Looked for and not imported: that takes seconds, in each worker.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed here: pip install scikit-learn"
)


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


def test_a_network_that_is_too_small_grows_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "grow.svg"
    run = load("grow_digits").grow(700, picture)
    actions = [decision.action for decision in run.log.decisions]
    assert actions == ["rewrite", "rewrite", "keep"] and run.model[0].out_features == 8
    assert "the log leads to the same decisions again" in capsys.readouterr().out
    drawn = ET.parse(picture)
    texts = [element.text or "" for element in drawn.iter() if element.tag.endswith("text")]
    assert "Widen 0 8, Separate 0" in texts and any(text.startswith("loss") for text in texts)


def test_units_are_removed_until_it_costs_too_much(capsys: pytest.CaptureFixture[str]) -> None:
    module = load("prune_and_rollback")
    rounds = module.prune(units=16, steps=60, rounds=6)
    assert [n for n, _, _ in rounds][:2] == [16, 12] and rounds[-1][2] and not any(is_worse for *_, is_worse in rounds[:-1])
    assert capsys.readouterr().out.rstrip().endswith("bit for bit")


def test_growth_is_compared_over_seeds() -> None:
    lines: list[str] = []
    found = load("growth_over_seeds").compare(1, 60, lines.append)
    assert len(lines) == 4 and all(values.shape == (1, 2) and np.isfinite(values).all() for values in found.values())
    assert not np.array_equal(found["grown, carried"], found["grown, reset"])
