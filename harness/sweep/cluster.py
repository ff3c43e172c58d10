"""Measuring on several GPUs: one Dask worker per GPU, on this machine or behind a scheduler's address.

A Dask worker never opens a GPU itself. It keeps a *station*: measuring processes (:func:`harness.processes.pool.run_jobs`) that see the
worker's GPU alone. So a kernel that takes its context or its process along costs one of these, and Dask loses a worker only with its host
or its memory; then Dask gives the variant to another worker, and after a few of these it is a result with that reason.

Workers on other hosts need this project and the caches of builds (``AICF_CACHE_DIR``) at the same paths, on a shared file system.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future as LocalFuture
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from device.interface import UnavailableError
from harness.errors import UseError
from harness.processes.feed import JobFeed
from harness.processes.pool import Lost, run_jobs
from harness.processes.worker import Worker

JobT = TypeVar("JobT")
AnswerT = TypeVar("AnswerT")

# A worker's host may be busy; a variant that three workers died with is set aside.
_ALLOWED_DEATHS = 2
_FEED_POLL_S = 0.02
_START_TIMEOUT_S = 60.0
_REMEDY = "needs Dask: pip install 'aicf[cluster]'"


_END = Lost("error", "the sweep was ended")


class Station(Generic[JobT, AnswerT]):
    """Measuring processes that stay between jobs; ``do`` may be called from as many threads as there are processes."""

    def __init__(
        self, factory: Callable[..., Worker[JobT, AnswerT]], arguments: tuple[Any, ...], num_workers: int, timeout_s: float
    ) -> None:
        self._feed: JobFeed[JobT] = JobFeed()
        self._answers: dict[int, LocalFuture[AnswerT | Lost]] = {}
        self._failure: Exception | None = None
        # Dask starts its workers as daemons, which may have no children by multiprocessing's rule. Ours end by themselves with their pipes.
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]

        def serve() -> None:
            answers = run_jobs(factory, arguments, self._feed, num_workers=num_workers, timeout_s=timeout_s, starts_at_once=True)
            try:
                for job, answer in answers:
                    self._answers.pop(id(job)).set_result(answer)
            except Exception as error:  # noqa: BLE001 - raised again in every thread that waits for an answer, and in those that will ask
                self._failure = error
                self._feed.abandon()
            self._end_waiting()

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    def do(self, job: JobT) -> AnswerT | Lost:
        """Run a job and return its answer; raises what ended the station's own work, a process that cannot be started for instance."""
        answer: LocalFuture[AnswerT | Lost] = LocalFuture()
        self._answers[id(job)] = answer
        self._feed.put(job)
        if self._feed.is_abandoned:
            # Nobody serves any more, or not for long: what came too late for the others' end is ended here.
            self._thread.join()
            self._end_waiting()
        return answer.result()

    def _end_waiting(self) -> None:
        """Answer everyone who waits, once the processes are gone."""
        while self._answers:
            with suppress(KeyError):
                answer = self._answers.popitem()[1]
                if self._failure is not None:
                    answer.set_exception(self._failure)
                else:
                    answer.set_result(_END)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._answers

    def close(self) -> None:
        """End the processes; what they were asked for is lost."""
        self._feed.abandon()
        self._thread.join()


def _import_distributed() -> Any:
    """Import Dask's distributed part, which is optional and has no types."""
    return importlib.import_module("distributed")


_stations: dict[str, Station[Any, Any]] = {}
_ended: set[str] = set()
_lock = threading.Lock()


def do_at_station(
    key: str, factory: Callable[..., Worker[Any, Any]], arguments: tuple[Any, ...], per_gpu: int, timeout_s: float, job: Any
) -> Any:
    """Run a job of the sweep ``key`` in this Dask worker, whose station is opened by the sweep's first."""
    name = f"{_find_worker_name()} {key}"
    with _lock:
        if key in _ended:
            return _END
        if name not in _stations:
            # A sweep that was killed could not end its own.
            for other in [n for n, s in _stations.items() if s.is_idle and n.split()[0] == name.split()[0]]:
                _stations.pop(other).close()
            _stations[name] = Station(factory, arguments, per_gpu, timeout_s)
        station = _stations[name]
    return station.do(job)


def end_sweep(key: str) -> None:
    """End the measuring processes of a sweep in this process; jobs that Dask still has for it are not begun."""
    with _lock:
        _ended.add(key)
        for name in [n for n in _stations if n.endswith(f" {key}")]:
            _stations.pop(name).close()


def _find_worker_name() -> str:
    return str(_import_distributed().get_worker().address)


