"""Worker processes: a job may crash, hang or raise, and the others go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from harness.pool import Lost, run_jobs


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
