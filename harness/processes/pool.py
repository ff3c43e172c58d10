"""Worker processes for work that may crash its process: a wrong kernel can corrupt the device's context, crash, or never end.

A job is lost with its worker, never the command: a worker that died, ran out of time, or says it is spent is replaced, and the next job
goes on in a fresh process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import MappingProxyType, ModuleType
from typing import Any, Generic, TypeVar

from harness.processes.feed import JobFeed
from harness.processes.worker import Worker, serve

JobT = TypeVar("JobT")
AnswerT = TypeVar("AnswerT")
_POLL_S = 0.2
_FEED_POLL_S = 0.005
_GRACE_S = 0.5
_START_S = 60.0  # Python and its packages, on a machine that is busy with other things


@dataclass(frozen=True)
class Lost:
    """A job without an answer: ``crashed`` (with the exit code or signal), ``timeout``, or ``error`` (an exception in the worker)."""

    kind: str
    detail: str


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
    pool: _Pool[JobT] = _Pool(feed, max(1, num_workers), timeout_s, crew, (factory, arguments), environment or {})
    try:
        for _ in range(num_workers if starts_at_once else min(num_workers, crew.size if crew is not None else 0)):
            pool.start()
        while not feed.is_abandoned and (not feed.is_done or pool.busy):
            pool.give_all()
            if not pool.busy:
                feed.wait(_POLL_S)
            for hand, is_ready in pool.wait():
                answer = _take_answer(hand, is_ready, timeout_s, on_report)
                if answer is not None:
                    job, content, goes_on = answer
                    pool.release(hand, goes_on=goes_on)
                    yield job, content
    finally:
        _end_all([*pool.hands, *pool.leaving], grace_s)


@dataclass
class _Pool(Generic[JobT]):
    """The processes of one call of :func:`run_jobs`, and what they do. ``order`` is what each is told first."""

    feed: JobFeed[JobT]
    num_workers: int
    timeout_s: float
    crew: Crew | None
    order: tuple[Callable[..., Any], tuple[Any, ...]]
    environment: Mapping[str, str]
    hands: list[_Hand[JobT]] = field(default_factory=list)
    # Those that do no other job need not be waited for before the others' answers are dealt with.
    leaving: list[_Hand[JobT]] = field(default_factory=list)

    @property
    def busy(self) -> list[_Hand[JobT]]:
        """Those that do a job."""
        return [h for h in self.hands if h.job is not None]

    def start(self) -> None:
        """Take a process of the crew, or start one."""
        taken = self.crew.take() if self.crew is not None else None
        hand: _Hand[JobT] = taken or _start_hand(environment=self.environment)
        # One that died at once is noticed when its first answer is awaited.
        with contextlib.suppress(BrokenPipeError):
            hand.connection.send(self.order)
        self.hands.append(hand)

    def give(self, hand: _Hand[JobT], job: JobT) -> None:
        """Give a process a job."""
        hand.job = job
        hand.last_report = ""
        hand.deadline = time.monotonic() + self.timeout_s + (_START_S if hand.is_fresh else 0.0)
        hand.is_fresh = False
        # A worker that died at once is noticed when its answer is awaited.
        with contextlib.suppress(BrokenPipeError):
            hand.connection.send(hand.job)

    def give_all(self) -> None:
        """Give jobs to workers that have none, and start more where there are jobs left."""
        for hand in (h for h in self.hands if h.job is None):
            if (job := self.feed.take()) is not None:
                self.give(hand, job)
        while len(self.hands) < self.num_workers and (job := self.feed.take()) is not None:
            self.start()
            self.give(self.hands[-1], job)

    def wait(self) -> list[tuple[_Hand[JobT], bool]]:
        """Wait a moment for something to be said; return those that do a job, and whether each said something."""
        busy = self.busy
        if not busy:
            return []
        may_start = len(busy) < self.num_workers and not self.feed.is_done
        ready = wait([h.connection for h in busy], timeout=_FEED_POLL_S if may_start else _POLL_S)
        return [(h, h.connection in ready) for h in busy]

    def release(self, hand: _Hand[JobT], *, goes_on: bool) -> None:
        """Give a process that answered its next job, before the answer is dealt with; one that does not go on leaves."""
        hand.job = None
        if not goes_on:
            self.hands.remove(hand)
            hand.connection.close()
            self.leaving.append(hand)
        elif (following := self.feed.take()) is not None:
            self.give(hand, following)


_starting = threading.Lock()


def _start_hand(
    prepare: Callable[..., object] | None = None, arguments: tuple[Any, ...] = (), environment: Mapping[str, str] = MappingProxyType({})
) -> _Hand[Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, prepare, arguments), daemon=True)
    # A process is born with its parent's environment, and libraries read theirs while they are imported.
    with _starting:
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        main = sys.modules["__main__"]
        # It would run the parent's script or notebook anew, for nothing: workers are classes of modules.
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            process.start()
        finally:
            sys.modules["__main__"] = main
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