def run_jobs_on(
    client: Any,
    key: str,
    factory: Callable[..., Worker[JobT, AnswerT]],
    arguments: tuple[Any, ...],
    feed: JobFeed[JobT],
    *,
    per_gpu: int,
    timeout_s: float,
) -> Iterator[tuple[JobT, AnswerT | Lost]]:
    """Run the jobs of a feed on a cluster's workers and yield each with its answer as it comes; ``key`` is this sweep's alone.

    Twice as many jobs as there are measuring processes are under way, so that none waits for the network.
    """
    distributed = _import_distributed()
    jobs: dict[str, JobT] = {}
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    try:
        while not feed.is_abandoned and (jobs or not feed.is_done):
            limit = 2 * per_gpu * max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
            while len(jobs) < limit and (job := feed.take()) is not None:
                future = client.submit(do_at_station, key, factory, arguments, per_gpu, timeout_s, job, pure=False)
                jobs[future.key] = job
                future.add_done_callback(done.put)
            try:
                future = done.get(timeout=_FEED_POLL_S)
            except queue.Empty:
                continue
            job = jobs.pop(future.key)
            try:
                yield job, future.result()
            except distributed.KilledWorker as error:
                yield job, Lost("crashed", f"{_ALLOWED_DEATHS + 1} workers died with it: {error}")
    finally:
        client.run(end_sweep, key, on_error="ignore")


@contextmanager
def open_cluster(scheduler: str | None, num_gpus: int, per_gpu: int, *, is_emulated: bool = False) -> Iterator[Any]:
    """Connect to a scheduler, or start one here with a worker for each of ``num_gpus`` GPUs; yields the client.

    Raises :class:`UseError` for an address that is none, :class:`UnavailableError` where Dask is not installed, or no scheduler answers.
    """
    if importlib.util.find_spec("distributed") is None:
        raise UnavailableError(f"measuring on several GPUs {_REMEDY}")
    import dask

    distributed = _import_distributed()
    settings = {
        "distributed.scheduler.allowed-failures": _ALLOWED_DEATHS,
        "distributed.admin.large-graph-warning-threshold": "100MB",
        # It would interrupt what measures every 10 ms.
        "distributed.worker.profile.enabled": False,
    }
    with dask.config.set(settings):
        if scheduler is not None:
            try:
                client = distributed.Client(scheduler, timeout=_START_TIMEOUT_S)
            except ValueError as error:
                raise UseError(f"--scheduler {scheduler}: is not an address ({error}); write tcp://HOST:PORT") from error
            except (OSError, TimeoutError) as error:
                raise UnavailableError(f"no Dask scheduler answers at {scheduler}: {error}") from error
            with client:
                yield client
            return
        with (
            _start_cluster(num_gpus, per_gpu, is_emulated=is_emulated) as cluster,
            distributed.Client(cluster, timeout=_START_TIMEOUT_S) as client,
        ):
            client.wait_for_workers(num_gpus, timeout=_START_TIMEOUT_S)
            yield client


def _start_cluster(num_gpus: int, per_gpu: int, *, is_emulated: bool) -> Any:
    distributed = _import_distributed()
    # Any free port: two sweeps at once on a machine would want the same one.
    quiet = {"dashboard_address": ":0"}
    if is_emulated:
        return distributed.LocalCluster(n_workers=num_gpus, threads_per_worker=per_gpu, processes=False, protocol="inproc://", **quiet)
    devices = find_devices(num_gpus)
    if importlib.util.find_spec("dask_cuda") is not None:
        return importlib.import_module("dask_cuda").LocalCUDACluster(
            CUDA_VISIBLE_DEVICES=",".join(devices), threads_per_worker=per_gpu, **quiet
        )
    workers = {
        i: {"cls": distributed.Nanny, "options": {"nthreads": per_gpu, "env": {"CUDA_VISIBLE_DEVICES": device}, **quiet}}
        for i, device in enumerate(devices)
    }
    return distributed.SpecCluster(workers=workers, scheduler={"cls": distributed.Scheduler, "options": quiet}, silence_logs=True)


def find_devices(count: int) -> list[str]:
    """Return the names of the first ``count`` GPUs that this process may see, as ``CUDA_VISIBLE_DEVICES`` has them."""
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if seen and count > len(seen):
        raise UnavailableError(f"{count} GPUs were requested, but CUDA_VISIBLE_DEVICES={','.join(seen)} shows {len(seen)}")
    return seen[:count] if seen else [str(i) for i in range(count)]
