"""Whole programs compiled once: inference, and forward, backward and update of a training step as one plan."""

from aicf.train.program import Program, compile  # noqa: A004
from aicf.train.step import Step, compile_step

__all__ = ["Program", "Step", "compile", "compile_step"]
