"""Networks that are rewritten while they train: other structures, with parameters and all optimizer state carried over."""

from aicf.errors import RewriteError
from aicf.rewrite import policies
from aicf.rewrite.decisions import Judge, Policy, Proposal, replay_decisions
from aicf.rewrite.log import Log
from aicf.rewrite.records import Map, RewriteRecord
from aicf.rewrite.rules import (
    Deepen,
    Freeze,
    InsertNorm,
    Merge,
    Prune,
    Regroup,
    Release,
    Remove,
    ReplaceActivation,
    Rule,
    ScaleRate,
    Separate,
    SetBatch,
    SetPrecision,
    Split,
    Thaw,
    Together,
    Widen,
    read_rule,
)
from aicf.rewrite.run import Run
from aicf.rewrite.snapshots import Difference, Saved, Snapshot
from aicf.rewrite.timeline import draw_timeline

read_snapshot = Saved.read

__all__ = [
    "Deepen",
    "Difference",
    "Freeze",
    "InsertNorm",
    "Judge",
    "Log",
    "Map",
    "Merge",
    "Policy",
    "Proposal",
    "Prune",
    "Regroup",
    "Release",
    "Remove",
    "ReplaceActivation",
    "RewriteError",
    "RewriteRecord",
    "Rule",
    "Run",
    "Saved",
    "ScaleRate",
    "Separate",
    "SetBatch",
    "SetPrecision",
    "Snapshot",
    "Split",
    "Thaw",
    "Together",
    "Widen",
    "draw_timeline",
    "policies",
    "read_rule",
    "read_snapshot",
    "replay_decisions",
]
