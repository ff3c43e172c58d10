"""Jobs that come while others run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

JobT = TypeVar("JobT")


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

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is a job, or there will be none; return whether that is so by now."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._waiting or self._is_closed, timeout_s))

    @property
    def is_done(self) -> bool:
        """Whether no job is left and none will come."""
        with self._changed:
            return self._is_closed and not self._waiting
