"""Passes from a recorded graph to one that can be planned: a table in order, each pass checked and logged."""

from aicf.passes.table import FUSE_CHAINS, PASSES, Context, LogEntry, Pass, run_passes

__all__ = ["FUSE_CHAINS", "PASSES", "Context", "LogEntry", "Pass", "run_passes"]
