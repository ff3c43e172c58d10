"""SavedModels: what is asked of tf2onnx, what becomes of its answer, and what is said where it is not installed.

Converters of a few lines stand in for tf2onnx, which needs TensorFlow.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed here: pip install 'aicf[onnx]'")

from aicf import Tensor, frontends  # noqa: E402
from aicf.errors import UnsupportedError  # noqa: E402
from tests.aicf.frontends.onnx_models import draw, make_mlp  # noqa: E402

CONVERTER = """
import shutil, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert given.keys() == {"--saved-model", "--output", "--opset"}, given
if given["--saved-model"].endswith("strange"):
    sys.exit("no conversion of RaggedGather")
shutil.copy(given["--saved-model"] + "/answer.onnx", given["--output"])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, files in {"tf2onnx": {"convert.py": CONVERTER}, "tensorflow": {}}.items():
        (tmp_path / name).mkdir()
        for file, text in {"__init__.py": "", **files}.items():
            (tmp_path / name / file).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = tmp_path / "classifier"
    made.mkdir()
    (made / "saved_model.pb").write_bytes(b"")
    return made


def test_a_saved_model_becomes_a_module(folder: Path) -> None:
    model, x = make_mlp(), draw(3, 16)
    onnx.save(model, folder / "answer.onnx")
    np.testing.assert_array_equal(frontends.tensorflow(folder)(Tensor(x)).numpy(), frontends.onnx(model)(Tensor(x)).numpy())


def test_what_the_converter_says_is_passed_on(folder: Path) -> None:
    strange = folder.rename(folder.with_name("strange"))
    with pytest.raises(UnsupportedError, match="strange: tf2onnx cannot convert it:\nno conversion of RaggedGather"):
        frontends.tensorflow(strange)
    with pytest.raises(FileNotFoundError, match=r"holds no saved_model\.pb"):
        frontends.tensorflow(strange.parent)


def test_without_the_converter_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs tf2onnx and TensorFlow: pip install tf2onnx"):
        frontends.tensorflow(tmp_path)
