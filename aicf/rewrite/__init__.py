"""Networks that are rewritten while they train: other structures, with parameters and all optimizer state carried over."""

from aicf.errors import RewriteError
from aicf.rewrite.records import Map, RewriteRecord
from aicf.rewrite.rules import Prune, Regroup, Rule, Separate, Widen, read_rule
from aicf.rewrite.run import Run
from aicf.rewrite.snapshots import Snapshot

__all__ = ["Map", "Prune", "Regroup", "RewriteError", "RewriteRecord", "Rule", "Run", "Separate", "Snapshot", "Widen", "read_rule"]
