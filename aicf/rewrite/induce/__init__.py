"""Structure induction: what runs have shown of structures on problems, used to propose structures for a new problem.

>>> from aicf.rewrite import induce
>>> for proposal in induce.propose(induce.Problem.of(x, y)):
...     print(proposal)  # doctest: +SKIP
"""

from aicf.rewrite.induce.costs import Cost, find_cost
from aicf.rewrite.induce.editing import EditProposal, follow, list_rules, propose_edits, record_run
from aicf.rewrite.induce.evaluation import BASELINES, BEST_SETTINGS, Judged, choose_settings, compare_pairs, judge, tabulate
from aicf.rewrite.induce.features import find_features
from aicf.rewrite.induce.model import LossModel, Settings
from aicf.rewrite.induce.patterns import Patterns, find_patterns, read_patterns
from aicf.rewrite.induce.problems import FAMILIES, Problem, draw_problem
from aicf.rewrite.induce.proposing import Evidence, StructureProposal, propose
from aicf.rewrite.induce.reading import read_onnx_patterns, read_records
from aicf.rewrite.induce.records import CORPUS, Corpus, Record
from aicf.rewrite.induce.structures import STRUCTURES, make_structure
from aicf.rewrite.induce.training import Outcome, train

__all__ = [
    "BASELINES",
    "BEST_SETTINGS",
    "CORPUS",
    "FAMILIES",
    "STRUCTURES",
    "Corpus",
    "Cost",
    "EditProposal",
    "Evidence",
    "Judged",
    "LossModel",
    "Outcome",
    "Patterns",
    "Problem",
    "Record",
    "Settings",
    "StructureProposal",
    "choose_settings",
    "compare_pairs",
    "draw_problem",
    "find_cost",
    "find_features",
    "find_patterns",
    "follow",
    "judge",
    "list_rules",
    "make_structure",
    "propose",
    "propose_edits",
    "read_onnx_patterns",
    "read_patterns",
    "read_records",
    "record_run",
    "tabulate",
    "train",
]
