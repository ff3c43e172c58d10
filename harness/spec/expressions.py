"""Chains of elementwise functions and random words, as an op's description uses them: :mod:`contract.expressions`."""

from contract.expressions import Chain as Chain
from contract.expressions import Extent as Extent
from contract.expressions import evaluate as evaluate
from contract.expressions import find_bounds as find_bounds
from contract.expressions import parse_chain as parse_chain
from contract.expressions.evaluate import Draws as Draws
from contract.expressions.language import MAX_INPUTS as MAX_INPUTS
from contract.expressions.language import MAX_OUTPUTS as MAX_OUTPUTS
from contract.expressions.philox import draw_words as draw_words
from contract.expressions.philox import find_kept as find_kept
from contract.expressions.tree import Call as Call
from contract.expressions.tree import Name as Name
from contract.expressions.tree import Node as Node
from contract.expressions.tree import Number as Number
