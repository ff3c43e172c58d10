"""Whole matrix products on tensor cores, by mma.sync with cp.async and ldmatrix, and by wgmma with TMA: right, clean, and counted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from .cuda_runtime import ROOT, Runtime
from .kernels import Kernels, build

SOURCE = ROOT / "device" / "emulator" / "bench" / "throughput.cu"
N = 256


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("tensor_matmul"))


@pytest.fixture
def kernels(emulator: Runtime, library: Path) -> Kernels:
    return Kernels(emulator, library)


def make_bf16(seed: int) -> NDArray[np.uint16]:
    values = np.random.default_rng(seed).standard_normal((N, N)).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def widen(values: NDArray[np.uint16]) -> NDArray[np.float64]:
    return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("checks", ["all", "none", "memcheck", "initcheck", "synccheck", "racecheck"])
@pytest.mark.parametrize("kernel", ["tensor_matmul", "warpgroup_matmul"])
def test_product_is_right_and_clean(kernels: Kernels, kernel: str, checks: str) -> None:
    a, b = make_bf16(1), make_bf16(2)
    (_, _, c), reports = kernels.run(kernel, a, b, np.zeros((N, N), np.float32), N, checks=checks)
    assert not reports
    assert np.abs(c - widen(a) @ widen(b).T).max() < 1e-3


@pytest.mark.parametrize("kernel", ["tensor_matmul", "warpgroup_matmul"])
def test_every_schedule_gives_the_same_bits(kernels: Kernels, kernel: str) -> None:
    products = []
    for schedule in ("default", "reversed", "greedy", "random"):
        with kernels.options(schedule=schedule, seed=5):
            (_, _, c), reports = kernels.run(kernel, make_bf16(1), make_bf16(2), np.zeros((N, N), np.float32), N)
        assert not reports, schedule
        products.append(c.view(np.uint32))
    assert all(np.array_equal(c, products[0]) for c in products)


@pytest.mark.parametrize("kernel", ["tensor_matmul", "warpgroup_matmul"])
def test_product_is_counted(kernels: Kernels, kernel: str) -> None:
    kernels.cuda.library.aicfEmulatorTakeCounters()
    with kernels.options(counters=1):
        kernels.run(kernel, make_bf16(1), make_bf16(2), np.zeros((N, N), np.float32), N, checks="none")
    (launch,) = json.loads(kernels.cuda.library.aicfEmulatorTakeCounters())
    counts = launch["counts"]
    blocks, tile_bytes, matrix_bytes = 4, 128 * 2, 2 * N * N
    fetched = blocks * 2 * tile_bytes * N  # each block reads 128 rows of A and of B
    assert counts["tensor_flops_bf16"] == 2 * N**3
    assert counts["global_unique_bytes_read"] == 2 * matrix_bytes
    assert counts["global_unique_bytes_written"] == counts["global_store_bytes"] == 4 * N * N
    assert counts["global_block_bytes_read"] == fetched
    assert counts["shared_load_conflicts"] == 0
    if kernel == "tensor_matmul":
        warps, steps = 8 * blocks, N // 16
        assert counts["tensor"] == warps * steps * 16
        assert counts["matrix_loads"] == warps * steps * 6
        assert counts["shared_load_wavefronts"] == counts["matrix_loads"] * 4
        assert counts["async_copy_bytes"] == counts["global_load_bytes"] == fetched
        assert counts["async_waits"] == warps * N // 32
    else:
        assert counts["tensor"] == 4 * blocks * (N // 16) * 2
        assert counts["bulk_copies"] == blocks * 2 * (N // 64)
        assert counts["bulk_load_bytes"] == fetched
        assert counts["bulk_load_sectors"] == fetched // 32
        assert counts["shared_loads"] == 0
        assert counts["mbarrier_arrivals"] == blocks * (N // 64)
