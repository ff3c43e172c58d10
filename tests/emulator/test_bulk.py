"""Bulk copies: a pipeline of loads and stores and what goes wrong with one, reductions, asynchronous stores, changed tensor maps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .kernels import Kernels, build, kinds
from .tma_device import TensorDevice
from .tma_model import F32, Copy

SOURCE = Path(__file__).with_name("bulk.cu")
SCHEDULES = ("default", "reversed", "greedy", "random")
TILES = 6
CHECKS = "all"
ILLEGAL_INSTRUCTION = 715


@pytest.fixture(scope="session")
def bulk_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("bulk"))


@pytest.fixture(scope="session")
def tensor_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE.with_name("tma.cu"), tmp_path_factory.mktemp("bulk_tma"))


@pytest.fixture
def kernels(emulator: Runtime, bulk_library: Path) -> Kernels:
    return Kernels(emulator, bulk_library)


def _scale(kernels: Kernels, fault: int, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    values = np.random.default_rng(1).standard_normal(TILES * 256).astype(np.float32)
    with kernels.options(**options):
        results, reports = kernels.run("scale", values, np.zeros_like(values), TILES, fault, checks=CHECKS)
    return (2 * values, results[1]) if results else None, reports


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pipeline(kernels: Kernels, schedule: str) -> None:
    for seed in range(3):
        both, reports = _scale(kernels, 0, schedule=schedule, seed=seed)
        assert not reports and np.array_equal(*both)


def test_pipeline_without_checks(kernels: Kernels) -> None:
    values = np.arange(TILES * 256, dtype=np.float32)
    (_, out), reports = kernels.run("scale", values, np.zeros_like(values), TILES, 0, checks="none")
    assert not reports and np.array_equal(out, 2 * values)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (1, {"async_copy_in_flight"}),  # nothing announces the bytes
        (2, {"async_copy_in_flight"}),  # nobody waits for them
        (3, {"async_copy_in_flight"}),  # the wrong parity
        (4, {"deadlock"}),  # more announced than copied
        (5, {"mbarrier_overflow"}),  # fewer announced than copied
        (7, {"async_source_overwritten"}),  # the buffer of a store is written before the store has read it
        (9, {"missing_proxy_fence"}),
        (8, {"bulk_copy_unfinished"}),
        (10, {"misaligned_access"}),
        (11, {"misaligned_access"}),
    ],
)
def test_faults(kernels: Kernels, fault: int, expected: set[str]) -> None:
    start = time.monotonic()
    _, reports = _scale(kernels, fault)
    assert expected <= kinds(reports) and time.monotonic() - start < 1


def test_deadlock_says_what_is_missing(kernels: Kernels) -> None:
    _, reports = _scale(kernels, 4)
    (report,) = (r for r in reports if r["kind"] == "deadlock")
    assert "lacks 0 of 1 arrivals and 16 bytes: 1040 were announced, 1024 delivered" in str(report["text"])


def test_early_overwrite_of_a_source_shows(kernels: Kernels) -> None:
    """Without wait_group.read the buffer of a store is written again before the store has read it."""
    both, _ = _scale(kernels, 7)
    assert both is not None and not np.array_equal(*both)


@pytest.mark.parametrize("op", range(14))
def test_reductions(kernels: Kernels, op: int) -> None:
    random = np.random.default_rng(op)
    dtype = {1: np.int32, 2: np.uint64, 4: np.uint64, 8: np.float32, 9: np.float64, 10: np.float16, 12: np.float16}.get(op, np.uint32)
    if op in (11, 13):  # bf16, by hand
        a, b = ((random.standard_normal(64).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for _ in range(2))
        wide = [(x.astype(np.uint32) << 16).view(np.float32) for x in (a, b)]
        bits = (np.add if op == 11 else np.maximum)(*wide).view(np.uint32)
        expected: Any = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    elif np.issubdtype(dtype, np.floating):
        a, b = (random.standard_normal(64).astype(dtype) for _ in range(2))
        expected = np.minimum(a, b) if op == 12 else a + b
    else:
        limits = np.iinfo(dtype)
        low, high = (0, 9) if op in (6, 7) else (limits.min, limits.max)
        a, b = (random.integers(low, high, 64, dtype, endpoint=True) for _ in range(2))
        functions: dict[int, Any] = {0: np.add, 1: np.minimum, 2: np.maximum, 3: np.bitwise_and, 4: np.bitwise_or, 5: np.bitwise_xor}
        functions[6] = lambda x, y: np.where(x >= y, 0, x + 1)
        functions[7] = lambda x, y: np.where((x == 0) | (x > y), y, x - 1)
        expected = functions[op](a, b)
    (out, _), reports = kernels.run("reduce", a, b, op, checks=CHECKS)
    assert np.array_equal(out, expected) and not reports


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_copies_within_shared_memory(kernels: Kernels, schedule: str) -> None:
    values = np.arange(64, dtype=np.uint32) * 3
    with kernels.options(schedule=schedule, seed=2):
        (_, out), reports = kernels.run("local", values, np.zeros(128, np.uint32), 1, checks=CHECKS)
    stored = (np.arange(16)[:, None] + np.arange(4)).reshape(-1)
    assert np.array_equal(out[:64], values + 7) and np.array_equal(out[64:], stored) and not reports


@pytest.mark.parametrize("checks", [CHECKS, "none"])
def test_asynchronous_stores_want_a_cluster(kernels: Kernels, checks: str) -> None:
    _, reports = kernels.run("local", np.arange(64, dtype=np.uint32), np.zeros(128, np.uint32), 0, checks=checks)
    assert kernels.status == ILLEGAL_INSTRUCTION and kinds(reports) == {"no_cluster"}


def test_tensor_map_changed_on_the_device(kernels: Kernels, tensor_library: Path) -> None:
    encoder = TensorDevice(tensor_library, kernels.cuda.library)
    rows = np.arange(5 * 32, dtype=np.float32).reshape(5, 32)
    start = encoder.upload(np.zeros(4096, np.uint8))
    made = encoder.encode(Copy("map", F32, (32, 3), (256,), (32, 2), (0, 0), swizzle=3), start)
    results, reports = kernels.run(
        "changed_map", made.view(np.uint32).copy(), np.zeros(64, np.uint32), rows, np.zeros(32, np.float32), 4, checks=CHECKS
    )
    encoder.free(start)
    assert not reports and np.array_equal(results[3], rows[4])
