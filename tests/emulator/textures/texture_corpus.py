"""Texture fetches and surface operations with their inputs; needs NumPy alone.

``texture_record.py`` records what a GPU gives, ``test_texture_goldens.py`` compares the emulator with it.
"""

from __future__ import annotations

import ctypes
import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_POINTS = 128
GEOMETRIES = ("1d", "2d", "3d", "layered 1d", "layered 2d", "cube", "layered cube")
OPERATIONS = ("fetch", "level", "gradient", "gather", "integer")
MODES = ("wrap", "clamp", "mirror", "border")
SIGNED, UNSIGNED, FLOAT = range(3)
TEXELS = {
    "f32": (32, 1, FLOAT),
    "f32x4": (32, 4, FLOAT),
    "f16x2": (16, 2, FLOAT),
    "u8x4": (8, 4, UNSIGNED),
    "s8x2": (8, 2, SIGNED),
    "u16": (16, 1, UNSIGNED),
    "s16x2": (16, 2, SIGNED),
    "s32": (32, 1, SIGNED),
}
EXTENTS = {"1d": (16, 1, 0), "2d": (16, 8, 0), "3d": (8, 4, 4), "layered 1d": (16, 1, 3), "layered 2d": (8, 8, 3), "cube": (8, 8, 6)}
EXTENTS["layered cube"] = (4, 4, 12)


