"""A small op with Python kernels for the fake device: ``Y = act(A·B + bias)``, right once and wrong in many ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.spec import Attribute, Cost, Kernel, Op, Problem, Role, Tensor
from tests.harness.fake_device import FakeArray, FakeDevice

_EPS = float(np.finfo(np.float32).eps)


def _reference(inputs: Mapping[str, NDArray[Any]], problem: Problem) -> dict[str, NDArray[np.float64]]:
    y = inputs["A"] @ inputs["B"]
    if "bias" in inputs:
        y = y + inputs["bias"]
    return {"Y": np.where(y < 0, 0.0, y) if problem.attributes.get("relu") else y}


def _tolerance(inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]], problem: Problem) -> dict[str, NDArray[np.float64]]:
    terms = problem.sizes["K"] + 2
    total = np.abs(inputs["A"]) @ np.abs(inputs["B"]) + (np.abs(inputs["bias"]) if "bias" in inputs else 0.0)
    return {"Y": terms * _EPS * total + terms * float(np.finfo(np.float32).smallest_subnormal)}


def _cost(problem: Problem) -> Cost:
    m, n, k = (problem.sizes[d] for d in "MNK")
    return Cost(2.0 * m * n * k, 4.0 * (m * k + k * n), 4.0 * m * n)


def make_toy(**changes: Any) -> Op:
    """Return the op; keyword arguments replace its fields."""
    fields: dict[str, Any] = {
        "name": "toy",
        "summary": "matrix product with bias and relu",
        "tensors": (
            Tensor("A", ("M", "K"), Role.INPUT, can_pad_rows=True),
            Tensor("B", ("K", "N"), Role.INPUT),
            Tensor("bias", ("N",), Role.INPUT, present=lambda p: bool(p.attributes.get("bias"))),
            Tensor("Y", ("M", "N"), Role.OUTPUT, can_pad_rows=True),
        ),
        "kernels": (Kernel("honest", "NumPy's own product"), Kernel("atomic", "sums in any order", deterministic=False)),
        "problems": (
            Problem({"M": 16, "N": 16, "K": 16}, {"bias": True, "relu": True}),
            Problem({"M": 17, "N": 9, "K": 5}, {"bias": True}, {"A": 3, "Y": 5}),
            Problem({"M": 1, "N": 1, "K": 1}),
        ),
        "reference": _reference,
        "tolerance": _tolerance,
        "cost": _cost,
        "attributes": (Attribute("bias", (False, True), False, passed=False), Attribute("relu", (False, True), False)),
    }
    return Op(**(fields | changes))


def _compute(A: FakeArray, B: FakeArray, bias: FakeArray | None, relu: bool) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        y = A.host.astype(np.float64) @ B.host.astype(np.float64)
        y = y + (0.0 if bias is None else bias.host)
        return np.asarray(np.where(y < 0, 0.0, y) if relu else y, dtype=np.float32)


Body = Callable[..., None]


def honest(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
    Y.host[...] = _compute(A, B, bias, relu)


class ToyKernel:
    """A launchable that runs ``body`` on the fake device, through the stream it is given unless ``stream`` says another."""

    def __init__(self, device: FakeDevice, body: Body = honest, *, workspace: int = 0, stream: int | None = None) -> None:
        self.device = device
        self.body = body
        self.workspace = workspace
        self.stream = stream
        self.reason = ""

    def supports(self, **arguments: Any) -> str:
        return self.reason

    def workspace_bytes(self, **arguments: Any) -> int:
        return self.workspace

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        chosen = stream if self.stream is None else self.stream
        self.device.enqueue(chosen, lambda: self.body(**arguments))
