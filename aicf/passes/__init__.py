"""Passes from a recorded graph to one that can be planned: a table in order, each pass checked and logged."""

from aicf.passes.table import DIFFERENTIATE, FUSE_CHAINS, PASSES, Context, LogEntry, Pass, run_passes

__all__ = ["DIFFERENTIATE", "FUSE_CHAINS", "PASSES", "Context", "LogEntry", "Pass", "run_passes"]
