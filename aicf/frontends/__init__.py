"""Where graphs come from: modules of this package, by recording the ops that they call, and networks of ONNX."""

from aicf.frontends.from_onnx import onnx
from aicf.frontends.imported import Imported
from aicf.frontends.recording import Recorder, Recording, record

__all__ = ["Imported", "Recorder", "Recording", "onnx", "record"]
