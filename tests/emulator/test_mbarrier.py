"""mbarrier objects: their states step by step, pipelines that live on them, and misuse that is reported."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .kernels import Kernels, build, kinds

SOURCE = Path(__file__).with_name("mbarrier.cu")
SCHEDULES = ("default", "reversed", "greedy", "random")
CHECKS = "all"
LAUNCH_FAILURE, TIMEOUT, MISALIGNED = 719, 702, 716


@pytest.fixture(scope="session")
def mbarrier_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("mbarrier"))


@pytest.fixture
def kernels(emulator: Runtime, mbarrier_library: Path) -> Kernels:
    return Kernels(emulator, mbarrier_library)


def test_states_one_after_the_other(kernels: Kernels) -> None:
    (out,), reports = kernels.run("states", np.full(16, 99, np.uint32))
    assert out.tolist() == [5, 0, 4, 2, 0, 0, 1, 1, 0, 3, 1, 3, 0, 1, 2, 1] and not reports


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_producer_and_consumers(kernels: Kernels, schedule: str) -> None:
    rounds, consumers = 20, 3
    values = np.arange(rounds * 32, dtype=np.int32).reshape(rounds, 32)
    with kernels.options(schedule=schedule, seed=5):
        (_, out), reports = kernels.run("ring", values, np.zeros((consumers, 32), np.int32), consumers, rounds, 0, checks=CHECKS)
    expected = [values.sum(axis=0)[np.arange(32) ^ (warp + 1)] for warp in range(consumers)]
    assert np.array_equal(out, expected) and not reports


def test_missing_arrival_is_a_deadlock(kernels: Kernels) -> None:
    start = time.monotonic()
    _, reports = kernels.run("ring", np.zeros((20, 32), np.int32), np.zeros((3, 32), np.int32), 3, 20, 3, checks=CHECKS)
    assert time.monotonic() - start < 1
    (report,) = reports
    assert report["kind"] == "deadlock" and kernels.status == TIMEOUT
    assert "lacks 1 of 32 arrivals and 0 bytes" in str(report["text"]) and "polls at mbarrier.cu:" in str(report["text"])


@pytest.mark.parametrize("fault", [1, 2, 4])
def test_missing_order_is_a_race(kernels: Kernels, fault: int) -> None:
    """The wrong parity, no wait for the buffer to be empty, and no barrier between the initialization and the first use."""
    _, reports = kernels.run("ring", np.zeros((20, 32), np.int32), np.zeros((3, 32), np.int32), 3, 20, fault, checks="all")
    assert kinds(reports) & {"shared_race", "deadlock"} and (fault == 2 or "shared_race" in kinds(reports))


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("fault", [0, 1])
def test_copies_that_an_mbarrier_tracks(kernels: Kernels, form: int, fault: int) -> None:
    values = np.arange(256, dtype=np.int32).reshape(64, 4)
    results, reports = kernels.run("copies", values, np.zeros_like(values), form, fault, checks=CHECKS)
    if fault:
        assert "async_copy_in_flight" in kinds(reports)
    else:
        assert np.array_equal(results[1], values[np.arange(64) ^ 33]) and not reports


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_barrier_of_the_library(kernels: Kernels, schedule: str) -> None:
    values = np.arange(128, dtype=np.int32)
    with kernels.options(schedule=schedule, seed=3):
        (_, out), reports = kernels.run("library_barrier", values, np.zeros_like(values), 4, checks=CHECKS)
    expected = values.copy()
    for _ in range(4):
        expected = expected + np.roll(expected, -37)
    expected[:64] = expected[:64][::-1]
    assert np.array_equal(out, expected) and not reports


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        (1, "mbarrier_invalid", "no mbarrier was initialized"),
        (2, "mbarrier_invalid", "invalidated"),
        (3, "mbarrier_invalid", "overwritten"),
        (4, "mbarrier_invalid", "ordinary load"),
        (5, "mbarrier_invalid", "the state is not one that an arrival on this mbarrier returned"),
        (6, "mbarrier_overflow", "2^20 - 1"),
        (7, "mbarrier_overflow", "not in 1 to"),
        (8, "deadlock", "lacks 1 of 2 arrivals"),
        (9, "mbarrier_reinit", "in the middle of phase 0"),
        (11, "mbarrier_overflow", "gets 3 arrivals, and phase 0 lacks 2 of 2"),
        (10, "misaligned_access", "multiple of 8"),
    ],
)
def test_misuse(kernels: Kernels, what: int, kind: str, text: str) -> None:
    _, reports = kernels.run("misuse", np.zeros(2, np.uint32), what)
    assert [r for r in reports if r["kind"] == kind and text in str(r["text"])], reports
    if kind != "mbarrier_reinit" and what != 4:
        assert kernels.status in (LAUNCH_FAILURE, TIMEOUT, MISALIGNED)


@pytest.mark.parametrize("what", [1, 3])
def test_misuse_ends_the_launch_without_checks_too(kernels: Kernels, what: int) -> None:
    _, reports = kernels.run("misuse", np.zeros(2, np.uint32), what, checks="none")
    assert kinds(reports) == {"mbarrier_invalid"} and kernels.status == LAUNCH_FAILURE


def test_correct_use_stays_silent(kernels: Kernels) -> None:
    _, reports = kernels.run("misuse", np.zeros(2, np.uint32), 0)
    assert not reports and kernels.status == 0
