"""blend: an op that needs every feature of the contract at once; it is of no use to anybody.

``state = decay * state + rate * sum_r w[r] x[:, :, p * step + r, :] + table[index]`` in place, where the mask is on, and ``y = 2 * state``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.spec import (
    Arrays,
    Attribute,
    Booleans,
    Cost,
    Count,
    Derived,
    Indices,
    Kernel,
    Op,
    Positive,
    Problem,
    Role,
    Sampling,
    Scalar,
    Strides,
    Tensor,
    Tunable,
)

UNIT_ROUNDOFF = 2.0**-24
STEP_DEFAULT = 1


def _step(problem: Problem) -> int:
    return int(problem.attributes.get("step", STEP_DEFAULT))


def _find_terms(inputs: Arrays, problem: Problem, *, absolute: bool) -> NDArray[np.float64]:
    """Return the new state, or the sum of the magnitudes that it is made of."""
    take = np.abs if absolute else np.asarray
    x, w, table, state = (take(inputs[name]) for name in ("x", "w", "table", "state"))
    step, count = _step(problem), problem.sizes["P"]
    windows = sum(w[r] * x[:, :, r : r + (count - 1) * step + 1 : step, :] for r in range(problem.sizes["R"]))
    decay = problem.scalars.get("decay", 0.5)
    return decay * state + inputs["rate"] * windows + table[inputs["index"]][:, np.newaxis]


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the new state and twice it."""
    state = _find_terms(inputs, problem, absolute=False)
    if "mask" in inputs:
        state = np.where(inputs["mask"][:, np.newaxis, :, np.newaxis], state, inputs["state"])
    return {"state": state, "y": 2.0 * state}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the bound of a sum in any order: each term is rounded at most once for each of R + 4 operations."""
    bound = 2.0 * (problem.sizes["R"] + 4) * UNIT_ROUNDOFF * _find_terms(inputs, problem, absolute=True) + 2.0**-126
    return {"state": bound, "y": 2.0 * bound}


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the outermost places."""
    taken = {name: values[places] if name in ("x", "index", "mask", "state") else values for name, values in inputs.items()}
    return taken, replace(problem, sizes=dict(problem.sizes) | {"B": len(places)})


def cost(problem: Problem) -> Cost:
    """Return the work of the windows, with each tensor moved once."""
    s = problem.sizes
    out, read = s["B"] * s["H"] * s["P"] * s["D"], s["B"] * s["H"] * s["S"] * s["D"]
    return Cost(2.0 * s["R"] * out, 4.0 * (read + out + s["V"] * s["D"]), 8.0 * out)


LIARS = {
    "drops_stride": "takes dimension 1 of x for packed",
    "drops_last_stride": "takes the last dimension of y for packed",
    "leaves_state": "writes y alone",
    "default_decay": "takes the scalar's default for its value",
    "constant_rate": "does not read the value in device memory",
    "first_row": "does not look at the indices",
    "ignores_mask": "does not look at the mask",
    "ignores_step": "takes windows beside each other",
    "spoils_index": "writes an input",
    "skips_rows": "leaves out the last place of the state",
}


def _make_kernel(name: str, idea: str) -> Kernel:
    return Kernel(
        name,
        idea,
        (Tunable("threads", (64, 128), "threads of a block"),),
        (),
        ({"threads": 64},),
        domain=lambda t: (Count({"D": 1}, max=64),),
    )


ONLY_WIDE = Kernel(
    "only_wide", "serves few problems, and has no tunables", domain=lambda t: (Count({"D": 4}, min=2), Count({"B": 1}, max=3))
)


def _problem(*sizes: int, **kwargs: object) -> Problem:
    return Problem(dict(zip("BHSDVR", sizes, strict=True)), **kwargs)  # type: ignore[arg-type]


OP = Op(
    name="blend",
    summary="every feature of the contract at once",
    tensors=(
        Tensor("x", ("B", "H", "S", "D"), Role.INPUT, lambda p: str(p.attributes.get("dtype", "float32")), strides=Strides.OUTER),
        Tensor("w", ("R",), Role.INPUT),
        Tensor("table", ("V", "D"), Role.INPUT, can_pad_rows=True),
        Tensor("index", ("B", "P"), Role.INPUT, "int64", values=Indices("V")),
        Tensor("rate", (), Role.INPUT, values=Positive(0.125, 8.0)),
        Tensor("mask", ("B", "P"), Role.INPUT, "bool", present=lambda p: bool(p.attributes.get("masked", False)), values=Booleans()),
        Tensor("state", ("B", "H", "P", "D"), Role.INOUT, strides=Strides.OUTER),
        Tensor("y", ("B", "H", "P", "D"), Role.OUTPUT, strides=Strides.ANY),
    ),
    attributes=(
        Attribute("step", (1, 2, 3), STEP_DEFAULT),
        Attribute("dtype", ("float32", "bfloat16"), "float32", passed=False),
        Attribute("masked", (False, True), False, passed=False),
    ),
    scalars=(Scalar("decay", 0.5, 0.0, 1.0),),
    derived=(Derived("P", "(S - R) // step + 1"),),
    kernels=(_make_kernel("honest", "a thread per element"), ONLY_WIDE, *(_make_kernel(name, idea) for name, idea in LIARS.items())),
    problems=(
        _problem(1, 1, 1, 1, 1, 1),
        _problem(2, 3, 9, 5, 4, 3),
        _problem(2, 3, 10, 8, 7, 2, attributes={"step": 2, "masked": True}),
        _problem(3, 2, 12, 4, 5, 3, attributes={"dtype": "bfloat16", "step": 3}),
        _problem(4096, 8, 16, 8, 64, 2, attributes={"masked": True}, suites=frozenset({"bench"})),
    ),
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    sampling=Sampling((0,), restrict),
    distributions=("normal", "uniform", "ties", "largest_first", "largest_last"),
)
