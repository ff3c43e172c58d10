"""TensorFlow's SavedModels as modules, through ``tf2onnx``, in a process of its own: TensorFlow does not share one with others well."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from aicf.errors import UnsupportedError
from aicf.frontends.from_onnx import onnx
from aicf.frontends.imported import Imported

_OPSET = 18


def tensorflow(source: Path | str) -> Imported:
    """Return the network of a SavedModel's folder as a module.

    Raises ImportError where ``tf2onnx`` or TensorFlow is not installed, FileNotFoundError where the folder holds no SavedModel, and
    :class:`~aicf.errors.UnsupportedError` with what ``tf2onnx`` says of a model that it cannot convert, or listing what is not served.
    """
    for package in ("tf2onnx", "tensorflow"):
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"frontends.tensorflow needs tf2onnx and TensorFlow: pip install {package}", name=package)
    folder = Path(source)
    if not (folder / "saved_model.pb").is_file():
        raise FileNotFoundError(f"{folder}: holds no saved_model.pb; give the folder that tf.saved_model.save wrote")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{folder.name}.onnx"
        command = [sys.executable, "-m", "tf2onnx.convert", "--saved-model", str(folder), "--output", str(path), "--opset", str(_OPSET)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not path.is_file():
            raise UnsupportedError(f"{folder}: tf2onnx cannot convert it:\n{done.stderr.strip()}")
        return onnx(path)
