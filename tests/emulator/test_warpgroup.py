"""What libraries for tensor cores count on is no finding, and its faulty twin is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .kernels import Kernels, build, kinds

SOURCE = Path(__file__).with_name("warpgroup.cu")
SCHEDULES = ("default", "reversed", "greedy", "random")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("warpgroup"))


@pytest.fixture
def kernels(emulator: Runtime, library: Path) -> Kernels:
    return Kernels(emulator, library)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_thread_that_has_waited_speaks_for_its_warpgroup(kernels: Kernels, schedule: str) -> None:
    with kernels.options(schedule=schedule, seed=3):
        results, reports = kernels.run("speak_for_warpgroup", np.zeros(64 * 8, np.float32), 0)
    assert kinds(reports) == set()
    assert np.all(results[0] == 16)


@pytest.mark.parametrize("fault", [1, 2])
def test_a_thread_that_has_not_waited_does_not(kernels: Kernels, fault: int) -> None:
    _, reports = kernels.run("speak_for_warpgroup", np.zeros(64 * 8, np.float32), fault)
    assert kinds(reports) & {"wgmma_operand_overwritten", "shared_race"}


@pytest.mark.parametrize(("stored", "found"), [(8, set()), (9, {"uninitialized_read"})])
def test_rows_that_nothing_wrote_matter_where_they_are_stored(kernels: Kernels, stored: int, found: set[str]) -> None:
    a, b = np.full((16, 16), 0x3F80, np.uint16), np.full((8, 16), 0x3F80, np.uint16)
    results, reports = kernels.run("edge_tile", a, b, np.zeros((16, 8), np.float32), stored)
    assert kinds(reports) == found
    assert np.all(results[2][:8] == 16)


@pytest.mark.parametrize(("fault", "found"), [(0, set()), (1, {"global_race"})])
def test_one_store_by_a_whole_warp_is_one(kernels: Kernels, fault: int, found: set[str]) -> None:
    results, reports = kernels.run("store_by_all", np.zeros(4, np.uint32), fault)
    assert kinds(reports) == found
    assert fault or results[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("fault", "found"), [(0, set()), (1, {"shared_race"})])
def test_memory_handed_from_warp_to_warp(kernels: Kernels, fault: int, found: set[str]) -> None:
    _, reports = kernels.run("hand_on", np.zeros(64, np.int32), fault)
    assert kinds(reports) == found
