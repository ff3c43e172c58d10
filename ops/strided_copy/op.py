"""strided_copy: ``y_i = x_i`` for up to 8 pieces of up to 5 axes, with any strides on both sides, by one launch.

Permutations, slices and concatenations of arrays are such copies: what differs are strides and addresses. Pieces agree in all axes but the
middle one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.spec import (
    Arrays,
    Attribute,
    Choice,
    Cost,
    Count,
    Kernel,
    OneOf,
    Op,
    Problem,
    Role,
    Sampling,
    Strides,
    Tensor,
    Tie,
    Tunable,
)

from .population import DTYPES, MAX_PIECES, POPULATION

OUTER, INNER = ("a", "b"), ("c", "d")
LENGTHS = tuple(f"n{i}" for i in range(MAX_PIECES))


def _count_pieces(problem: Problem) -> int:
    return int(problem.attributes.get("pieces", 1))


def _find_dtype(problem: Problem) -> str:
    return str(problem.attributes.get("dtype", "float32"))


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the pieces as they are."""
    return {f"y{i}": np.asarray(inputs[f"x{i}"], dtype=np.float64) for i in range(_count_pieces(problem))}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return zero: elements are moved, nothing is rounded."""
    return {name: np.zeros((1, 1, 1, 1, 1)) for name in outputs}


def find_axis(output: str, axis: int, problem: Problem) -> int:
    """Return the longest of the axes that all pieces share."""
    return max((0, 1, 3, 4), key=lambda i: problem.sizes[(*OUTER, "", *INNER)[i]])


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the places along the longest axis that all pieces share."""
    along = find_axis("", axis, problem)
    name = (*OUTER, "", *INNER)[along]
    cut = {x: np.take(array, places, along) for x, array in inputs.items()}
    return cut, replace(problem, sizes=dict(problem.sizes) | {name: len(places)}, orders={}, padding={})


def _count_elems(problem: Problem) -> int:
    lengths = sum(problem.sizes[name] for name in LENGTHS[: _count_pieces(problem)])
    return lengths * math.prod(problem.sizes[name] for name in (*OUTER, *INNER))


def cost(problem: Problem) -> Cost:
    """Return no flops, with every element read once and written once."""
    size_bytes = float(DTYPES[_find_dtype(problem)] * _count_elems(problem))
    return Cost(flops=0.0, bytes_read=size_bytes, bytes_written=size_bytes)


THREADS = Tunable("threads", (128, 256, 512), "threads of a block")
ITEMS = Tunable("items", (1, 2, 4, 8), "accesses that a thread has under way")


def _serve(t: Mapping[str, int]) -> tuple[Count, ...]:
    """Return the domain: any call."""
    return (Count({"a": 1}),)


def _find_tile(t: Mapping[str, int]) -> Mapping[str, int]:
    return {"d": t["threads"] * max(t.get("items", 1), 1)}


KERNELS = (
    Kernel(
        "naive",
        "a thread per element, which divides its number by the extents",
        (THREADS,),
        (),
        ({"threads": 256},),
        domain=_serve,
        tile=_find_tile,
    ),
    Kernel(
        "merged",
        "axes in the order of y's memory, merged where both sides allow; accesses as wide as both sides allow, several under way",
        (THREADS, ITEMS),
        (),
        ({"threads": 256, "items": 4}, {"threads": 256, "items": 2}),
        domain=_serve,
        tile=_find_tile,
    ),
    Kernel(
        "turned",
        "the same, and pieces whose innermost axes differ go through tiles in shared memory, so that both sides access whole sectors",
        (THREADS, ITEMS),
        (),
        ({"threads": 256, "items": 4}, {"threads": 512, "items": 4}),
        domain=_serve,
        tile=_find_tile,
    ),
    Kernel(
        "packed",
        "tiles by words, as wide on each side as it allows; rows that begin anywhere stored by 16 bytes from shifted words",
        (THREADS, ITEMS),
        (),
        ({"threads": 256, "items": 2}, {"threads": 256, "items": 4}, {"threads": 128, "items": 2}),
        domain=_serve,
        tile=_find_tile,
    ),
)


def choose(problem: Problem) -> Choice:
    """Return the kernel that has every way."""
    return Choice(KERNELS[-1].bind(KERNELS[-1].variants[0]), "it decides per piece between runs, rows and tiles")


_NHWC_OF_NCHW = (0, 1, 3, 4, 2)  # how [a, b, n, c, d] lies in memory where the middle axis is innermost


def _problem(
    suite: str,
    shape: tuple[int, int, tuple[int, ...], int, int],
    dtype: str = "float32",
    orders: Mapping[str, tuple[int, ...]] | None = None,
    **padding: tuple[int, ...],
) -> Problem:
    a, b, lengths, c, d = shape
    filled = (*lengths, *[lengths[0]] * (MAX_PIECES - len(lengths)))
    sizes = {"a": a, "b": b, **dict(zip(LENGTHS, filled, strict=True)), "c": c, "d": d}
    return Problem(sizes, {"dtype": dtype, "pieces": len(lengths)}, dict(padding), frozenset(suite.split()), orders=orders or {})


