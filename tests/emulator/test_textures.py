"""Textures and surfaces by object, against a model of the rules in the CUDA C++ programming guide, "Texture Fetching"."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from .cuda_runtime import Runtime
from .kernels import Kernels, build, kinds

SOURCE = Path(__file__).with_name("texture.cu")
WRAP, CLAMP, MIRROR, BORDER = range(4)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("textures"))


@pytest.fixture
def kernels(emulator: Runtime, library: Path) -> Kernels:
    return Kernels(emulator, library)


def _index(i: int, size: int, address: int) -> int:
    """Index of the texel that stands for index `i`; -1 is the border."""
    if address == WRAP:
        return i % size
    if address == MIRROR:
        return i % (2 * size) if i % (2 * size) < size else 2 * size - 1 - i % (2 * size)
    return (i if 0 <= i < size else -1) if address == BORDER else min(max(i, 0), size - 1)


def _model(image: NDArray[np.float32], at: NDArray[np.float32], linear: bool, address: int, normalized: bool) -> list[float]:
    height, width = image.shape
    values = []
    for x, y in at.astype(np.float64):
        u, v = (x * width, y * height) if normalized else (x, y)
        if not linear:
            corners = [(int(np.floor(u)), int(np.floor(v)), 1.0)]
        else:
            i, j = (int(np.floor((c - 0.5) * 256 + 0.5)) for c in (u, v))
            a, b = i % 256 / 256, j % 256 / 256
            both = np.floor(a * b * 256 + 0.5) / 256  # weights are whole parts of 256
            weights = [1 - a - b + both, b - both, a - both, both]
            corners = [(i // 256 + n // 2, j // 256 + n % 2, weight) for n, weight in enumerate(weights)]
        total = 0.0
        for i, j, weight in corners:
            column, line = _index(i, width, address), _index(j, height, address)
            total += weight * (float(image[line, column]) if column >= 0 and line >= 0 else 0.0)
        values.append(total)
    return values


@pytest.mark.parametrize(
    ("linear", "address", "normalized"),
    [*itertools.product((0, 1), (CLAMP, BORDER), (0, 1)), *itertools.product((0, 1), (WRAP, MIRROR), (1,))],
)
def test_fetches(kernels: Kernels, linear: int, address: int, normalized: int) -> None:
    random = np.random.default_rng(4)
    image = random.standard_normal((8, 16)).astype(np.float32)
    at = random.uniform(-1.6, 2.6, (64, 2)).astype(np.float32)
    if not normalized:
        at *= np.array([16, 8], np.float32)
    arrays, reports = kernels.run("fetch", image, at, np.zeros(64, np.float32), 16, 8, 64, linear, address, normalized)
    assert reports == []
    assert np.allclose(arrays[2], _model(image, at, bool(linear), address, bool(normalized)), rtol=1e-6, atol=1e-6)


def test_bytes_are_read_as_fractions(kernels: Kernels) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (16, 4)).astype(np.uint8)
    arrays, reports = kernels.run("bytes", pixels, np.zeros((16, 4), np.float32))
    assert reports == [] and np.array_equal(arrays[1], (pixels / 255.0).astype(np.float32))


def test_linear_memory_gives_zeros_outside(kernels: Kernels) -> None:
    arrays, reports = kernels.run("words", np.arange(100, 132, dtype=np.int32), np.zeros(32, np.int32))
    assert reports == [] and arrays[1].tolist() == [0] * 4 + list(range(100, 124)) + [0] * 4


def test_layers_volumes_cubes_and_gathers(kernels: Kernels) -> None:
    arrays, reports = kernels.run("layers", np.arange(48, dtype=np.float32), np.zeros(64, np.float32))
    assert reports == [] and arrays[1].tolist() == [*range(48), *range(32, 48)]  # a layer beyond the last is the last
    arrays, reports = kernels.run("volume", np.repeat(np.arange(4, dtype=np.float32), 4), np.zeros(16, np.float32))
    assert reports == [] and arrays[1].tolist() == [min(i / 4, 3.0) for i in range(16)]
    arrays, reports = kernels.run("cube", np.repeat(np.arange(6, dtype=np.float32), 16), np.zeros(6, np.float32))
    assert reports == [] and arrays[1].tolist() == [*range(6)]
    arrays, reports = kernels.run("gather", np.arange(64, dtype=np.float32), np.zeros(4, np.float32))
    assert reports == [] and arrays[1].tolist() == [25, 26, 18, 17]


def test_surfaces(kernels: Kernels) -> None:
    arrays, reports = kernels.run("surface", np.zeros(32, np.float32), 0)
    lane = np.arange(32)
    assert reports == [] and np.array_equal(arrays[0], (lane % 4 ^ 1) + 10 * (lane // 4) + 3 + 10 * (lane // 4))


@pytest.mark.parametrize(("fault", "kind"), [(1, "uninitialized_read"), (2, "out_of_bounds_write"), (3, "texture_object")])
def test_faults(kernels: Kernels, fault: int, kind: str) -> None:
    assert kind in kinds(kernels.run("surface", np.zeros(32, np.float32), fault)[1])


def test_queries(kernels: Kernels) -> None:
    arrays, reports = kernels.run("queries", np.zeros(128, np.float32), np.zeros(6, np.int32), 0)
    assert reports == [] and arrays[1].tolist() == [16, 8, 8, 10, 1, 0]
    assert kinds(kernels.run("queries", np.zeros(128, np.float32), np.zeros(6, np.int32), 1)[1]) == {"texture_object"}
