"""Worker processes for work that may take its process down: a wrong kernel can corrupt the device's context, crash, or never end.

A job is lost with its worker, never the command: a worker that died, ran out of time, or says it is spent is replaced, and the next job
goes on in a fresh process.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

JobT = TypeVar("JobT")
AnswerT = TypeVar("AnswerT")
_JobT_contra = TypeVar("_JobT_contra", contravariant=True)
_AnswerT_co = TypeVar("_AnswerT_co", covariant=True)
_POLL_S = 0.2
_FEED_POLL_S = 0.005
_GRACE_S = 0.5
_START_S = 60.0  # Python and its packages, on a machine that is busy with other things


class Worker(Protocol[_JobT_contra, _AnswerT_co]):
    """What runs in a worker process: built there once by the factory, then called for each job.

    ``report`` sends text about the job's progress to the parent. ``spent`` says, after a job, that this process should do no other.
    """

    spent: bool

    def run(self, job: _JobT_contra, report: Callable[[str], None]) -> _AnswerT_co:
        """Do one job."""
        ...


@dataclass(frozen=True)
class Lost:
    """A job without an answer: ``crashed`` (with the exit code or signal), ``timeout``, or ``error`` (an exception in the worker)."""

    kind: str
    detail: str


class JobFeed(Generic[JobT]):
    """Jobs that come while others run: another thread puts them in, and closes the feed when there are no more, or abandons it."""

    def __init__(self, jobs: Iterable[JobT] = (), *, is_closed: bool = False) -> None:
        self.is_abandoned = False
        self._waiting = deque(jobs)
        self._is_closed = is_closed
        self._changed = threading.Condition()

    def put(self, job: JobT) -> None:
        """Add a job."""
        with self._changed:
            self._waiting.append(job)
            self._changed.notify_all()

    def close(self) -> None:
        """Say that there are no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Say that no answer is wanted any more."""
        with self._changed:
            self.is_abandoned = True
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def take(self) -> JobT | None:
        """Return the next job, None where there is none now."""
        with self._changed:
            return self._waiting.popleft() if self._waiting else None

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a job, or there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed, timeout_s)

    @property
    def is_done(self) -> bool:
        """Whether no job is left and none will come."""
        with self._changed:
            return self._is_closed and not self._waiting


@dataclass
class _Hand(Generic[JobT]):
    process: BaseProcess
    connection: Connection
    job: JobT | None = None
    deadline: float = 0.0
    last_report: str = field(default="")
    is_fresh: bool = True


class Crew:
    """Processes that start, and import what they need, before it is known what they are to do: hand it to :func:`run_jobs`.

    Each runs ``prepare(*arguments)`` first, both of which must pickle; what that raises is left to the worker's factory to meet again.
    :meth:`close` ends those that nobody took.
    """

    def __init__(self, num_workers: int, prepare: Callable[..., object], arguments: tuple[Any, ...] = ()) -> None:
        self._hands: list[_Hand[Any]] = []
        for _ in range(num_workers):
            self._hands.append(_start_hand(prepare, arguments))

    def close(self) -> None:
        """End those that were not taken."""
        hands, self._hands = self._hands, []
        _end_all(hands)

    @property
    def size(self) -> int:
        """How many processes wait to be taken."""
        return len(self._hands)

    def take(self) -> _Hand[Any] | None:
        """Return a process that was not taken, None where there is none."""
        return self._hands.pop() if self._hands else None


def run_jobs(
    factory: Callable[..., Worker[JobT, AnswerT]],
    arguments: tuple[Any, ...],
    jobs: Sequence[JobT] | JobFeed[JobT],
    *,
    num_workers: int,
    timeout_s: float,
    on_report: Callable[[JobT, str], None] | None = None,
    starts_at_once: bool = False,
    crew: Crew | None = None,
    grace_s: float = _GRACE_S,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[JobT, AnswerT | Lost]]:
    """Run jobs in at most ``num_workers`` processes and yield each with its answer as it comes.

    ``factory(*arguments)`` makes the worker in its process; it, the arguments, jobs and answers must pickle. ``timeout_s`` bounds the
    silence of a job: each report starts it anew, and a process has time of its own to start. Leaving the iterator early ends the
    workers. Jobs may come through a feed; a worker waits for the next one as long as the feed is open. With ``starts_at_once`` the
    processes start before there is a job; those of a ``crew`` have started already, and are taken first. In the end
    they have ``grace_s`` together to end by themselves. ``environment`` holds variables that processes started here have beside the
    parent's.
    """
    feed = jobs if isinstance(jobs, JobFeed) else JobFeed(jobs, is_closed=True)
    hands: list[_Hand[JobT]] = []
    # Those that do no other job need not be waited for before the others' answers are dealt with.
    leaving: list[_Hand[JobT]] = []

    def start_hand() -> None:
        taken = crew.take() if crew is not None else None
        hand: _Hand[JobT] = taken or _start_hand(environment=environment or {})
        # One that died at once is noticed when its first answer is awaited.
        with contextlib.suppress(BrokenPipeError):
            hand.connection.send((factory, arguments))
        hands.append(hand)

    def give(hand: _Hand[JobT], job: JobT) -> None:
        hand.job = job
        hand.last_report = ""
        hand.deadline = time.monotonic() + timeout_s + (_START_S if hand.is_fresh else 0.0)
        hand.is_fresh = False
        # A worker that died at once is noticed when its answer is awaited.
        with contextlib.suppress(BrokenPipeError):
            hand.connection.send(hand.job)

    def give_all() -> None:
        """Give jobs to workers that have none, and start more where there are jobs left."""
        for hand in (h for h in hands if h.job is None):
            if (job := feed.take()) is not None:
                give(hand, job)
        while len(hands) < max(1, num_workers) and (job := feed.take()) is not None:
            start_hand()
            give(hands[-1], job)

    try:
        for _ in range(num_workers if starts_at_once else min(num_workers, crew.size if crew is not None else 0)):
            start_hand()
        while not feed.is_abandoned and (not feed.is_done or any(h.job is not None for h in hands)):
            give_all()
            busy = [h for h in hands if h.job is not None]
            if not busy:
                feed.wait(_POLL_S)
                continue
            may_start = len(busy) < max(1, num_workers) and not feed.is_done
            ready = wait([h.connection for h in busy], timeout=_FEED_POLL_S if may_start else _POLL_S)
            for hand in busy:
                answer = _take_answer(hand, hand.connection in ready, timeout_s, on_report)
                if answer is None:
                    continue
                job, content, alive = answer
                hand.job = None
                if not alive:
                    hands.remove(hand)
                    hand.connection.close()
                    leaving.append(hand)
                elif (following := feed.take()) is not None:  # before the answer is dealt with, so that the worker need not wait
                    give(hand, following)
                yield job, content
    finally:
        _end_all([*hands, *leaving], grace_s)


_starting = threading.Lock()


def _start_hand(
    prepare: Callable[..., object] | None = None, arguments: tuple[Any, ...] = (), environment: Mapping[str, str] = MappingProxyType({})
) -> _Hand[Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, prepare, arguments), daemon=True)
    # A process is born with its parent's environment, and libraries read theirs while they are imported.
    with _starting:
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        try:
            process.start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
    theirs.close()
    return _Hand(process, ours)


def _take_answer(
    hand: _Hand[JobT], ready: bool, timeout_s: float, on_report: Callable[[JobT, str], None] | None
) -> tuple[JobT, Any, bool] | None:
    """Return (job, answer or Lost, whether the worker goes on), or None when there is nothing yet."""
    assert hand.job is not None
    if not ready:
        if time.monotonic() < hand.deadline:
            return None
        hand.process.kill()
        last = f"; it last said: {hand.last_report}" if hand.last_report else ""
        return hand.job, Lost("timeout", f"no sign of life for {timeout_s:.3g} s{last}"), False
    try:
        tag, content, spent = hand.connection.recv()
    except (EOFError, ConnectionResetError):
        hand.process.join()
        last = f"; it last said: {hand.last_report}" if hand.last_report else ""
        return hand.job, Lost("crashed", f"the process ended with {_describe_exit(hand.process.exitcode)}{last}"), False
    if tag in ("started", "report"):
        hand.last_report = content
        hand.deadline = time.monotonic() + timeout_s
        if on_report is not None and tag == "report":
            on_report(hand.job, content)
        return None
    if tag == "error":
        return hand.job, Lost("error", content), False
    return hand.job, content, not spent


def _end_all(hands: Sequence[_Hand[Any]], grace_s: float = _GRACE_S) -> None:
    """End processes, all at the same time: those that wait for a job see that there will be none, the others are killed."""
    for hand in hands:
        hand.connection.close()
    last_s = time.monotonic() + grace_s
    for hand in hands:
        hand.process.join(timeout=max(0.0, last_s - time.monotonic()))
    for hand in hands:
        if hand.process.is_alive():
            hand.process.kill()
    for hand in hands:
        hand.process.join()


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _serve(connection: Connection, prepare: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
    """Body of a worker process: it is told the factory and its arguments, then job after job."""
    # Ctrl-C reaches the whole process group: the parent decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What kernels print must not mix with the parent's results.
    os.dup2(2, 1)
    if prepare is not None:
        # The factory meets what is wrong again, and it is the one that is heard.
        with contextlib.suppress(Exception):
            prepare(*arguments)
    # A parent that hung up wants nothing more of this process.
    with contextlib.suppress(EOFError, ConnectionError):
        _answer_jobs(connection)


def _answer_jobs(connection: Connection) -> None:
    worker: Worker[Any, Any] | None = None
    failure = ""
    try:
        factory, arguments = connection.recv()
        # Before there is a job: a process that starts early is ready early.
        worker = factory(*arguments)
        # What is there now stays: the garbage collector need not go through it in the middle of a job.
        gc.freeze()
    except (EOFError, ConnectionError):
        raise
    except Exception as error:  # noqa: BLE001 - the first job's answer
        failure = f"{type(error).__name__}: {error}"
    connection.send(("started", "", False))
    while True:
        job = connection.recv()
        try:
            if worker is None:
                connection.send(("error", failure, True))
                return
            answer = worker.run(job, lambda text: connection.send(("report", text, False)))
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - carried to the parent whole, which reports it as the job's failure
            connection.send(("error", f"{type(error).__name__}: {error}", True))
            return
        connection.send(("answer", answer, worker.spent))
