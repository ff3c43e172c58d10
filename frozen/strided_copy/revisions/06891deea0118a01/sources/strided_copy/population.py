"""What users bring to strided_copy: layouts of images, heads of attention, permutations, slices, and arrays that are joined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from harness.spec import Group, LogRange, Population, SizeRule

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
_MIN_ELEMS, _MAX_ELEMS = 1 << 15, 1 << 28  # of 16 bits from 64 KiB on; 1 GiB of fp32


def _fits(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= sizes["n0"] * math.prod(sizes[name] for name in "abcd") <= _MAX_ELEMS


def _fits_joined(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= math.prod(sizes[name] for name in ("a", "yb", "yn", "yc", "yd")) <= _MAX_ELEMS


def _same(name: str, more: int = 0) -> Callable[[Mapping[str, int]], int]:
    return lambda sizes: sizes[name] + more


def _add_up(pieces: int) -> Callable[[Mapping[str, int]], int]:
    return lambda sizes: sum(sizes[f"n{i}"] for i in range(pieces))


def _join(pieces: int, lengths: SizeRule, inner: SizeRule) -> Mapping[str, SizeRule]:
    drawn = {f"n{i}": lengths if i < pieces else _same("n0") for i in range(MAX_PIECES)}
    return {"a": (1,), "b": LogRange(256, 65536), **drawn, "c": (1,), "d": inner, **_APART, "yn": _add_up(pieces)}


_ALONE = {f"n{i}": _same("n0") for i in range(1, MAX_PIECES)}
_APART = {"yb": _same("b"), "yn": _same("n0"), "yc": _same("c"), "yd": _same("d")}
_IMAGES: Mapping[str, SizeRule] = {
    "a": LogRange(1, 256),
    "b": (1,),
    "n0": (3, 16, 24, 32, 64, 96, 128, 192, 256, 320, 512, 768, 1024, 1280, 2048),
    **_ALONE,
    "c": (7, 14, 28, 32, 56, 64, 112, 128, 224, 256),
    "d": _same("c"),
    **_APART,
}
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
            "matrices",
            "matrices transposed, one or many, of any dtype",
            {"a": (1, 1, 4, 32), "b": (1,), "n0": LogRange(64, 16384), **_ALONE, "c": (1,), "d": LogRange(64, 16384), **_APART},
            PEERS,
            {"dtype": tuple(DTYPES)},
            weight=2,
            keep=_fits,
            orders={"x0": (_TURNED,)},
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
                **_APART,
            },
            PEERS,
            {"dtype": _FLOATS},
            keep=_fits,
            orders={"x0": ((0, 1, 3, 2, 4),)},
        ),
        Group(
            "permutations",
            "five axes in another order",
            {
                "a": LogRange(1, 64),
                "b": LogRange(2, 64),
                "n0": LogRange(2, 256),
                **_ALONE,
                "c": LogRange(2, 64),
                "d": LogRange(2, 256),
                **_APART,
            },
            PEERS,
            {"dtype": (*_FLOATS, "int64", "uint8")},
            weight=2,
            keep=_fits,
            orders={"x0": ((4, 2, 0, 3, 1), _REVERSED, _TURNED, (0, 2, 1, 3, 4), (3, 0, 4, 1, 2))},
        ),
        Group(
            "slices",
            "part of the rows' elements",
            {"a": (1,), "b": LogRange(256, 65536), "n0": LogRange(16, 8192), **_ALONE, "c": (1,), "d": (1, 2, 8), **_APART},
            PEERS,
            {"dtype": (*_FLOATS, "uint8")},
            weight=2,
            keep=_fits,
            padding={"x0": ((0, 1, 0, 0, 0), (0, 64, 0, 0, 0), (0, 4096, 0, 0, 0))},
        ),
        Group(
            "joined",
            "two pieces joined, rows of any length or whole heads",
            _join(2, LogRange(1, 8192), (1, 1, 8, 64)),
            PEERS,
            {"dtype": (*_FLOATS, "int64"), "pieces": (2,), "whole": (True,)},
            weight=2,
            keep=_fits_joined,
        ),
        Group(
            "joined_many",
            "eight pieces joined",
            _join(MAX_PIECES, LogRange(1, 2048), (1, 8)),
            PEERS,
            {"dtype": _FLOATS, "pieces": (MAX_PIECES,), "whole": (True,)},
            keep=_fits_joined,
        ),
        Group(
            "padded",
            "images with a margin of one place of zeros",
            {**_IMAGES, "yc": _same("c", 2), "yd": _same("d", 2)},
            PEERS,
            {"dtype": _FLOATS, "whole": (True,)},
            keep=_fits,
            scalars={"at_c": (1.0,), "at_d": (1.0,)},
        ),
    )
)