class CCase(ctypes.Structure):
    """``Case`` of ``cases.cu``."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("geometry", "operation", "component", "bits", "channels", "kind", "width", "height", "depth")),
        ("linear", ctypes.c_int),
        ("address", ctypes.c_int * 3),
        *((name, ctypes.c_int) for name in ("normalized", "normalized_read", "srgb", "levels", "linear_mipmap")),
        *((name, ctypes.c_float) for name in ("bias", "least", "most")),
        ("border", ctypes.c_float * 4),
        ("linear_memory", ctypes.c_int),
    )


@dataclass(frozen=True)
class Case:
    """One texture and what is fetched from it."""

    geometry: str = "2d"
    texel: str = "f32"
    operation: str = "fetch"
    linear: bool = False
    address: str = "clamp"
    normalized: bool = False
    normalized_read: bool = False
    srgb: bool = False
    levels: int = 1
    linear_mipmap: bool = False
    bias: float = 0.0
    least: float = 0.0
    component: int = 0
    linear_memory: int = 0
    size: tuple[int, int, int] | None = None

    @property
    def name(self) -> str:
        words = [self.geometry, self.texel, self.operation, "linear" if self.linear else "point", self.address]
        words += [word for word in ("normalized", "normalized_read", "srgb", "linear_mipmap") if getattr(self, word)]
        words += [
            f"{word}={value}" for word in ("levels", "bias", "least", "component", "linear_memory", "size") if (value := self._of(word))
        ]
        return " ".join(words)

    def _of(self, word: str) -> Any:
        value = getattr(self, word)
        return value if value != type(self).__dataclass_fields__[word].default else None

    @property
    def extent(self) -> tuple[int, int, int]:
        return self.size or EXTENTS[self.geometry]

    @property
    def channels(self) -> int:
        return TEXELS[self.texel][1]

    def to_c(self) -> CCase:
        bits, channels, kind = TEXELS[self.texel]
        width, height, depth = self.extent
        made = CCase(GEOMETRIES.index(self.geometry), OPERATIONS.index(self.operation), self.component, bits, channels, kind)
        made.width, made.height, made.depth, made.linear = width, height, depth, self.linear
        made.address = (ctypes.c_int * 3)(*([MODES.index(self.address)] * 3))
        made.normalized, made.normalized_read, made.srgb = self.normalized, self.normalized_read, self.srgb
        made.levels, made.linear_mipmap = self.levels, self.linear_mipmap
        made.bias, made.least, made.most = self.bias, self.least, float(self.levels - 1)
        made.border = (ctypes.c_float * 4)(0.25, 0.5, -0.75, 1.0)
        made.linear_memory = self.linear_memory
        return made


def make_corpus() -> list[Case]:
    return list(dict.fromkeys(_cases()))


def _cases() -> Iterator[Case]:
    for geometry, linear in itertools.product(GEOMETRIES, (False, True)):
        is_cube = "cube" in geometry
        yield Case(geometry, linear=linear, address="clamp", normalized=is_cube)
        yield Case(geometry, linear=linear, address="border" if not is_cube else "clamp", normalized=True)
    for linear, address in itertools.product((False, True), MODES):
        yield Case(linear=linear, address=address, normalized=True)
        yield Case("1d", linear=linear, address=address, normalized=True)
        yield Case(linear=linear, address=address, normalized=True, size=(13, 7, 0))  # no powers of two
        if address in ("clamp", "border"):
            yield Case(linear=linear, address=address)
    for texel, (_, _, kind) in TEXELS.items():
        for linear in (False, True):
            if kind == FLOAT:
                yield Case(texel=texel, linear=linear, address="border")
            elif texel != "s32":
                yield Case(texel=texel, linear=linear, address="border", normalized_read=True)
            if kind != FLOAT and not linear:
                yield Case(texel=texel, linear=linear, address="border")
    yield from (Case(texel="u8x4", linear=linear, normalized_read=True, srgb=True) for linear in (False, True))
    for geometry in ("1d", "2d", "3d", "layered 1d", "layered 2d", "cube", "layered cube"):
        for linear, linear_mipmap in ((False, False), (True, False), (True, True)):
            yield Case(geometry, operation="level", linear=linear, linear_mipmap=linear_mipmap, levels=3, normalized=True)
    for geometry in ("1d", "2d", "3d", "layered 1d", "layered 2d"):
        for linear_mipmap in (False, True):
            yield Case(geometry, operation="gradient", linear=True, linear_mipmap=linear_mipmap, levels=3, normalized=True)
    yield Case(operation="level", linear=True, linear_mipmap=True, levels=3, normalized=True, bias=0.4, least=0.3)
    for component in range(4):
        yield Case(texel="f32x4", operation="gather", component=component)
        yield Case(texel="u8x4", operation="gather", component=component, address="border", normalized=True)
    for texel in ("f32x4", "u8x4", "s16x2"):
        yield Case("1d", texel, "integer", linear_memory=1, size=(32, 1, 0))
    for linear in (False, True):
        yield Case(linear=linear, linear_memory=2, size=(32, 8, 0))
        yield Case(linear=linear, linear_memory=2, size=(32, 8, 0), address="wrap", normalized=True)
        yield Case(texel="u8x4", linear=linear, linear_memory=2, normalized_read=True, size=(32, 8, 0))


def make_pixels(case: Case) -> NDArray[np.uint8]:
    """Return the texels of all levels, one after another."""
    bits, channels, kind = TEXELS[case.texel]
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    width, height, depth = case.extent
    flat = case.geometry.endswith("1d")
    levels = []
    for level in range(case.levels):
        w, h = max(width >> level, 1), 1 if flat else max(height >> level, 1)
        d = max(depth >> level, 1) if case.geometry == "3d" else max(depth, 1)
        shape = (d, h, w, channels)
        if kind == FLOAT:
            values = (rng.standard_normal(shape) * 4).astype(np.float32 if bits == 32 else np.float16)
            levels.append(values.view(np.uint8).ravel())
        else:
            levels.append(rng.integers(0, 256, (*shape, bits // 8), np.uint8).ravel())
    return np.concatenate(levels)


def make_points(case: Case) -> NDArray[np.float32]:
    """Return [points, 8]: x, y, z, layer, then level of detail or gradients."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()) ^ 1)
    sizes = np.array([*case.extent[:2], max(case.extent[2], 1)], np.float64)
    points = np.zeros((NUM_POINTS, 8), np.float64)
    if "cube" in case.geometry:
        points[:, :3] = rng.standard_normal((NUM_POINTS, 3))
        points[:8, :3] = rng.integers(-1, 2, (8, 3)) * 1.0 + np.array([0, 0, 0.125])
    else:
        points[:, :3] = rng.uniform(-0.7, 1.7, (NUM_POINTS, 3)) * sizes
        half = NUM_POINTS // 2
        near = np.floor(points[half:, :3] * 2) / 2  # centres and borders of texels, and just beside them
        points[half:, :3] = near + rng.choice([0, 1 / 512, -1 / 512, 1 / 256, 3 / 1024, 1 / 1024], (half, 3))
        if case.normalized:
            points[:, :3] /= sizes
    points[:, 3] = rng.integers(-1, 5, NUM_POINTS)
    points[:, 4] = rng.uniform(-1, 3, NUM_POINTS)
    if case.operation == "gradient":
        points[:, 4:] = rng.uniform(-0.4, 0.4, (NUM_POINTS, 4))
    if case.operation == "integer":
        points[:, 0] = rng.integers(-3, 36, NUM_POINTS)
    return points.astype(np.float32)


