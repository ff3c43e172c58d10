"""Clusters, distributed shared memory, cooperative grids: results under all schedules, and a report for each fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .kernels import Kernels, build, kinds

SOURCE = Path(__file__).with_name("cluster.cu")
SCHEDULES = ("default", "reversed", "greedy", "random")
ILLEGAL_ADDRESS, TIMEOUT, INVALID_CLUSTER = 700, 702, 912


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("cluster"))


@pytest.fixture
def kernels(emulator: Runtime, library: Path) -> Kernels:
    return Kernels(emulator, library)


def _ring(kernels: Kernels, blocks: int, cluster: int, fault: int = 0) -> tuple[bool, list[dict[str, object]]]:
    values = np.arange(blocks * 64, dtype=np.int32)
    arrays, reports = kernels.run("ring", values, np.zeros_like(values), blocks, cluster, fault)
    by_block = values.reshape(-1, cluster, 64)
    expected = (3 * np.roll(by_block, 1, axis=1)).ravel()
    return bool(arrays) and np.array_equal(arrays[1], expected), reports


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocks_of_a_cluster_use_each_others_shared_memory(kernels: Kernels, schedule: str) -> None:
    with kernels.options(schedule=schedule, seed=3):
        for blocks, cluster in ((8, 2), (16, 8), (6, 1), (32, 16)):
            right, reports = _ring(kernels, blocks, cluster)
            assert right and reports == []


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_atomics_on_distributed_shared_memory(kernels: Kernels, schedule: str) -> None:
    values = np.random.default_rng(1).integers(0, 64, 3000).astype(np.int32)
    with kernels.options(schedule=schedule):
        arrays, reports = kernels.run("histogram", values, np.zeros(64, np.int32), values.size)
    assert reports == [] and np.array_equal(arrays[1], np.bincount(values, minlength=64))


@pytest.mark.parametrize(("how", "is_ordered"), [(0, False), (1, True), (2, True), (3, False), (4, False)])
def test_a_relaxed_arrival_orders_what_lies_before_a_fence(kernels: Kernels, how: int, is_ordered: bool) -> None:
    values = np.arange(64, dtype=np.int32)
    with kernels.options(checks="memcheck,racecheck,initcheck,synccheck"):
        (_, out), reports = kernels.run("pass_over_relaxed", values, np.zeros_like(values), how)
    assert np.array_equal(out, np.roll(values, 32))
    assert kinds(reports) == (set() if is_ordered else {"shared_race"})


def test_special_registers(kernels: Kernels) -> None:
    for x, y in ((0, 0), (2, 1), (2, 4), (4, 2)):
        arrays, reports = kernels.run("registers", np.zeros((4, 4, 11), np.uint32), x, y)
        assert reports == []
        cx, cy = max(x, 1), max(y, 1)
        for by in range(4):
            for bx in range(4):
                rank = by % cy * cx + bx % cx
                wanted = [bx // cx, by // cy, 4 // cx, 4 // cy, bx % cx, by % cy, cx, cy, rank, cx * cy, int(x > 0)]
                assert arrays[0][by, bx].tolist() == wanted


def test_addresses(kernels: Kernels) -> None:
    arrays, reports = kernels.run("addresses", np.zeros((4, 32, 8), np.uint32))
    assert reports == []
    for block in range(4):
        peer = block % 2 ^ 1
        assert (arrays[0][block] == [100 + peer] * 3 + [peer, block % 2, 1, 3, 12]).all()


def test_an_invalid_cluster_is_refused(kernels: Kernels) -> None:
    for blocks, cluster in ((6, 4), (32, 32)):
        kernels.run("ring", np.zeros(64 * blocks, np.int32), np.zeros(64 * blocks, np.int32), blocks, cluster, 0)
        assert kernels.status == INVALID_CLUSTER


@pytest.mark.parametrize(("fault", "kind"), [(1, "cluster_block_not_started"), (2, "cluster_block_exited"), (3, "cluster_rank")])
def test_faults_in_distributed_shared_memory(kernels: Kernels, fault: int, kind: str) -> None:
    _, reports = _ring(kernels, 2, 2, fault)
    assert kind in kinds(reports) and kernels.status == ILLEGAL_ADDRESS


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (1, "deadlock", "for the barrier of the cluster, where 32 of 64"),
        (2, "cluster_barrier", "arrives a second time"),
        (3, "cluster_barrier", "waits without having arrived"),
        (4, "out_of_bounds_read", "which .shared::cta cannot reach"),
        (5, "divergent_barrier", "threads"),
    ],
)
def test_faults_at_the_clusters_barrier(kernels: Kernels, fault: int, kind: str, text: str) -> None:
    _, reports = kernels.run("barrier_faults", np.zeros(64, np.int32), fault)
    assert any(report["kind"] == kind and text in str(report["text"]) for report in reports), reports


def test_a_clean_cluster_barrier_is_silent(kernels: Kernels) -> None:
    assert kernels.run("barrier_faults", np.zeros(64, np.int32), 0)[1] == []


def test_register_budget(kernels: Kernels) -> None:
    assert kernels.run("register_budget", np.zeros(384, np.int32), 0)[1] == []
    assert kinds(kernels.run("register_budget", np.zeros(384, np.int32), 1)[1]) == {"register_budget"}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_grid_barrier(kernels: Kernels, schedule: str) -> None:
    blocks, rounds = 40, 3
    expected = np.ones(blocks, np.int64)
    for _ in range(rounds):
        expected = expected + np.roll(expected, -1)
    with kernels.options(schedule=schedule, instruction_limit=2_000_000):
        arrays, reports = kernels.run("grid_sums", np.ones(blocks, np.int32), blocks, 128, rounds)
    assert reports == [] and np.array_equal(arrays[0], expected)
