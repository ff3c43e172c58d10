"""optimizer: one Adam or AdamW step over a flat parameter, in place; step and learning rate are read from device memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from harness.spec import (
    Arrays,
    Attribute,
    Axis,
    Constraint,
    Cost,
    Count,
    Kernel,
    OneOf,
    Op,
    Positive,
    Problem,
    Role,
    Sampling,
    Scalar,
    Tensor,
    Tunable,
    Uniform,
)

from .population import POPULATION

FLOATS = ("float32", "bfloat16", "float16")
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# Half a unit in the last place of 1, and the smallest subnormal.
ROUNDOFF = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
SUBNORMAL = {"float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24}
U = ROUNDOFF["float32"]

SCALARS = (
    Scalar("beta1", 0.9, 0.0, 0.999, "float64"),
    Scalar("beta2", 0.999, 0.5, 0.9999, "float64"),
    Scalar("eps", 1e-8, 1e-12, 1e-2, "float64", is_log=True),
    Scalar("weight_decay", 0.01, 0.0, 1.0, "float64"),
)


def _read_scalars(problem: Problem) -> Mapping[str, float]:
    return {s.name: float(problem.scalars.get(s.name, s.default)) for s in SCALARS}


def _find_dtype(problem: Problem) -> str:
    return str(problem.attributes.get("dtype", "float32"))


def _is_decoupled(problem: Problem) -> bool:
    return bool(problem.attributes.get("decoupled", True))


def _advances(problem: Problem) -> bool:
    return bool(problem.attributes.get("advances", False))


def _is_guarded(problem: Problem) -> bool:
    return bool(problem.attributes.get("guarded", False))


def _is_skipped(inputs: Arrays) -> bool:
    """Return whether a step is left out: its factor is not positive."""
    return "factor" in inputs and not float(inputs["factor"]) > 0.0


def _find_step(inputs: Arrays) -> float:
    """Return the number of the step, from 1 on."""
    return float(inputs["steps_done"]) + 1.0 if "steps_done" in inputs else float(inputs["step"])


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return p, m and v after the step, the copy of p where there is one, and the steps done where the kernel counts them.

    Adam is Kingma and Ba's Algorithm 1 (arXiv:1412.6980); with ``decoupled``, weight decay is Loshchilov and Hutter's (arXiv:1711.05101).
    With ``guarded``, the gradient is multiplied by ``factor``; where that is not positive, nothing is changed.
    """
    p, grad, m, v, lr = (inputs[name] for name in ("p", "grad", "m", "v", "lr"))
    step, s = _find_step(inputs), _read_scalars(problem)
    if _is_skipped(inputs):
        return _name_results(problem, inputs, p, m, v, step - 1.0)
    grad = grad * inputs.get("factor", 1.0)
    if _is_decoupled(problem):
        p = p * (1.0 - lr * s["weight_decay"])
    else:
        grad = grad + s["weight_decay"] * p
    m = s["beta1"] * m + (1.0 - s["beta1"]) * grad
    v = s["beta2"] * v + (1.0 - s["beta2"]) * grad * grad
    first, second = m / (1.0 - s["beta1"] ** float(step)), v / (1.0 - s["beta2"] ** float(step))
    p = p - lr * first / (np.sqrt(second) + s["eps"])
    return _name_results(problem, inputs, p, m, v, step)


