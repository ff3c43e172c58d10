"""Copies and arrivals between the blocks of a cluster: multicast, copies to a peer's shared memory, asynchronous stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .kernels import Kernels, build, kinds

SOURCE = Path(__file__).with_name("bulk_cluster.cu")
SCHEDULES = ("default", "reversed", "greedy", "random")
CHECKS = "all"
ROUNDS = 5


@pytest.fixture(scope="session")
def cluster_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("bulk_cluster"))


@pytest.fixture
def kernels(emulator: Runtime, cluster_library: Path) -> Kernels:
    return Kernels(emulator, cluster_library)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_multicast(kernels: Kernels, schedule: str) -> None:
    values = np.arange(ROUNDS * 128, dtype=np.uint32).reshape(ROUNDS, 128)
    with kernels.options(schedule=schedule, seed=4):
        (_, out), reports = kernels.run("multicast", values, np.zeros((4, 128), np.uint32), ROUNDS, 0, checks=CHECKS)
    assert np.array_equal(out, values.sum(axis=0) * np.arange(1, 5)[:, None]) and not reports


@pytest.mark.parametrize(("fault", "kind"), [(1, "deadlock"), (2, "shared_race"), (3, "multicast_invalid")])
def test_faults_of_multicast(kernels: Kernels, fault: int, kind: str) -> None:
    values = np.ones((ROUNDS, 128), np.uint32)
    _, reports = kernels.run("multicast", values, np.zeros((4, 128), np.uint32), ROUNDS, fault, checks=CHECKS)
    assert kind in kinds(reports)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_exchange_with_a_peer(kernels: Kernels, schedule: str) -> None:
    with kernels.options(schedule=schedule, seed=9):
        (out,), reports = kernels.run("exchange", np.zeros((2, 2, 64), np.uint32), checks=CHECKS)
    lanes = np.arange(64)
    expected = [[peer * 1000 + lanes, peer * 77 + lanes] for peer in (1, 0)]
    assert np.array_equal(out, expected) and not reports
