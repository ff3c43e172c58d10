"""Worker processes: a job may crash, hang or raise, and the others go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.processes import pool
from harness.processes.pool import Crew, Lost, run_jobs


class Calculator:
    """Doubles numbers; some words make it misbehave."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.spent = False

    def run(self, job: int | str, report: Callable[[str], None]) -> tuple[int, int]:
        report(f"working on {job}")
        if job == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if job == "hang":
            time.sleep(60)
        if job == "raise":
            raise ValueError("cannot double this")
        if job == "slow":
            for _ in range(4):
                time.sleep(0.5)
                report("still there")
        self.spent = job == "spend"
        return os.getpid(), self.offset + 2 * len(str(job))


def test_every_job_gets_its_answer_and_reports_come_through() -> None:
    heard: list[tuple[object, str]] = []
    answers = dict(
        run_jobs(Calculator, (100,), ["a", "bb", "ccc"], num_workers=2, timeout_s=20, on_report=lambda j, t: heard.append((j, t)))
    )
    assert {job: answer[1] for job, answer in answers.items() if not isinstance(answer, Lost)} == {"a": 102, "bb": 104, "ccc": 106}
    assert ("bb", "working on bb") in heard


class Reader:
    """Answers with a variable of its environment."""

    def __init__(self) -> None:
        self.spent = False

    def run(self, job: str, report: Callable[[str], None]) -> str | None:
        return os.environ.get(job)


def test_an_environment_is_the_workers_own() -> None:
    jobs = ["AICF_TEST_THREADS"]
    assert list(run_jobs(Reader, (), jobs, num_workers=1, timeout_s=20, environment={jobs[0]: "1"})) == [(jobs[0], "1")]
    assert jobs[0] not in os.environ
    assert list(run_jobs(Reader, (), jobs, num_workers=1, timeout_s=20)) == [(jobs[0], None)]


def test_a_job_is_lost_with_its_worker_and_the_next_one_runs() -> None:
    jobs = ["crash", "raise", "hang", "spend", "a", "slow"]
    answers = dict(run_jobs(Calculator, (0,), jobs, num_workers=1, timeout_s=1.5))
    assert list(answers) == jobs
    assert answers["crash"] == Lost("crashed", "the process ended with signal SIGSEGV; it last said: working on crash")
    assert answers["raise"] == Lost("error", "ValueError: cannot double this")
    assert answers["hang"] == Lost("timeout", "no sign of life for 1.5 s; it last said: working on hang")
    pids = [answers[j][0] for j in ("spend", "a", "slow") if not isinstance(answers[j], Lost)]  # type: ignore[index]
    assert len(pids) == 3
    assert pids[0] != pids[1] == pids[2]


def test_leaving_early_ends_the_workers() -> None:
    results = run_jobs(Calculator, (0,), ["a", "hang"], num_workers=2, timeout_s=60)
    started = time.monotonic()
    job, _ = next(results)
    assert job == "a"
    results.close()
    assert time.monotonic() - started < 5


def note_pid(folder: str) -> None:
    """What a crew prepares: leave a sign, and fail."""
    Path(folder, str(os.getpid())).touch()
    raise RuntimeError("the factory will meet this again")


def test_a_crew_is_ready_before_it_knows_its_work(tmp_path: Path) -> None:
    crew = Crew(2, note_pid, (str(tmp_path),))
    assert crew.size == 2
    answers = dict(run_jobs(Calculator, (100,), ["a", "bb", "spend", "ccc"], num_workers=2, timeout_s=20, crew=crew))
    assert crew.size == 0
    found = [a for a in answers.values() if not isinstance(a, Lost)]
    assert sorted(value for _, value in found) == [102, 104, 106, 110]
    prepared = {int(p.name) for p in tmp_path.iterdir()}
    assert len(prepared) == 2 and {pid for pid, _ in found} & prepared, "what was prepared does the work"
    crew.close()


def test_who_is_not_taken_ends_with_the_crew(tmp_path: Path) -> None:
    crew = Crew(2, note_pid, (str(tmp_path),))
    processes = [h.process for h in crew._hands]
    crew.close()
    assert crew.size == 0 and not any(p.is_alive() for p in processes)


def test_processes_end_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take all of the grace; they take it together."""
    waited: list[float] = []

    class Stubborn:
        def __init__(self) -> None:
            self.is_killed = False

        def join(self, timeout: float | None = None) -> None:
            if timeout is not None:
                waited.append(timeout)
                now[0] += timeout
            assert timeout is not None or self.is_killed

        def is_alive(self) -> bool:
            return not self.is_killed

        def kill(self) -> None:
            self.is_killed = True

    now = [0.0]
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: now[0]))
    pipe = SimpleNamespace(close=lambda: None)
    hands: list[Any] = [pool._Hand(Stubborn(), pipe) for _ in range(3)]  # type: ignore[arg-type]
    pool._end_all(hands)
    assert sum(waited) == pool._GRACE_S and all(h.process.is_killed for h in hands)
