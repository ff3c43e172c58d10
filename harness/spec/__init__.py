"""The vocabulary with which an op describes itself.

An ``ops/<name>/op.py`` builds one :class:`Op` from these frozen values and binds it to the module-level name ``OP``.
Everything else in the workbench (build, verify, bench, docs, plots) reads sizes, tolerances, reference and cost from there,
and from nowhere else.

Terms
-----
kernel
    a family written in ``kernels.cu`` (``naive``, ``smem_tiled``), with tunables.
variant
    a kernel with every tunable bound to a value; the unit of build, verify and bench.
problem
    one set of sizes, attribute values, scalars and strides.
"""

from harness.errors import SpecError as SpecError
from harness.spec.arguments import Attribute as Attribute
from harness.spec.arguments import Derived as Derived
from harness.spec.arguments import Role as Role
from harness.spec.arguments import Scalar as Scalar
from harness.spec.arguments import Strides as Strides
from harness.spec.arguments import Tensor as Tensor
from harness.spec.conditions import AttributeValue as AttributeValue
from harness.spec.conditions import Axis as Axis
from harness.spec.conditions import Condition as Condition
from harness.spec.conditions import Count as Count
from harness.spec.conditions import Domain as Domain
from harness.spec.conditions import Facts as Facts
from harness.spec.conditions import OneOf as OneOf
from harness.spec.conditions import Rows as Rows
from harness.spec.conditions import Tie as Tie
from harness.spec.conditions import settle as settle
from harness.spec.kernels import PEER_ERROR as PEER_ERROR
from harness.spec.kernels import Choice as Choice
from harness.spec.kernels import Constraint as Constraint
from harness.spec.kernels import Cost as Cost
from harness.spec.kernels import Goal as Goal
from harness.spec.kernels import Kernel as Kernel
from harness.spec.kernels import Label as Label
from harness.spec.kernels import Launchable as Launchable
from harness.spec.kernels import Peer as Peer
from harness.spec.kernels import Preparable as Preparable
from harness.spec.kernels import Sampling as Sampling
from harness.spec.kernels import Tunable as Tunable
from harness.spec.kernels import Variant as Variant
from harness.spec.names import is_pattern as is_pattern
from harness.spec.op import DISTRIBUTIONS as DISTRIBUTIONS
from harness.spec.op import PLACE_DISTRIBUTIONS as PLACE_DISTRIBUTIONS
from harness.spec.op import SUITES as SUITES
from harness.spec.op import VALUE_DISTRIBUTIONS as VALUE_DISTRIBUTIONS
from harness.spec.op import Op as Op
from harness.spec.population import Group as Group
from harness.spec.population import LogRange as LogRange
from harness.spec.population import Population as Population
from harness.spec.population import SizeRule as SizeRule
from harness.spec.problem import Arrays as Arrays
from harness.spec.problem import Problem as Problem
from harness.spec.values import PLAIN as PLAIN
from harness.spec.values import Booleans as Booleans
from harness.spec.values import Indices as Indices
from harness.spec.values import Plain as Plain
from harness.spec.values import Positive as Positive
from harness.spec.values import Probabilities as Probabilities
from harness.spec.values import Uniform as Uniform
from harness.spec.values import Values as Values
