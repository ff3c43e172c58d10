"""Nsight Compute on one launch of a variant: its report is made inside the launch's NVTX range, then read page by page."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ToolError
from harness.nvtx_ranges import DOMAIN, name_range
from harness.profiling.ncu_pages import KernelMetrics, LineStalls, list_warnings, read_raw_page, read_source_page
from harness.profiling.target import NOT_SERVED, PHASE
from harness.profiling.tools import NCU, Tools, shorten

_PERMISSION = "ERR_NVGPUCTRPERM"
_PERMISSION_REMEDY = (
    "the driver keeps GPU performance counters to administrators: run as root, or have the administrator load the driver's module with "
    "NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM); in a container, give it CAP_SYS_ADMIN"
)
# What Nsight Compute says where the machine, not the program, is at fault.
_REFUSALS = re.compile(
    r"LibraryNotLoaded|Failed to initialize the profiler|not supported on this (?:GPU|device)|Driver incompatible", re.IGNORECASE
)
# "/" separates the ranges of a filter and "@" its domain.
_SPECIAL = re.compile(r"([/@,\[\]*+])")


@dataclass(frozen=True)
class NcuReport:
    """What was measured of one launch, which may be several kernels."""

    version: str
    kernels: tuple[KernelMetrics, ...]
    lines: tuple[LineStalls, ...]
    notes: tuple[str, ...] = ()


class NotServedError(ToolError):
    """The variant does not serve the problem; the text says why."""


def make_target_command(op: str, variant: str, problem: str, *, layout: str = "guarded") -> list[str]:
    """Return the command of the process that a tool looks at."""
    return [sys.executable, "-m", "harness.profiling.target", op, variant, problem, "1", layout]


def make_filter(op: str, variant: str, problem: str) -> str:
    """Return the value of ``--nvtx-include`` for the range of the launch that is profiled, a push/pop range of our domain."""
    return f"{DOMAIN}@{_SPECIAL.sub(lambda m: chr(92) + m[1], name_range(op, variant, problem, PHASE))}/"


def profile_launch(tools: Tools, op: str, variant: str, problem: str, report: Path) -> NcuReport:
    """Profile one launch into ``report`` (an ``.ncu-rep`` for Nsight Compute's own window) and return its pages.

    Clocks and caches are left as they are. Raises :class:`UnavailableError` where ncu is missing or may not read counters, which is
    remembered; :class:`ToolError` for a report that cannot be used.
    """
    ncu = tools.find(NCU)
    report.parent.mkdir(parents=True, exist_ok=True)
    options = ["--clock-control", "none", "--cache-control", "none", "--set", "full", "--import-source", "yes"]
    chosen = ["--nvtx", "--nvtx-include", make_filter(op, variant, problem)]
    done = tools.run([ncu, *options, *chosen, "--force-overwrite", "--export", report, *make_target_command(op, variant, problem)])
    check_run(tools, done.status, done.text)
    raw = tools.run([ncu, "--import", report, "--page", "raw", "--csv", "--print-units", "base"])
    source = tools.run([ncu, "--import", report, "--page", "source", "--csv", "--print-source", "cuda,sass"])
    for page in (raw, source):
        if page.status:
            raise ToolError(f"ncu cannot read its own report ({page.status}):\n{shorten(page.text)}")
    notes: list[str] = []
    try:
        lines = read_source_page(source.text)
    except ToolError as error:
        # Metrics stand by themselves; that there are no lines is said.
        lines, notes = [], [str(error)]
    return NcuReport(find_version(tools, ncu), tuple(read_raw_page(raw.text)), tuple(lines), tuple(notes))


def check_run(tools: Tools, status: int, text: str) -> None:
    """Raise the error that a run of ncu calls for; return where it profiled something."""
    if _PERMISSION in text:
        tools.refuse(NCU, f"ncu may not read the GPU's counters ({_PERMISSION}); {_PERMISSION_REMEDY}")
    if found := re.search(rf"{NOT_SERVED}: (.*)", text):
        raise NotServedError(found[1])
    if refusal := next((line for line in list_warnings(text) if _REFUSALS.search(line)), None):
        tools.refuse(NCU, f"ncu cannot profile on this machine: {refusal}; ask who runs it whether counters are passed through")
    if "No kernels were profiled" in text:
        raise ToolError(f"ncu met no kernel in the launch's range:\n{shorten(text)}")
    if status or "==PROF== Report:" not in text:
        raise ToolError(f"ncu ended with status {status}:\n{shorten(text)}")


def find_version(tools: Tools, ncu: str) -> str:
    """Return ncu's version, "" where it does not say."""
    found = re.search(r"Version (\S+)", tools.run([ncu, "--version"]).text)
    return found[1] if found else ""
