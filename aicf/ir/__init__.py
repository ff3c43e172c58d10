"""Networks as graphs: immutable nodes and typed values with ids that survive passes."""

from aicf.ir.diff import diff
from aicf.ir.graph import Graph, Node, Rewriter, State, Value
from aicf.ir.picture import draw_graph
from aicf.ir.text import parse, to_text
from aicf.ir.validity import RULES, check

__all__ = ["RULES", "Graph", "Node", "Rewriter", "State", "Value", "check", "diff", "draw_graph", "parse", "to_text"]
