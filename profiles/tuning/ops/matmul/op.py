"""matmul: ``C = A B`` in fp32 by shared-memory tiles, the space on which tuners are compared; sizes that the tiles divide."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.spec import Arrays, Constraint, Cost, Kernel, Op, Problem, Role, Tensor, Tunable

FLOAT_BYTES = 4
UNIT_ROUNDOFF = 2.0**-24
MAX_SHARED_BYTES = 48 * 1024


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return C in float64."""
    return {"c": np.matmul(inputs["a"].astype(np.float64), inputs["b"].astype(np.float64))}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return k u / (1 - k u) times |A| |B|, which holds for k fused or unfused sums in any order (Higham 2002, section 3.1)."""
    error = problem.sizes["k"] * UNIT_ROUNDOFF
    return {"c": np.asarray(error / (1.0 - error) * np.matmul(np.abs(inputs["a"]), np.abs(inputs["b"])), dtype=np.float64)}


def cost(problem: Problem) -> Cost:
    """Return 2 m n k flops, each matrix moved once."""
    m, n, k = (problem.sizes[name] for name in ("m", "n", "k"))
    return Cost(flops=2.0 * m * n * k, bytes_read=float(FLOAT_BYTES * (m * k + k * n)), bytes_written=float(FLOAT_BYTES * m * n))


TUNABLES = (
    Tunable("bx", (8, 16, 32), "threads of a block along a row of C"),
    Tunable("by", (4, 8, 16, 32), "threads of a block along a column of C"),
    Tunable("tx", (1, 2, 4, 8), "columns of C that a thread computes"),
    Tunable("ty", (1, 2, 4, 8), "rows of C that a thread computes"),
    Tunable("tk", (8, 16, 32), "depth of the tiles"),
)
# As Python expressions over the tunables, so that another tuner can be given the same words.
RESTRICTIONS = (
    ("threads", "64 <= bx * by <= 1024"),
    ("patch", "4 <= tx * ty <= 64"),
    ("tile_rows", "32 <= by * ty <= 128"),
    ("tile_columns", "32 <= bx * tx <= 256"),
    ("shared_memory", f"4 * tk * (by * ty + 1 + bx * tx) <= {MAX_SHARED_BYTES}"),
    ("even_loads", "by * ty * tk % (bx * by) == 0 and bx * tx * tk % (bx * by) == 0"),
)


def _make_constraint(name: str, expression: str) -> Constraint:
    code = compile(expression, name, "eval")
    return Constraint(name, expression, lambda t: bool(eval(code, {"__builtins__": {}}, dict(t))))


def _problem(suites: str, size: int) -> Problem:
    return Problem({"m": size, "n": size, "k": size}, suites=frozenset(suites.split()))


OP = Op(
    name="matmul",
    summary="C = A B in fp32 by tiles in shared memory",
    tensors=(
        Tensor("a", ("m", "k"), Role.INPUT),
        Tensor("b", ("k", "n"), Role.INPUT),
        Tensor("c", ("m", "n"), Role.OUTPUT),
    ),
    kernels=(
        Kernel(
            "tiled",
            "a patch of C in the registers of each thread",
            TUNABLES,
            tuple(_make_constraint(name, text) for name, text in RESTRICTIONS),
            ({"bx": 16, "by": 16, "tx": 4, "ty": 4, "tk": 16},),
        ),
    ),
    problems=(_problem("verify", 128), _problem("verify emulated", 256), _problem("bench sweep", 2048)),
    reference=reference,
    tolerance=tolerance,
    cost=cost,
)
