"""Rules: one file per kind of change."""

from aicf.rewrite.rules.blocks import Deepen, Remove, ReplaceActivation
from aicf.rewrite.rules.norms import InsertNorm, SetPrecision
from aicf.rewrite.rules.rank import Merge, Split
from aicf.rewrite.rules.rule import Rule, read_rule
from aicf.rewrite.rules.together import Together
from aicf.rewrite.rules.training import Freeze, ScaleRate, SetBatch, Thaw
from aicf.rewrite.rules.units import Prune, Regroup, Release, Separate, Widen

__all__ = [
    "Deepen",
    "Freeze",
    "InsertNorm",
    "Merge",
    "Prune",
    "Regroup",
    "Release",
    "Remove",
    "ReplaceActivation",
    "Rule",
    "ScaleRate",
    "Separate",
    "SetBatch",
    "SetPrecision",
    "Split",
    "Thaw",
    "Together",
    "Widen",
    "read_rule",
]
