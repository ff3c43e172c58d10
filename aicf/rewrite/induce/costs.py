"""What a training step of a structure costs on the GPU at hand, by the frozen set's decisions: nothing is built, run or measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aicf import functional as F
from aicf import optim
from aicf.errors import ChainError, GraphError, PlanError, SelectionError, UnsupportedError
from aicf.ir import Node
from aicf.nn import Module
from aicf.opset import Type
from aicf.rewrite.induce.problems import Problem
from aicf.runtime.chooser import FrozenChooser
from aicf.tensor import Tensor
from aicf.train.recipe import Options
from aicf.train.step_recipe import StepRecipe


@dataclass(frozen=True)
class Cost:
    """Expected time of one training step by Adam, in us, and its launches; ``us`` is None where ``reason`` says why there is no plan.

    The time is the sum over launches of what the registry expects of each: medians measured of frozen kernels, or its model of them. Of
    ``untimed`` launches, such as copies of a number, nothing is known; they are not in the sum.
    """

    us: float | None
    launches: int
    untimed: int = 0
    reason: str = ""

    def __str__(self) -> str:
        if self.us is None:
            return self.reason
        return f"{self.us:.1f} us in {self.launches} launches" + (f", {self.untimed} of them not in the sum" if self.untimed else "")


class PricingChooser(FrozenChooser):
    """Chooses as a compilation does, and builds nothing."""

    def prepare(self, nodes: Sequence[Node]) -> Sequence[str]:
        """Do nothing: kernels that are not launched need not be there."""
        return ()


def find_cost(model: Module, problem: Problem, batch: int = 64) -> Cost:
    """Return the cost of a training step of a model on batches of a problem, on the device that is open."""
    loss = F.cross_entropy if problem.is_classes else F.mse_loss
    types = [
        Type("float32", (batch, problem.inputs)),
        Type("int64", (batch,)) if problem.is_classes else Type("float32", (batch, problem.outputs)),
    ]

    def compute(m: Module, x: Tensor, y: Tensor) -> Tensor:
        return loss(m(x), y)

    recipe = StepRecipe(model, compute, optim.Adam(model.parameters(), lr=1e-3), None, Options(backend="cuda"))
    try:
        plan = recipe.make(recipe.record(types), PricingChooser(deterministic=True)).plan
    except (SelectionError, UnsupportedError, PlanError, GraphError, ChainError) as error:
        return Cost(None, 0, 0, f"no cost: {str(error).partition(chr(10))[0]}")
    known = [us for step in plan.steps if (us := step.predicted_us) is not None and math.isfinite(us)]
    return Cost(math.fsum(known), len(plan.steps), len(plan.steps) - len(known))
