"""Measuring through Dask: jobs go to all workers, what dies is a result, and the sweep's own verb over a cluster of emulated devices."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import harness.sweep.cluster
from device import Device
from device.interface import UnavailableError
from harness.errors import UseError
from harness.processes.feed import JobFeed
from harness.processes.pool import Lost
from harness.records.database import make_uid
from harness.sweep.cluster import Station, find_devices, open_cluster, run_jobs_on
from tests.harness.test_session import run

CRASH, KILL_HOST, SLEEP = 3, 7, 11


class Squarer:
    """Says its process's parent, thus its Dask worker, beside the answer."""

    def __init__(self, offset: int) -> None:
        self.spent = False
        self.offset = offset

    def run(self, job: int, report: Callable[[str], None]) -> tuple[int, int]:
        report("begins")
        if job == CRASH:
            os.kill(os.getpid(), signal.SIGSEGV)
        if job == KILL_HOST:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        time.sleep(60 if job == SLEEP else 0.05)
        return job * job + self.offset, os.getpid()


def square(client: Any, jobs: list[int]) -> dict[int, tuple[int, int] | Lost]:
    feed = JobFeed(jobs, is_closed=True)
    return dict(run_jobs_on(client, make_uid(), Squarer, (100,), feed, per_gpu=1, timeout_s=60.0))


def test_jobs_go_to_all_workers_and_what_crashes_is_a_result() -> None:
    with open_cluster(None, 2, 1, is_emulated=True) as client:
        found = square(client, [1, 2, CRASH, 4, 5, 6, 8, 9])
    answers = {job: a for job, a in found.items() if not isinstance(a, Lost)}
    assert {job: a[0] for job, a in answers.items()} == {j: j * j + 100 for j in (1, 2, 4, 5, 6, 8, 9)}
    assert len({pid for _, pid in answers.values()}) >= 2
    crashed = found[CRASH]
    assert isinstance(crashed, Lost) and "SIGSEGV" in crashed.detail and "begins" in crashed.detail


@pytest.mark.parametrize("is_emulated", [True, False])
def test_nothing_samples_what_measures(monkeypatch: pytest.MonkeyPatch, is_emulated: bool) -> None:
    """Dask's workers profile themselves unless told otherwise, also those that a nanny starts in a process of their own."""
    if not is_emulated:
        monkeypatch.setattr(harness.sweep.cluster, "find_devices", lambda count: ["0"] * count)
        monkeypatch.setattr(harness.sweep.cluster.importlib.util, "find_spec", lambda name: None if name == "dask_cuda" else True)
    with open_cluster(None, 1, 1, is_emulated=is_emulated) as client:
        callbacks = client.run(list_periodic_callbacks)
    assert [("heartbeat" in names, [n for n in names if "profile" in n]) for names in callbacks.values()] == [(True, [])]


def list_periodic_callbacks(dask_worker: Any) -> list[str]:
    return list(dask_worker.periodic_callbacks)


def test_a_worker_that_dies_with_a_job_is_replaced_and_the_job_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = importlib.import_module("distributed")
    monkeypatch.setattr(harness.sweep.cluster, "_ALLOWED_DEATHS", 0)
    monkeypatch.setattr(
        harness.sweep.cluster,
        "_start_cluster",
        lambda num, per_gpu, **_: distributed.LocalCluster(
            n_workers=num, threads_per_worker=per_gpu, processes=True, dashboard_address=":0", silence_logs=50
        ),
    )
    with open_cluster(None, 2, 1) as client:
        found = square(client, [1, 2, KILL_HOST, 4])
    lost = found[KILL_HOST]
    assert isinstance(lost, Lost) and "1 workers died with it" in lost.detail
    # Whoever was on the same worker is done again, or lost with it.
    assert all(isinstance(found[j], Lost) or found[j][0] == j * j + 100 for j in (1, 2, 4))  # type: ignore[index]
    assert sum(not isinstance(found[j], Lost) for j in (1, 2, 4)) >= 2


def test_a_station_ends_its_processes() -> None:
    station: Station[int, tuple[int, int]] = Station(Squarer, (0,), 1, 30.0)
    answer = station.do(3 + 1)
    assert not isinstance(answer, Lost) and answer[0] == 16
    station.close()
    with pytest.raises(ProcessLookupError):
        os.kill(answer[1], 0)


