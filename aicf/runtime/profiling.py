"""Where a plan's time goes: the time of each step, and how close it is to the limits of memory and arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aicf.plan import Step

# Products: what they multiply by what. A flop is an addition or a multiplication.
_PRODUCTS = ("gemm_bias_act", "gemm_backward")


@dataclass(frozen=True)
class StepTime:
    """A step's time in a graph that repeats it, in microseconds, and the least that its bytes and flops take at the device's peaks."""

    step: int
    op: str
    kernel: str
    owner: str
    us: float
    predicted_us: float | None
    roof_us: float

    @property
    def share(self) -> float:
        """The share of the roof: 1 where nothing can be faster."""
        return self.roof_us / self.us if self.us > 0.0 else math.nan

    def __str__(self) -> str:
        told = "" if self.predicted_us is None else f"{self.predicted_us:.2f}"
        return f"{self.step:4} {self.us:9.2f} us {told:>8} {100.0 * self.share:6.1f} %  {self.op:16} {self.owner:20} {self.kernel}"


def find_roof_us(step: Step, prior: Mapping[str, Any] | None) -> float:
    """Return the least time in microseconds at the peaks that a kernel's manifest names; NaN without them."""
    if prior is None:
        return math.nan
    rates = prior["flops_per_s"]
    rate = rates["fp32"] if step.outputs[0].type.dtype == "float32" else rates["bf16_tensor"]
    return 1e6 * max(_count_bytes(step) / float(prior["bytes_per_s"]), _count_flops(step) / float(rate))


def _count_bytes(step: Step) -> int:
    return sum(slot.type.size_bytes for slot in (*step.reads, *step.outputs))


def _count_flops(step: Step) -> float:
    """Return a product's flops; others are bound by their bytes."""
    if step.op not in _PRODUCTS:
        return 0.0
    left, right = step.inputs[0], step.inputs[1]
    if left is None or right is None:
        return 0.0
    once = 2.0 * left.type.shape[0] * right.type.num_elems
    products = 1 if step.op == "gemm_bias_act" else bool(step.attrs["with_dz"]) + (step.inputs[2] is not None)
    return once * products
