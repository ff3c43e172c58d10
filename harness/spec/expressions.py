"""Chains of elementwise functions as an op's description uses them: the language, its evaluation and bounds (:mod:`contract.expressions`)."""

from contract.expressions import Chain as Chain
from contract.expressions import Extent as Extent
from contract.expressions import evaluate as evaluate
from contract.expressions import find_bounds as find_bounds
from contract.expressions import parse_chain as parse_chain
from contract.expressions.evaluate import Draws as Draws
from contract.expressions.language import MAX_INPUTS as MAX_INPUTS
from contract.expressions.language import MAX_OUTPUTS as MAX_OUTPUTS