# Surfaces: kernel of cases.cu -> the texel it is tried on.
SURFACE_KERNELS = {
    "store_b32_clamp": "u32",
    "store_v4_b8_zero": "u8x4",
    "store_v2_b16_clamp": "s16x2",
    "store_p_v4": "u8x4 s8x4 u16x4 s16x4 f16x4 u32x4 f32x4",
    "store_p_one": "u8 s16 f16 u32 f32",
    "add_u32": "u32 s32",
    "min_s32": "s32 u32",
    "max_u32": "u32",
    "and_b32": "u32",
    "or_b32": "u32",
    "add_p": "u32 s32",
    "min_p": "u32 s32",
    "load_b32_zero": "u32 u8x4",
    "load_v4_b32_clamp": "f32x4",
}
SURFACE_WIDTH, SURFACE_HEIGHT, SURFACE_POINTS = 8, 8, 64


@dataclass(frozen=True)
class Surface:
    """One surface kernel on one format."""

    kernel: str
    texel: str

    @property
    def name(self) -> str:
        return f"surface {self.kernel} {self.texel}"

    @property
    def format(self) -> tuple[int, int, int]:
        """Bits, channels and kind."""
        scalar, _, channels = self.texel.partition("x")
        return int(scalar[1:]), int(channels or 1), "suf".index(scalar[0])


def make_surfaces() -> list[Surface]:
    return [Surface(kernel, texel) for kernel, texels in SURFACE_KERNELS.items() for texel in texels.split()]


def make_surface_inputs(surface: Surface) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint32]]:
    """Return the texels, the places [points, 2] and the values [points, 4]; no two stores go to one place."""
    rng = np.random.default_rng(zlib.crc32(surface.name.encode()))
    bits, channels, kind = surface.format
    texel = bits * channels // 8
    pixels = rng.integers(0, 256, SURFACE_WIDTH * SURFACE_HEIGHT * texel, np.uint8)
    is_sample = "_p" in surface.kernel
    spots = rng.permutation((SURFACE_WIDTH + 4) * (SURFACE_HEIGHT + 4))[:SURFACE_POINTS]
    places = np.stack([spots % (SURFACE_WIDTH + 4) - 2, spots // (SURFACE_WIDTH + 4) - 2], -1).astype(np.int32)
    is_store = surface.kernel.startswith("store")
    if "clamp" in surface.kernel or surface.kernel == "store_p_one":
        if is_store:  # clamped to the same texel, the last one to come would win
            places = np.stack(np.meshgrid(np.arange(SURFACE_WIDTH), np.arange(SURFACE_HEIGHT)), -1).reshape(-1, 2).astype(np.int32)
            places[-SURFACE_WIDTH:, 1] += 3
    elif not is_store:
        places = rng.integers(-1, SURFACE_WIDTH + 1, (SURFACE_POINTS, 2)).astype(np.int32)
    if not is_sample:
        places[:, 0] *= texel
    values = rng.integers(0, 2**32, (SURFACE_POINTS, 4), np.uint64).astype(np.uint32)
    if kind == FLOAT and is_sample:
        values = (rng.standard_normal((SURFACE_POINTS, 4)) * 1000).astype(np.float32).view(np.uint32)
    elif is_sample:
        values[: SURFACE_POINTS // 2] %= 300
    return pixels, places, values