def test_what_ends_a_station_reaches_all_who_wait_and_all_who_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def fail(*_: object, **__: object) -> Iterator[tuple[object, object]]:
        asked.wait(10)
        raise OSError("no process can be started")
        yield

    monkeypatch.setattr(harness.sweep.cluster, "run_jobs", fail)
    station: Station[Any, tuple[int, int]] = Station(Squarer, (0,), 2, 30.0)
    jobs = [object() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(station.do, job) for job in jobs]
        while len(station._answers) < len(jobs):
            time.sleep(0.001)
        asked.set()
        for answer in answers:
            with pytest.raises(OSError, match="no process can be started"):
                answer.result(timeout=10)
    with pytest.raises(OSError, match="no process can be started"):
        station.do(object())
    station.close()


def test_an_address_that_is_none_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(UseError, match=r"--scheduler nonsense: is not an address .*; write tcp://HOST:PORT"),
        open_cluster("nonsense", 1, 1),
    ):
        pass
    code, _, err = run(capsys, "sweep", "transpose", "--scheduler", "nonsense")
    assert code == 2 and err == "harness: --scheduler nonsense: is not an address; write tcp://HOST:PORT\n"


def test_leaving_early_ends_what_runs() -> None:
    started = time.monotonic()
    with open_cluster(None, 1, 1, is_emulated=True) as client:
        feed = JobFeed([1, SLEEP, SLEEP])
        answers = run_jobs_on(client, make_uid(), Squarer, (0,), feed, per_gpu=1, timeout_s=60.0)
        assert next(answers)[0] == 1
        threading.Timer(0.3, feed.abandon).start()
        assert list(answers) == []
    assert time.monotonic() - started < 20, "nobody waits for a job that sleeps a minute"


def test_a_cluster_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness.sweep.cluster, "_START_TIMEOUT_S", 0.2)
    with (
        pytest.raises(UnavailableError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        open_cluster("tcp://127.0.0.1:9", 1, 1),
    ):
        pass
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"aicf\[cluster\]"), open_cluster(None, 2, 1):
        pass


def test_each_worker_sees_one_of_the_gpus_that_this_process_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert find_devices(3) == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    assert find_devices(2) == ["GPU-b", "GPU-a"]
    with pytest.raises(UnavailableError, match="3 GPUs were requested"):
        find_devices(3)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AICF_RECORDS_URL", f"sqlite:///{tmp_path / 'records.sqlite'}")


@pytest.mark.slow
def test_a_sweep_over_emulated_devices_ranks_by_the_model(
    emulated_device: Device, records: None, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of an op that has few variants, one of which does not serve this problem: each is compiled to machine code, which the model reads.
    problem = "N5001-dtype=float32-decoupled-advances"
    words = ("sweep", "optimizer", "--device", "emulated", "--problem", problem, "--per-kernel", "1", "--gpus", "2")
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "by the time model of h200: nothing was timed, nothing was proved" in out
    assert "6 points modelled, 0 failed, 0 set aside, 1 not served" in out
    ranked = re.findall(r"^ +([\d.]+) us +(\S+) +\(([\d.]+) to ([\d.]+)\)$", out, re.MULTILINE)
    times = [float(r[0]) for r in ranked]
    assert times == sorted(times) and all(float(low) < float(t) < float(high) for t, _, low, high in ranked)
    rows = json.loads(run(capsys, "report", "optimizer", "--run", "1", "--json")[1])
    assert {r["figures"]["mode"] for r in rows} == {"model"} and not any(r["samples"] for r in rows)
    # TPE begins with what is listed: all of that is in the records, and the order is the same.
    code, out, err = run(capsys, *words[:-2], "--resume", "--strategy", "tpe")
    assert code == 0 and err.count("recorded before") == 6 + 1  # what is not served too
    assert re.findall(r"^ +[\d.]+ us .*$", out, re.MULTILINE)[0].split()[2] == ranked[0][1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--save", "x.json"), "nothing is timed"),
        (("--keep", "0.5"), "the model's already"),
        (("--keep", "0.5", "--strategy", "tpe"), "chooses by what it measured"),
    ],
)
def test_what_makes_no_sense_is_refused(
    emulated_device: Device, records: None, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    code, _, err = run(capsys, "sweep", "transpose", "--device", "emulated", *options)
    assert code == 2 and message in err
