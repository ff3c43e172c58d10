"""Where graphs come from: modules of this package, by recording the ops that they call."""

from aicf.frontends.recording import Recorder, Recording, record

__all__ = ["Recorder", "Recording", "record"]
