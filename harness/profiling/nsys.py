"""Nsight Systems on one launch of a variant: what ran when, for its own window, and each kernel's time as a table."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ToolError
from harness.profiling.ncu import NotServedError, make_target_command
from harness.profiling.ncu_pages import read_number
from harness.profiling.target import NOT_SERVED
from harness.profiling.tools import NSYS, Tools, shorten


@dataclass(frozen=True)
class KernelTime:
    """A kernel in the timeline: launches, and the median of their times in microseconds."""

    kernel: str
    launches: int
    median_us: float


def trace_launch(tools: Tools, op: str, variant: str, problem: str, report: Path) -> list[KernelTime]:
    """Trace the process with its NVTX ranges into ``report`` (an ``.nsys-rep``). Raises UnavailableError, or :class:`ToolError`."""
    nsys = tools.find(NSYS)
    report.parent.mkdir(parents=True, exist_ok=True)
    quiet = ["--sample", "none", "--cpuctxsw", "none"]
    options: list[str | Path] = ["--trace", "cuda,nvtx", *quiet, "--force-overwrite", "true", "--output", report]
    done = tools.run([nsys, "profile", *options, *make_target_command(op, variant, problem)])
    if served := re.search(rf"{NOT_SERVED}: (.*)", done.text):
        raise NotServedError(served[1])
    if done.status or not report.is_file():
        raise ToolError(f"nsys ended with status {done.status} and {'a' if report.is_file() else 'no'} report:\n{shorten(done.text)}")
    stats: list[str | Path] = [nsys, "stats", "--report", "cuda_gpu_kern_sum", "--format", "csv", "--force-export", "true", report]
    return read_kernel_times(tools.run(stats).text)


def read_kernel_times(text: str) -> list[KernelTime]:
    """Return the rows of ``nsys stats --report cuda_gpu_kern_sum --format csv``. Raises :class:`ToolError` where there is no such table."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("Time (%)")), None)
    if start is None:
        raise ToolError(f"nsys stats printed no table of kernels:\n{shorten(text)}")
    found = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        launches, median_ns = read_number(row.get("Instances") or ""), read_number(row.get("Med (ns)") or "")
        if launches is None or median_ns is None or not row.get("Name"):
            raise ToolError(f"nsys stats printed a row that cannot be read: {row}")
        found.append(KernelTime(row["Name"], int(launches), median_ns / 1000))
    return found
