"""Chains of elementwise functions, written as text: one tree gives the NumPy reference, its error bound and the CUDA code.

A chain is a typed signature and assignments::

    x: T, b: T[columns] -> y: T; y = gelu(x + b)

:mod:`contract.expressions.language` reads it into a tree (:mod:`contract.expressions.tree`), :mod:`contract.expressions.functions` is the
table of functions, :mod:`contract.expressions.evaluate` computes a tree with NumPy, and :mod:`contract.expressions.cuda` writes it for the
device. All of it belongs to the contract because chains are built in two places: by the workbench, which seals some, and by the framework,
which builds others from the sealed sources on the machine where it runs. Needs NumPy.
"""

from contract.expressions.cuda import read_chains as read_chains
from contract.expressions.cuda import write_chains as write_chains
from contract.expressions.evaluate import evaluate as evaluate
from contract.expressions.evaluate import find_bounds as find_bounds
from contract.expressions.functions import FUNCTIONS as FUNCTIONS
from contract.expressions.language import ExpressionError as ExpressionError
from contract.expressions.language import parse_chain as parse_chain
from contract.expressions.tree import Chain as Chain
from contract.expressions.tree import Extent as Extent
from contract.expressions.tree import Operand as Operand
from contract.expressions.tree import format_node as format_node
