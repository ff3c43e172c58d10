"""The worker's side of a pool: a process that is told how to make its worker, and then does job after job."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

_JobT_contra = TypeVar("_JobT_contra", contravariant=True)
_AnswerT_co = TypeVar("_AnswerT_co", covariant=True)


class Worker(Protocol[_JobT_contra, _AnswerT_co]):
    """What runs in a worker process: built there once by the factory, then called for each job.

    ``report`` sends text about the job's progress to the parent. ``spent`` says, after a job, that this process should do no other.
    """

    spent: bool

    def run(self, job: _JobT_contra, report: Callable[[str], None]) -> _AnswerT_co:
        """Do one job."""
        ...


def serve(connection: Connection, prepare: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
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
