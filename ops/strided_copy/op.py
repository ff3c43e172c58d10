"""strided_copy: ``y_i = x_i`` for up to 8 pieces of up to 5 axes, with any strides on both sides, by one launch.

Permutations, slices and concatenations of arrays are such copies: what differs are strides and addresses. Pieces agree in all axes but the
middle one. With ``whole`` they are put into one array, behind each other along the middle axis and the first at the scalars' place: what
none of them covers is zero (a pad), and what sticks out is left away (a crop).
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
    Scalar,
    Strides,
    Tensor,
    Tie,
    Tunable,
)

from .population import DTYPES, MAX_PIECES, POPULATION

OUTER, INNER = ("a", "b"), ("c", "d")
# Extents of the whole that pieces are put into, and where the first begins in it, in elements; along a all of it is covered.
WHOLE = ("a", "yb", "yn", "yc", "yd")
PLACES = ("at_b", "at_n", "at_c", "at_d")
MIDDLE = 2
LENGTHS = tuple(f"n{i}" for i in range(MAX_PIECES))


def _count_pieces(problem: Problem) -> int:
    return int(problem.attributes.get("pieces", 1))


def _find_dtype(problem: Problem) -> str:
    return str(problem.attributes.get("dtype", "float32"))


def _is_whole(problem: Problem) -> bool:
    return bool(problem.attributes.get("whole", False))


def _list_places(problem: Problem) -> list[int]:
    return [0, *(int(problem.scalars.get(name, 0)) if _is_whole(problem) else 0 for name in PLACES)]


def _list_shapes(problem: Problem) -> list[tuple[int, ...]]:
    names = [(*OUTER, name, *INNER) for name in LENGTHS[: _count_pieces(problem)]]
    return [tuple(problem.sizes[name] for name in each) for each in names]


Span = tuple[slice, ...]


def _find_spans(problem: Problem) -> list[tuple[Span, Span]]:
    """Return which part of each piece lies inside the whole, and where there; empty spans for a piece that is outside."""
    spans = []
    places = _list_places(problem)
    for shape in _list_shapes(problem):
        ranges = []
        for place, extent, name in zip(places, shape, WHOLE, strict=True):
            first, end = max(-place, 0), min(extent, problem.sizes[name] - place)
            ranges.append((first, max(end, first), place))
        inside = all(end > first for first, end, _ in ranges)
        taken = tuple(slice(first, end) if inside else slice(0, 0) for first, end, _ in ranges)
        spans.append(
            (taken, tuple(slice(s.start + place, s.stop + place) if inside else s for s, (_, _, place) in zip(taken, ranges, strict=True)))
        )
        places[MIDDLE] += shape[MIDDLE]
    return spans


def reference(inputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the pieces as they are, or the whole that they are put into."""
    pieces = [np.asarray(inputs[f"x{i}"], dtype=np.float64) for i in range(_count_pieces(problem))]
    if not _is_whole(problem):
        return {f"y{i}": piece for i, piece in enumerate(pieces)}
    whole = np.zeros([problem.sizes[name] for name in WHOLE])
    for piece, (taken, put) in zip(pieces, _find_spans(problem), strict=True):
        whole[put] = piece[taken]
    return {"y0": whole}


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return zero: elements are moved, nothing is rounded."""
    return {name: np.zeros((1, 1, 1, 1, 1)) for name in outputs}


def find_axis(output: str, axis: int, problem: Problem) -> int:
    """Return the longest of the axes that all pieces share."""
    names = WHOLE if _is_whole(problem) else (*OUTER, "n0", *INNER)
    return max((0, 1, 3, 4), key=lambda i: problem.sizes[names[i]])


def restrict(inputs: Arrays, problem: Problem, axis: int, places: NDArray[np.intp]) -> tuple[dict[str, NDArray[np.generic]], Problem]:
    """Return inputs and problem of the places along the longest axis that all pieces share."""
    along = find_axis("", axis, problem)
    name, at = (*OUTER, "", *INNER)[along], _list_places(problem)[along]
    inside = places[(places >= at) & (places < at + problem.sizes[name])] - at
    begin = int(np.count_nonzero(places < at))
    if not len(inside):
        inside, begin = np.zeros(1, np.intp), len(places)
    # Not by np.take, which would copy the whole of an array of zero strides first.
    cut = {x: array[(slice(None),) * along + (inside,)] for x, array in inputs.items()}
    sizes = dict(problem.sizes) | {name: len(inside), WHOLE[along]: len(places)}
    scalars = dict(problem.scalars) | ({PLACES[along - 1]: begin} if _is_whole(problem) and along else {})
    return cut, replace(problem, sizes=sizes, scalars=scalars, orders={}, padding={})


def cost(problem: Problem) -> Cost:
    """Return no flops, with every element of x read once and every one of y written once. Of a piece that is cut, all of it is counted."""
    size = DTYPES[_find_dtype(problem)]
    around = math.prod(problem.sizes[name] for name in (*OUTER, *INNER))
    read = size * around * sum(problem.sizes[name] for name in LENGTHS[: _count_pieces(problem)])
    written = size * math.prod(problem.sizes[name] for name in WHOLE) if _is_whole(problem) else read
    return Cost(flops=0, bytes_read=read, bytes_written=written)


THREADS = Tunable("threads", (128, 256, 512), "threads of a block")
TILE_THREADS = Tunable("threads", (256, 512), "threads of a block; fewer would hold too much of a tile in registers")
ITEMS = Tunable("items", (1, 2, 4, 8), "accesses that a thread has under way")
STREAM = Tunable("stream", (0, 1), "whether what is read by wide accesses leaves L2 before others")


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
        (TILE_THREADS, ITEMS),
        (),
        ({"threads": 256, "items": 2}, {"threads": 256, "items": 4}, {"threads": 512, "items": 2}),
        domain=_serve,
        tile=_find_tile,
    ),
    Kernel(
        "gathered",
        "a kernel per way, for launches that have one; small tiles for small pieces; one piece in a dense y by packs of y, zeros and all",
        (TILE_THREADS, ITEMS),
        (),
        ({"threads": 256, "items": 2}, {"threads": 256, "items": 4}, {"threads": 512, "items": 2}),
        domain=_serve,
        tile=_find_tile,
    ),
    Kernel(
        "cut",
        "the same, and tiles whose lines or columns begin anywhere are cut at sectors of y, which no two blocks write then",
        (TILE_THREADS, ITEMS, STREAM),
        (),
        ({"threads": 256, "items": 4, "stream": 1},),
        domain=_serve,
        tile=_find_tile,
    ),
)


def choose(problem: Problem) -> Choice:
    """Return the kernel that has every way."""
    return Choice(KERNELS[-1].bind(KERNELS[-1].variants[0]), "it decides per launch between packs of y, runs, rows and tiles")


_NHWC_OF_NCHW = (0, 1, 3, 4, 2)  # how [a, b, n, c, d] lies in memory where the middle axis is innermost


def _problem(
    suite: str,
    shape: tuple[int, int, tuple[int, ...], int, int],
    dtype: str = "float32",
    orders: Mapping[str, tuple[int, ...]] | None = None,
    whole: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    **padding: tuple[int, ...],
) -> Problem:
    """``whole`` has the extents of what the pieces are put into, and where the first begins."""
    a, b, lengths, c, d = shape
    filled = (*lengths, *[lengths[0]] * (MAX_PIECES - len(lengths)))
    extents, places = whole or ((a, b, lengths[0], c, d), ())
    sizes = {"a": a, "b": b, **dict(zip(LENGTHS, filled, strict=True)), "c": c, "d": d, **dict(zip(WHOLE, extents, strict=True))}
    attributes = {"dtype": dtype, "pieces": len(lengths), "whole": whole is not None}
    scalars = {name: float(at) for name, at in zip(PLACES, places[1:], strict=False) if at}
    return Problem(sizes, attributes, dict(padding), frozenset(suite.split()), scalars=scalars, orders=orders or {})


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
    _problem("verify", (1, 18, (3,), 41, 12), "uint8", {"x0": (4, 2, 0, 3, 1)}),
    _problem("verify", (2, 3, (6,), 10, 55), "float16", {"x0": (0, 1, 4, 3, 2)}, x0=(0, 0, 0, 0, 1)),
    _problem("verify", (2, 1, (3,), 9, 30), "float16", whole=((2, 1, 3, 11, 33), (0, 0, 0, 1, 2))),
    _problem("verify", (1, 7, (40, 3, 81), 1, 2), "bfloat16", whole=((1, 7, 124, 1, 2), (0, 0, 0, 0, 0))),
    _problem("verify", (2, 3, (4, 5), 3, 6), "int64", {"y0": _NHWC_OF_NCHW}, whole=((2, 4, 12, 5, 9), (0, 1, 2, 1, 3))),
    _problem("verify", (3, 4, (9, 9, 9), 5, 20), "uint8", whole=((3, 6, 21, 4, 23), (0, 1, -3, -1, 4)), y0=(0, 0, 0, 7, 0)),
    _problem("verify", (1, 2, (5,), 2, 3), "float32", whole=((1, 3, 4, 2, 2), (0, 0, 4, 0, 0))),
    _problem("emulated", (4, 1, (64,), 28, 28), "float16", {"y0": _NHWC_OF_NCHW}),
    _problem(
        "emulated", (1, 64, (512, 256, 256), 1, 8), "bfloat16", None, y0=(0, 4096, 0, 0, 0), y1=(0, 6144, 0, 0, 0), y2=(0, 6144, 0, 0, 0)
    ),
    _problem("emulated", (8, 16, (12,), 8, 32), "float32", {"x0": (0, 2, 1, 3, 4)}),
    _problem(
        "emulated", (1, 301, (1000, 333, 77), 1, 1), "float16", None, y0=(0, 410, 0, 0, 0), y1=(0, 1077, 0, 0, 0), y2=(0, 1333, 0, 0, 0)
    ),
    _problem("emulated", (2, 1, (64,), 28, 28), "float16", whole=((2, 1, 64, 30, 30), (0, 0, 0, 1, 1))),
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
    _problem("bench", (64, 1, (256,), 56, 56), "float16", whole=((64, 1, 256, 58, 58), (0, 0, 0, 1, 1))),
    _problem("bench", (1, 8192, (4096, 1024, 1024), 1, 1), "bfloat16", whole=((1, 8192, 6144, 1, 1), (0, 0, 0, 0, 0))),
    _problem("bench", (1, 1, (8192,), 1, 8192), "uint8", {"x0": (0, 1, 4, 3, 2)}),
    _problem("bench", (1, 1, (6000,), 1, 5000), "int64", {"x0": (0, 1, 4, 3, 2)}),
)


def _make_tensor(stem: str, i: int, role: Role) -> Tensor:
    shape = (*OUTER, LENGTHS[i], *INNER)
    is_output = role is Role.OUTPUT
    return Tensor(
        f"{stem}{i}",
        (lambda p: WHOLE if _is_whole(p) else shape) if is_output and i == 0 else shape,
        role,
        _find_dtype,
        strides=Strides.ANY,
        present=lambda p: i < _count_pieces(p) and not (is_output and i > 0 and _is_whole(p)),
    )


# Places lie this far from the first at most, on either side.
_FAR = 2.0**40

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
        Attribute("whole", (False, True), False),
    ),
    scalars=tuple(Scalar(name, 0, -_FAR, _FAR, "int64") for name in PLACES),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    choose=choose,
    sampling=Sampling((0,), restrict, find_axis),
    ties=(
        *(Tie((OneOf("pieces", (count,)),), equal=tuple((name, "n0") for name in LENGTHS[count:])) for count in range(1, MAX_PIECES)),
        Tie((OneOf("whole", (False,)),), equal=tuple(zip(WHOLE[1:], ("b", "n0", *INNER), strict=True))),
    ),
    distributions=("normal", "ties", "denormal", "nonfinite"),
    population=POPULATION,
)
