"""Variants are counted several a job; where a process is lost, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark import workers
from harness.benchmark.workers import Batch, Counted, Job, WorkerSetup, count_variants
from harness.model.launches import LaunchFacts
from harness.processes.pool import Lost
from harness.spec import Variant

SETUP = WorkerSetup(Path("op"), Path("binding.so"), "emulated")


def test_the_variants_of_a_lost_process_are_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def run_jobs(factory: Any, arguments: Any, jobs: Sequence[Batch], **_: Any) -> Iterator[tuple[Batch, Any]]:
        for batch in jobs:
            sizes.append(len(batch.jobs))
            broken = any(job.variant.kernel == "k7" for job in batch.jobs)
            answer = tuple(Counted(j.variant.name, {"P": LaunchFacts()}) for j in batch.jobs)
            yield batch, Lost("crashed", "signal SIGSEGV") if broken else answer

    monkeypatch.setattr(workers, "run_jobs", run_jobs)
    jobs = [Job(Variant(f"k{i}", ()), Path(f"{i}.so"), ("P",)) for i in range(24)]
    found = dict(count_variants(SETUP, jobs, num_workers=2))
    assert list(found[jobs[7]].facts.values()) == [LaunchFacts("crashed: signal SIGSEGV", lost=True)]
    assert [job for job in jobs if not found[job].facts["P"].lost] == [job for job in jobs if job is not jobs[7]]
    assert sizes == [4] * 6 + [1] * 4
