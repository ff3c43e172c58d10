"""Rules: one file per kind of change."""

from aicf.rewrite.rules.rule import Rule, read_rule
from aicf.rewrite.rules.units import Prune, Regroup, Separate, Widen

__all__ = ["Prune", "Regroup", "Rule", "Separate", "Widen", "read_rule"]
