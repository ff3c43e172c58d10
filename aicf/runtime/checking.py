"""How far each step of a plan is from the reference: its outputs against its op's meaning in float64, on the step's actual inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aicf.opset import find_op
from aicf.runtime.executor import Executor


@dataclass(frozen=True)
class StepError:
    """A step's worst output: the largest difference from the truth, and that over the truth's largest magnitude (NaN where one is NaN)."""

    step: int
    op: str
    owner: str
    source: str
    worst: float
    relative: float


def check_steps(executor: Executor) -> list[StepError]:
    """Run a plan's steps one by one and return each one's error. Inputs must be in place; states change as in a run."""
    found = []
    for i, step in enumerate(executor.plan.steps):
        inputs = [None if slot is None else executor.read(slot) for slot in step.inputs]
        truths = find_op(step.op).evaluate(inputs, step.attrs)
        executor.run_step(i)
        worst = relative = 0.0
        for slot, truth in zip(step.outputs, truths, strict=True):
            made, true = executor.read(slot).astype(np.float64), truth.astype(np.float64)
            with np.errstate(invalid="ignore"):
                # Infinities and NaN in the place of their own are right.
                apart = np.where((made == true) | (np.isnan(made) & np.isnan(true)), 0.0, np.abs(made - true))
            error = float(np.max(apart, initial=0.0))
            scale = float(np.max(np.abs(true), initial=0.0, where=np.isfinite(true)))
            worst = float(np.maximum(worst, error))
            relative = float(np.maximum(relative, error / scale if scale > 0.0 else error))
        found.append(StepError(i, step.op, step.owner, step.source, worst, relative))
    return found