PROBLEMS = (
    _problem("verify", (1, 1, (1,), 1, 1)),
    _problem("verify", (1, 1, (33,), 1, 65), orders={"x0": (0, 1, 4, 3, 2)}),
    _problem("verify", (2, 3, (4,), 5, 6), "float16", {"x0": (4, 2, 0, 3, 1)}),
    _problem("verify", (3, 1, (3,), 20, 31), "bfloat16", {"y0": _NHWC_OF_NCHW}),
    _problem("verify", (1, 3, (70,), 9, 66), "uint8", {"x0": (0, 1, 4, 2, 3)}),
    _problem(
        "verify", (1, 2, (7, 64, 1), 1, 16), "float32", None, y0=(0, 72 * 16, 0, 0, 0), y1=(0, 72 * 16, 0, 0, 0), y2=(0, 72 * 16, 0, 0, 0)
    ),
    _problem("verify", (1, 5, (3, 3, 5, 1, 2, 4, 6, 7), 1, 1), "float16", None, x3=(0, 2, 0, 0, 0), y7=(0, 1, 0, 0, 0)),
    _problem("verify", (2, 1, (40, 24), 3, 50), "int64", {"x0": (0, 1, 4, 3, 2), "x1": (0, 1, 4, 3, 2)}),
    _problem("verify", (1, 1, (2,), 1, 3000), "float32", {"x0": (0, 1, 4, 3, 2)}),
    _problem("verify", (1, 1, (3000,), 1, 3), "float64", {"x0": (0, 1, 4, 3, 2)}),
    _problem("verify", (1, 17, (9,), 2, 24), "bool", None, x0=(0, 8, 0, 0, 0)),
    _problem("verify", (2, 1, (72,), 7, 19), "float16", {"y0": _NHWC_OF_NCHW}),
    _problem("verify", (1, 1, (136,), 1, 129), "uint8", {"x0": (0, 1, 4, 3, 2)}),
    _problem("verify", (1, 19, (90, 67), 1, 1), "bfloat16", None, y0=(0, 68, 0, 0, 0), y1=(0, 94, 0, 0, 0), x1=(0, 3, 0, 0, 0)),
    _problem("verify", (1, 11, (75,), 1, 1), "float32", None, x0=(0, 1, 0, 0, 0), y0=(0, 2, 0, 0, 0)),
    _problem("emulated", (4, 1, (64,), 28, 28), "float16", {"y0": _NHWC_OF_NCHW}),
    _problem(
        "emulated", (1, 64, (512, 256, 256), 1, 8), "bfloat16", None, y0=(0, 4096, 0, 0, 0), y1=(0, 6144, 0, 0, 0), y2=(0, 6144, 0, 0, 0)
    ),
    _problem("emulated", (8, 16, (12,), 8, 32), "float32", {"x0": (0, 2, 1, 3, 4)}),
    _problem(
        "emulated", (1, 301, (1000, 333, 77), 1, 1), "float16", None, y0=(0, 410, 0, 0, 0), y1=(0, 1077, 0, 0, 0), y2=(0, 1333, 0, 0, 0)
    ),
    _problem("emulated", (8, 1, (200,), 7, 7), "bfloat16", {"y0": _NHWC_OF_NCHW}),
    _problem("emulated", (1, 1, (517,), 1, 609), "uint8", {"x0": (0, 1, 4, 3, 2)}),
    _problem("bench sweep", (64, 1, (256,), 56, 56), "float16", {"y0": _NHWC_OF_NCHW}),
    _problem("bench", (64, 1, (256,), 56, 56), "float16", {"x0": _NHWC_OF_NCHW}),
    _problem("bench", (256, 1, (3,), 224, 224), "float32", {"y0": _NHWC_OF_NCHW}),
    _problem("bench sweep", (8, 1, (2048,), 32, 128), "bfloat16", {"x0": (0, 1, 3, 2, 4)}),
    _problem(
        "bench sweep",
        (1, 8192, (4096, 1024, 1024), 1, 1),
        "bfloat16",
        None,
        y0=(0, 2048, 0, 0, 0),
        y1=(0, 5120, 0, 0, 0),
        y2=(0, 5120, 0, 0, 0),
    ),
    _problem(
        "bench", (1, 30011, (1000, 333, 77), 1, 1), "float16", None, y0=(0, 410, 0, 0, 0), y1=(0, 1077, 0, 0, 0), y2=(0, 1333, 0, 0, 0)
    ),
    _problem("bench", (16, 12, (64,), 24, 40), "float32", {"x0": (4, 3, 2, 1, 0)}),
    _problem("bench", (1, 1, (8192,), 1, 8192), "uint8", {"x0": (0, 1, 4, 3, 2)}),
    _problem("bench", (1, 1, (6000,), 1, 5000), "int64", {"x0": (0, 1, 4, 3, 2)}),
)


def _make_tensor(stem: str, i: int, role: Role) -> Tensor:
    return Tensor(
        f"{stem}{i}",
        (*OUTER, LENGTHS[i], *INNER),
        role,
        _find_dtype,
        strides=Strides.ANY,
        present=lambda p: i < _count_pieces(p),
    )


OP = Op(
    name="strided_copy",
    summary="copies of up to 8 pieces of up to 5 axes, any strides on both sides",
    tensors=(
        *(_make_tensor("x", i, Role.INPUT) for i in range(MAX_PIECES)),
        *(_make_tensor("y", i, Role.OUTPUT) for i in range(MAX_PIECES)),
    ),
    attributes=(
        Attribute("dtype", tuple(DTYPES), "float32", passed=False),
        Attribute("pieces", tuple(range(1, MAX_PIECES + 1)), 1),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    choose=choose,
    sampling=Sampling((0,), restrict, find_axis),
    ties=tuple(Tie((OneOf("pieces", (count,)),), equal=tuple((name, "n0") for name in LENGTHS[count:])) for count in range(1, MAX_PIECES)),
    distributions=("normal", "ties", "denormal", "nonfinite"),
    population=POPULATION,
)
