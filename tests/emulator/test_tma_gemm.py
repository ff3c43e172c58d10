"""A GEMM as Hopper's are: tensor copies, mbarriers, wgmma, specialised warps. Against NumPy, over all schedules, and with faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from .cuda_runtime import Runtime
from .kernels import Kernels, build, kinds

SOURCE = Path(__file__).with_name("tma_gemm.cu")
CHECKS = "all"
SCHEDULES = ("default", "reversed", "greedy", "random")


@pytest.fixture(scope="session")
def gemm_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("tma_gemm"))


@pytest.fixture
def kernels(emulator: Runtime, gemm_library: Path) -> Kernels:
    return Kernels(emulator, gemm_library)


def _bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def _float(values: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (values.astype(np.uint32) << 16).view(np.float32)


def _run(kernels: Kernels, m: int, n: int, k: int, fault: int = 0, **options: Any) -> tuple[Any, Any, list[dict[str, Any]]]:
    random = np.random.default_rng(m + n + k)
    a, b = (_bf16(random.standard_normal(shape).astype(np.float32)) for shape in ((m, k), (n, k)))
    checks = options.pop("checks", CHECKS)
    with kernels.options(**options):
        results, reports = kernels.run("gemm", a, b, np.zeros((m, n), np.float32), m, n, k, fault, checks=checks)
    return results[2] if results else None, _float(a).astype(np.float64) @ _float(b).T.astype(np.float64), reports


@pytest.mark.parametrize("shape", [(128, 128, 64), (256, 128, 640), (200, 136, 200)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_product(kernels: Kernels, shape: tuple[int, int, int], schedule: str) -> None:
    out, expected, reports = _run(kernels, *shape, schedule=schedule, seed=1)
    assert not reports
    assert np.abs(out - expected).max() <= 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (2, {"async_copy_in_flight"}),  # nobody waits for the tiles
        (5, {"missing_proxy_fence"}),
        (6, {"mbarrier_overflow"}),  # fewer bytes announced than copied
        (7, {"bulk_copy_unfinished"}),
    ],
)
def test_faults(kernels: Kernels, fault: int, expected: set[str]) -> None:
    _, _, reports = _run(kernels, 128, 128, 640, fault)
    assert expected <= kinds(reports)
