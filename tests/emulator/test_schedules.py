"""Right kernels against NumPy under every schedule: nothing found, and each time the same bits. Tensor-core products are elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from .cuda_runtime import Runtime
from .kernels import Kernels, build

SCHEDULES = ("default", "reversed", "greedy", "random")
Array = NDArray[Any]


@pytest.fixture(scope="module")
def libraries(kernels_library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    own = build(Path(__file__).with_name("schedules.cu"), tmp_path_factory.mktemp("schedules"))
    return {path.stem: path for path in (kernels_library, own)}


def run(emulator: Runtime, library: Path, name: str, *args: Any) -> list[list[Array]]:
    """The kernel's arrays after its run under each schedule."""
    kernels = Kernels(emulator, library)
    found = []
    for schedule in SCHEDULES:
        with kernels.options(schedule=schedule, seed=11, instruction_limit=20_000_000):
            arrays, reports = kernels.run(name, *args)
        assert not reports, (schedule, reports)
        found.append(arrays)
    return found


def saxpy(rng: np.random.Generator) -> tuple[tuple[Any, ...], Array]:
    x, y = rng.random(1000, np.float32), rng.random(1000, np.float32)
    return (1000, c_float(2.5), x, y), np.float32(2.5) * x + y


def matmul(rng: np.random.Generator) -> tuple[tuple[Any, ...], Array]:
    a, b = rng.random((75, 41), np.float32), rng.random((41, 50), np.float32)
    return (a, b, np.zeros((75, 50), np.float32), 75, 50, 41, 0), a @ b


def softmax(rng: np.random.Generator) -> tuple[tuple[Any, ...], Array]:
    x = rng.standard_normal((5, 300)).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return (x, np.zeros_like(x), 5, 300), e / e.sum(1, keepdims=True)


def layernorm(rng: np.random.Generator) -> tuple[tuple[Any, ...], Array]:
    x = rng.standard_normal((6, 200)).astype(np.float32)
    wide = x.astype(np.float64)
    return (x, np.zeros_like(x), 6, 200), (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)


def scan(rng: np.random.Generator) -> tuple[tuple[Any, ...], Array]:
    x = rng.integers(-9, 9, 512, np.int32)
    return (x, np.zeros_like(x), 512), np.cumsum(x, dtype=np.int32)


def histogram(rng: np.random.Generator) -> tuple[tuple[Any, ...], Array]:
    x = rng.integers(0, 256, 5000, np.uint8)
    return (x, 5000, np.zeros(256, np.uint32)), np.bincount(x, minlength=256)


def transpose(rng: np.random.Generator) -> tuple[tuple[Any, ...], Array]:
    x = rng.random((64, 64), np.float32)
    return (x, np.zeros_like(x), 64, 1), x.T


def sort(rng: np.random.Generator) -> tuple[tuple[Any, ...], Array]:
    x = rng.integers(0, 1 << 32, 3000, np.uint32)
    return (x, np.zeros_like(x), 3000), np.sort(x)


def branches(rng: np.random.Generator) -> tuple[tuple[Any, ...], Array]:
    def value(t: int) -> int:
        if t & 1:
            return sum(i for i in range(t) if i % 3) if t & 2 else -t
        return max(2, t) if t < 16 else 1000 + (t if t % 4 == 0 else -t)

    return (np.zeros(64, np.int32),), np.array([value(t) + 32 for t in range(64)])


CASES: dict[str, tuple[str, Callable[[np.random.Generator], tuple[tuple[Any, ...], Array]]]] = {
    "saxpy": ("kernels", saxpy),
    "matmul": ("kernels", matmul),
    "softmax": ("kernels", softmax),
    "layernorm": ("schedules", layernorm),
    "scan": ("kernels", scan),
    "histogram": ("kernels", histogram),
    "transpose": ("kernels", transpose),
    "sort": ("schedules", sort),
    "branches": ("schedules", branches),
}


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_gives_the_same_right_bits(emulator: Runtime, libraries: dict[str, Path], name: str) -> None:
    source, make = CASES[name]
    args, expected = make(np.random.default_rng(7))
    outputs = [arrays[-1] for arrays in run(emulator, libraries[source], name, *args)]
    assert all(np.array_equal(out.view(np.uint8), outputs[0].view(np.uint8)) for out in outputs)
    assert np.abs(outputs[0].astype(np.float64) - expected).max() <= (1e-4 if outputs[0].dtype.kind == "f" else 0)
