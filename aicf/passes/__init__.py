"""Passes from a recorded graph to one that a plan is made of: a table in order, each checked and logged."""

from aicf.passes.table import PASSES, Context, LogEntry, Pass, run_passes

__all__ = ["PASSES", "Context", "LogEntry", "Pass", "run_passes"]
