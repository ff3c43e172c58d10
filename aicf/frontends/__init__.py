"""Where graphs come from: modules of this package, by recording the ops that they call; and networks of ONNX, PyTorch and TensorFlow.

Readers of foreign networks are imported when they are first used: compiling a model of this package needs none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from aicf.frontends.recording import Recorder, Recording, record

if TYPE_CHECKING:
    from aicf.frontends.from_onnx import onnx
    from aicf.frontends.from_tensorflow import tensorflow
    from aicf.frontends.from_torch import torch
    from aicf.frontends.imported import Imported
    from aicf.frontends.to_onnx import export_onnx

_PLACES = {
    "Imported": "aicf.frontends.imported",
    "export_onnx": "aicf.frontends.to_onnx",
    "onnx": "aicf.frontends.from_onnx",
    "tensorflow": "aicf.frontends.from_tensorflow",
    "torch": "aicf.frontends.from_torch",
}

__all__ = ["Imported", "Recorder", "Recording", "export_onnx", "onnx", "record", "tensorflow", "torch"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
        return found
    raise AttributeError(f"module 'aicf.frontends' has no attribute {name!r}")
