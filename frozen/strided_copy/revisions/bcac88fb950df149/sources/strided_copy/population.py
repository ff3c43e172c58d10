"""What users bring to strided_copy: layouts of images, heads of attention, permutations, slices, and arrays that are joined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from harness.spec import Group, LogRange, Population

MAX_PIECES = 8
DTYPES: Mapping[str, int] = MappingProxyType(
    {
        "float32": 4,
        "bfloat16": 2,
        "float16": 2,
        "float64": 8,
        "int8": 1,
        "uint8": 1,
        "int16": 2,
        "int32": 4,
        "int64": 8,
        "bool": 1,
    }
)
PEERS = ("torch_eager", "torch_compile")
_FLOATS = ("float32", "bfloat16", "float16")
_MIN_ELEMS, _MAX_ELEMS = 1 << 16, 1 << 27


def _fits(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= sizes["n0"] * math.prod(sizes[name] for name in "abcd") <= _MAX_ELEMS


def _same(name: str) -> Callable[[Mapping[str, int]], int]:
    return lambda sizes: sizes[name]


_ALONE = {f"n{i}": _same("n0") for i in range(1, MAX_PIECES)}
_IMAGES = {"a": LogRange(1, 256), "b": (1,), "n0": LogRange(3, 2048), **_ALONE, "c": LogRange(7, 256), "d": _same("c")}
# How [a, b, n, c, d] lies where the middle axis is innermost, and where rows and columns are exchanged.
_CHANNELS_LAST, _TURNED, _REVERSED = (0, 1, 3, 4, 2), (0, 1, 4, 3, 2), (4, 3, 2, 1, 0)

POPULATION = Population(
    (
        Group(
            "nchw_to_nhwc",
            "images, channels last in y",
            _IMAGES,
            PEERS,
            {"dtype": _FLOATS},
            weight=2,
            keep=_fits,
            orders={"y0": (_CHANNELS_LAST,)},
        ),
        Group(
            "nhwc_to_nchw",
            "images, channels last in x",
            _IMAGES,
            PEERS,
            {"dtype": _FLOATS},
            weight=2,
            keep=_fits,
            orders={"x0": (_CHANNELS_LAST,)},
        ),
        Group(
            "heads",
            "heads of attention, around rows or inside of them",
            {
                "a": LogRange(1, 32),
                "b": (1,),
                "n0": LogRange(128, 8192),
                **_ALONE,
                "c": (8, 12, 16, 32),
                "d": (64, 80, 128),
            },
            PEERS,
            {"dtype": _FLOATS},
            keep=_fits,
            orders={"x0": ((0, 1, 3, 2, 4),)},
        ),
        Group(
            "permutations",
            "five axes in another order",
            {"a": LogRange(1, 64), "b": LogRange(2, 64), "n0": LogRange(2, 256), **_ALONE, "c": LogRange(2, 64), "d": LogRange(2, 256)},
            PEERS,
            {"dtype": (*_FLOATS, "int64", "uint8")},
            weight=2,
            keep=_fits,
            orders={"x0": ((4, 2, 0, 3, 1), _REVERSED, _TURNED, (0, 2, 1, 3, 4), (3, 0, 4, 1, 2))},
        ),
        Group(
            "slices",
            "part of the rows' elements",
            {"a": (1,), "b": LogRange(256, 65536), "n0": LogRange(16, 8192), **_ALONE, "c": (1,), "d": (1, 2, 8)},
            PEERS,
            {"dtype": (*_FLOATS, "uint8")},
            keep=_fits,
            padding={"x0": ((0, 1, 0, 0, 0), (0, 64, 0, 0, 0), (0, 4096, 0, 0, 0))},
        ),
        Group(
            "joined",
            "two to eight pieces, each a part of longer rows in y",
            {
                "a": (1,),
                "b": LogRange(256, 16384),
                **{f"n{i}": LogRange(1, 4096) for i in range(MAX_PIECES)},
                "c": (1,),
                "d": (1, 8),
            },
            PEERS,
            {"dtype": _FLOATS, "pieces": (MAX_PIECES,)},
            weight=2,
            keep=_fits,
            padding={f"y{i}": ((0, 8192, 0, 0, 0), (0, 12345, 0, 0, 0)) for i in range(MAX_PIECES)},
        ),
    )
)