def _name_results(
    problem: Problem, inputs: Arrays, p: NDArray[np.float64], m: NDArray[np.float64], v: NDArray[np.float64], steps_done: float
) -> dict[str, NDArray[np.float64]]:
    found = {"p": p, "m": m, "v": v} | ({"copy": p} if problem.attributes.get("with_copy", False) else {})
    return found | ({"steps_done": np.asarray(steps_done)} if "steps_done" in inputs else {})


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the bound of a step in fp32 whose factors are made in float64: each operation rounds once, and errors go on to first order.

    A number in front of U counts the roundings of a quantity, those of its factors included; where terms can cancel, it stands before the
    sum of their magnitudes.
    """
    p, grad, m, v, lr = (np.abs(inputs[name]).astype(np.float64) for name in ("p", "grad", "m", "v", "lr"))
    step, s = _find_step(inputs), _read_scalars(problem)
    if _is_skipped(inputs):
        return _bound_skipped(outputs, problem)
    grad_error = np.zeros_like(grad)
    if _is_guarded(problem):
        grad = grad * np.abs(inputs["factor"])
        grad_error = U * grad + SUBNORMAL["float32"]
    if not _is_decoupled(problem):
        grad_error = grad_error + 3.0 * U * (grad + s["weight_decay"] * p)
        grad = grad + s["weight_decay"] * p
    m_error = 5.0 * U * (m + (1.0 - s["beta1"]) * grad) + (1.0 - s["beta1"]) * grad_error
    v_new = np.abs(outputs["v"])
    v_error = (
        5.0 * U * (s["beta2"] * v + (1.0 - s["beta2"]) * grad * grad) + (1.0 - s["beta2"]) * 2.0 * grad * grad_error + SUBNORMAL["float32"]
    )
    correction1, correction2 = 1.0 - s["beta1"] ** float(step), 1.0 - s["beta2"] ** float(step)
    root = np.sqrt(v_new / correction2)
    root_error = np.sqrt((v_new + v_error) / correction2) - np.sqrt(np.maximum(v_new - v_error, 0.0) / correction2) + 4.0 * U * root
    divisor = root + s["eps"]
    divisor_error = root_error + 2.0 * U * divisor
    update = lr * np.abs(outputs["m"]) / correction1 / divisor
    update_error = lr * m_error / correction1 / divisor + update * (divisor_error / divisor + 6.0 * U)
    p_error = 3.0 * U * p + U * update + update_error + SUBNORMAL["float32"]
    bounds = {"p": p_error, "m": m_error + SUBNORMAL["float32"], "v": v_error}
    if "copy" in outputs:
        dtype = _find_dtype(problem)
        bounds["copy"] = p_error + ROUNDOFF[dtype] * (np.abs(outputs["copy"]) + p_error) + SUBNORMAL[dtype]
    if "steps_done" in outputs:
        bounds["steps_done"] = np.zeros(())
    return bounds


def _bound_skipped(outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return bounds of 0, but for the copy, which is rounded: a step that is left out changes no bit."""
    bounds = {name: np.zeros(np.shape(array)) for name, array in outputs.items()}
    if "copy" in outputs:
        dtype = _find_dtype(problem)
        bounds["copy"] = ROUNDOFF[dtype] * np.abs(outputs["copy"]) + SUBNORMAL[dtype]
    return bounds


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the elements at ``places``: each is changed by itself."""
    cut = {name: array if array.ndim == 0 else array[places] for name, array in inputs.items()}
    return cut, Problem({"N": len(places)}, problem.attributes, suites=problem.suites, scalars=problem.scalars)


def cost(problem: Problem) -> Cost:
    """Return about 15 flops an element, with p, m, v and the gradient read once, and p, m, v and the copy written once."""
    elems, item = problem.sizes["N"], ITEM_BYTES[_find_dtype(problem)]
    copy = item if problem.attributes.get("with_copy", False) else 0
    return Cost(flops=15.0 * elems, bytes_read=float((12 + item) * elems), bytes_written=float((12 + copy) * elems))


THREADS = Tunable("threads", (64, 128, 256, 512, 1024), "threads of a block")
CHUNKS = Tunable("chunks", (1, 2, 4), "16-byte pieces of the gradient that a thread loads before it stores anything")
REGISTERS_FIT = Constraint(
    "registers_fit",
    "chunks * threads must not exceed 1024: a thread keeps its chunks in registers",
    lambda t: t["chunks"] * t["threads"] <= 1024,
)
_SERVED = (Count({"N": 1}, max=2**36),)
_COUNTS_NOTHING = OneOf("advances", (False,))

KERNELS = (
    Kernel(
        "naive",
        "a thread per element, which works out the step's factors for itself",
        (THREADS,),
        (),
        ({"threads": 256},),
        domain=lambda t: (*_SERVED, _COUNTS_NOTHING),
        tile=lambda t: {"N": t["threads"]},
    ),
    Kernel(
        "shared_factors",
        "the factors are worked out once per block",
        (THREADS,),
        (),
        ({"threads": 256}, {"threads": 1024}),
        domain=lambda t: _SERVED,
        tile=lambda t: {"N": t["threads"]},
    ),
    Kernel(
        "vectorised",
        "16 bytes an access, and several of each array in flight",
        (THREADS, CHUNKS),
        (REGISTERS_FIT,),
        ({"threads": 128, "chunks": 1}, {"threads": 256, "chunks": 1}, {"threads": 256, "chunks": 2}, {"threads": 512, "chunks": 1}),
        domain=lambda t: _SERVED,
        tile=lambda t: {"N": t["threads"] * t["chunks"] * 4},
    ),
)


def _problem(
    suite: str,
    elems: int,
    dtype: str = "float32",
    *,
    copy: bool = False,
    decoupled: bool = True,
    advances: bool = False,
    guarded: bool = False,
    **offsets: int,
) -> Problem:
    attributes = {"dtype": dtype, "with_copy": copy, "decoupled": decoupled, "advances": advances, "guarded": guarded}
    return Problem({"N": elems}, attributes, suites=frozenset(suite.split()), offsets=offsets)


PROBLEMS = (
    _problem("verify", 1),
    _problem("verify", 33, decoupled=False),
    _problem("verify", 1000, copy=True),
    _problem("verify", 4099, "bfloat16", copy=True),
    _problem("verify", 2051, "float16", copy=True, decoupled=False),
    _problem("verify", 8192, "bfloat16"),
    _problem("verify", 1027, p=1),
    _problem("verify", 777, "bfloat16", copy=True, grad=3),
    _problem("verify", 5001, advances=True),
    _problem("verify", 3333, "bfloat16", copy=True, advances=True, m=1),
    _problem("verify", 1111, "float16", copy=True, advances=True, guarded=True),
    _problem("verify", 2500, decoupled=False, guarded=True, v=1),
    _problem("verify", 640, "float16", guarded=True),
    _problem("emulated", 1 << 18),
    _problem("emulated", 100003, "bfloat16", copy=True),
    _problem("bench sweep", 1 << 26),
    _problem("bench sweep", 1 << 26, "bfloat16", copy=True),
    _problem("bench", 1 << 20),
    _problem("bench", 7340033, "float16", copy=True),
    _problem("bench", 235146, advances=True),
    _problem("bench", 235146, "bfloat16", copy=True, advances=True),
    _problem("bench", 25174016, "bfloat16", copy=True, advances=True),
    _problem("bench", 235146, "float16", copy=True, advances=True, guarded=True),
    _problem("bench", 25174016, "float16", copy=True, advances=True, guarded=True),
)

OP = Op(
    name="optimizer",
    summary="an Adam or AdamW step over a flat parameter, in place",
    tensors=(
        Tensor("p", ("N",), Role.INOUT),
        Tensor("grad", ("N",), Role.INPUT, _find_dtype),
        Tensor("m", ("N",), Role.INOUT),
        Tensor("v", ("N",), Role.INOUT, values=Positive(2.0**-20, 16.0)),
        Tensor("step", (), Role.INPUT, "int64", present=lambda p: not _advances(p), values=Uniform(1, 100000)),
        Tensor("lr", (), Role.INPUT, values=Positive(1e-6, 0.01)),
        Tensor("copy", ("N",), Role.OUTPUT, _find_dtype, present=lambda p: bool(p.attributes.get("with_copy", False))),
        Tensor("steps_done", (), Role.INOUT, "int64", present=_advances, values=Uniform(0, 100000), is_added=True),
        Tensor("factor", (), Role.INPUT, present=_is_guarded, values=Uniform(-1.0, 1.0), is_added=True),
    ),
    attributes=(
        Attribute("dtype", FLOATS, "float32", passed=False),
        Attribute("with_copy", (False, True), False, passed=False),
        Attribute("decoupled", (True, False), True),
        Attribute("advances", (False, True), False, passed=False),
        Attribute("guarded", (False, True), False, passed=False),
    ),
    scalars=SCALARS,
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0,), restrict),
    accumulate="float32",
    distributions=("normal", "uniform", "ties", "denormal", "largest_first", "largest_last", "largest_anywhere", "one_differs"),
    population=POPULATION,
    axes=(
        Axis("dtypes", {dtype: (OneOf("dtype", (dtype,)),) for dtype in FLOATS}),
        Axis("epilogue", {"guarded": (OneOf("guarded", (True,)),), "advances": (OneOf("advances", (True,)),), "any": ()}),
        Axis("region", {"small": (Count({"N": 1}, max=1 << 20),), "large": ()}),
    ),
)
