"""A run's place in a window of observers: which of its steps are not in the log yet, and when what they noted is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from aicf.rewrite.log import Log
from aicf.rewrite.observers import Arrays, Watch, summarise
from aicf.train.program import Step


@dataclass(frozen=True)
class _Noted:
    """What observers had noted when ``last`` steps were done, ``count`` of which are not in the log.

    ``timed`` steps of the window that ended were done since ``started``; 0 where it goes on.
    """

    watch: Watch
    read: Callable[[], Arrays]
    last: int
    count: int
    started: float = 0.0
    timed: int = 0


class Window:
    """The present window, of which so many steps are ``done``."""

    def __init__(self, done: int = 0) -> None:
        self.done = done
        self._unread = 0
        self._timed, self._started = 0, 0.0
        self._noted: _Noted | None = None

    @property
    def is_timed(self) -> bool:
        """Whether the clock runs for steps that were counted."""
        return self._timed > 0

    def start_clock(self) -> None:
        """Take it that a step begins now, the first one that is timed."""
        self._started = time.perf_counter()

    def count(self) -> None:
        """Take it that a step is queued."""
        self.done, self._timed, self._unread = self.done + 1, self._timed + 1, self._unread + 1

    def close(self, watch: Watch, step: Step, last: int) -> None:
        """Queue the reading of what the window noted, behind its last step, which was the run's step number ``last``."""
        self._noted = self._note(watch, step, last, self._started, self._timed)
        self.done = self._timed = 0

    def stop_clock(self) -> None:
        """Take it that nobody knows when the next steps come."""
        self._timed = 0

    def _note(self, watch: Watch, step: Step, last: int, started: float = 0.0, timed: int = 0) -> _Noted:
        unread, self._unread = self._unread, 0
        return _Noted(watch, watch.read_later(step.executor, step.plan), last, unread, started, timed)

    def settle(self, log: Log) -> None:
        """Add what :meth:`close` queued to the log; the clock of the steps behind it begins here."""
        noted, self._noted = self._noted, None
        if noted is not None:
            found = noted.read()
            self._started = time.perf_counter()
            _add_steps(log, found, noted)
            log.add(summarise(found, noted.last, (self._started - noted.started) / noted.timed))

    def read(self, log: Log, watch: Watch | None, step: Step, last: int) -> None:
        """Add all steps that are not in the log to it; the window goes on."""
        self.settle(log)
        if watch is not None and self._unread:
            noted = self._note(watch, step, last)
            _add_steps(log, noted.read(), noted)


def _add_steps(log: Log, found: Arrays, noted: _Noted) -> None:
    for entry in noted.watch.list_steps(found, noted.last, noted.count):
        log.add(entry)
