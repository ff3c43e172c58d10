"""A worker that answers with its job."""

from __future__ import annotations

from collections.abc import Callable


class Echo:
    spent = False

    def run(self, job: int, report: Callable[[str], None]) -> int:
        report("heard")
        return job
