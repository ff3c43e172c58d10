"""Where graphs come from: modules of this package, by recording the ops that they call; and networks of ONNX, PyTorch and TensorFlow."""

from aicf.frontends.from_onnx import onnx
from aicf.frontends.from_tensorflow import tensorflow
from aicf.frontends.from_torch import torch
from aicf.frontends.imported import Imported
from aicf.frontends.recording import Recorder, Recording, record

__all__ = ["Imported", "Recorder", "Recording", "onnx", "record", "tensorflow", "torch"]
