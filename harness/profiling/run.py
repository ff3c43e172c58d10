"""One variant on one problem under every requested tool: findings are recorded immediately, and missing tools are named."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from device.interface import UnavailableError
from harness.benchmark.session import Session
from harness.build.builder import BuildResult
from harness.errors import ToolError
from harness.profiling.emulated import summarize_inspection
from harness.profiling.inspection import inspect_variant
from harness.profiling.ncu import NcuReport, NotServedError, profile_launch
from harness.profiling.nsys import trace_launch
from harness.profiling.sanitizer import CHECKS, check_launch, describe_checks
from harness.profiling.summary import TIME, Summary, summarize_launch
from harness.profiling.tools import Tools
from harness.spec import Op, Problem, Variant

# Of the raw page these are kept: one value a metric, and not what describes the device.
_DROPPED = re.compile(r"^device__|TriageCompute|\.(min|max)(\.|$)|\.sum\.(pct|peak)|_not_issued$|^breakdown:|__attribute_")


class Tool(StrEnum):
    """What may look at a launch on a GPU."""

    NCU = "ncu"
    SANITIZER = "sanitizer"
    NSYS = "nsys"


@dataclass
class Profile:
    """What was found of one variant on one problem. ``skipped`` says by tool why there is nothing of it, ``broken`` what went wrong."""

    variant: str
    problem: str
    summary: Summary | None = None
    checks: Mapping[str, str] = field(default_factory=dict)
    num_errors: int = 0
    timeline: Sequence[str] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    unserved: str = ""
    report: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return vars(self) | {"summary": self.summary.to_json() if self.summary else None}


def profile_variant(session: Session, tools: Tools, build: BuildResult, problem: Problem, wanted: Sequence[Tool], folder: Path) -> Profile:
    """Let each tool look at the variant, in order; none of them stops the others."""
    found = Profile(build.variant.name, problem.name)
    stem = folder / session.loaded.op.name / re.sub(r"[^\w.=-]+", "_", f"{found.variant}-{found.problem}")
    steps: Mapping[Tool, Callable[[], None]] = {
        Tool.NCU: lambda: _run_ncu(session, tools, build, found, stem.with_name(stem.name + ".ncu-rep")),
        Tool.SANITIZER: lambda: _run_sanitizer(session, tools, build, found),
        Tool.NSYS: lambda: _run_nsys(session, tools, found, stem.with_name(stem.name + ".nsys-rep")),
    }
    for tool in wanted:
        try:
            steps[tool]()
        except UnavailableError as error:
            found.skipped[tool.value] = str(error)
        except NotServedError as error:
            found.unserved = str(error)
            break
        except ToolError as error:
            found.broken[tool.value] = str(error)
    return found


def _run_ncu(session: Session, tools: Tools, build: BuildResult, found: Profile, report: Path) -> None:
    op = session.loaded.op.name
    measured = profile_launch(tools, op, found.variant, found.problem, report)
    found.summary = summarize_launch(measured.kernels, measured.lines, measured.notes)
    found.report = str(report)
    session.record(
        build, kind="profile", variant=found.variant, problem=found.problem, status="passed", figures=make_figures(measured, found.summary)
    )


def make_figures(measured: NcuReport, summary: Summary) -> dict[str, Any]:
    """Return what is recorded of a profile: the metrics in base units, the hottest source lines, and the summary."""
    kernels = [
        {
            "kernel": k.kernel,
            "grid": list(k.grid),
            "block": list(k.block),
            "metrics": {name: value for name, value in k.metrics.items() if not _DROPPED.search(name)},
        }
        for k in measured.kernels
    ]
    lines = [vars(each) | {"file": Path(each.file).name, "stalls": dict(each.stalls)} for each in measured.lines[:20]]
    time_us = sum(k.metrics.get(TIME, 0.0) for k in measured.kernels) / 1000
    tool = f"ncu {measured.version}".strip()
    return {"tool": tool, "profiled_us": time_us, "kernels": kernels, "lines": lines, "summary": summary.to_json()}


def _run_sanitizer(session: Session, tools: Tools, build: BuildResult, found: Profile) -> None:
    op = session.loaded.op
    problem = _find_small_problem(op, build.variant, found.problem)
    if problem is None:
        found.checks = {"": "no problem of suite emulated or verify is served: the sanitizer checked nothing"}
        return
    try:
        checks = check_launch(tools, op.name, found.variant, problem.name, CHECKS)
    except NotServedError as error:
        found.checks = {"": f"{problem.name} is not served: {error}"}
        return
    found.checks = {f"{check} on {problem.name}": text for check, text in describe_checks(checks).items()}
    found.num_errors = sum(c.num_errors for c in checks)
    session.record(
        build,
        kind="sanitizer",
        variant=found.variant,
        problem=problem.name,
        status="failed" if found.num_errors else "passed",
        reason="; ".join(f"{c.check}: {c.findings[0]}" for c in checks if c.findings)[:2000],
        figures={"errors": {c.check: c.num_errors for c in checks}},
    )


def _find_small_problem(op: Op, variant: Variant, named: str) -> Problem | None:
    """Return the problem for the checker, under which a launch takes hundreds of times as long: the named one if it is small, or the first.

    Small are those of the suites ``emulated`` and ``verify``; None where the variant's domain has none of them.
    """
    small = [p for suite in ("emulated", "verify") for p in op.select_problems(suite) if op.meets_domain(variant, p)]
    return next((p for p in small if p.name == named), small[0] if small else None)


def _run_nsys(session: Session, tools: Tools, found: Profile, report: Path) -> None:
    times = trace_launch(tools, session.loaded.op.name, found.variant, found.problem, report)
    found.timeline = [f"{t.kernel}: {t.launches} launches, median {t.median_us:.4g} µs" for t in times]


def profile_on_emulator(session: Session, build: BuildResult, problem: Problem) -> Profile:
    """Let the emulated device count one launch, and say what the counts mean."""
    found = Profile(build.variant.name, problem.name)
    inspection = inspect_variant(session.loaded, found.variant, problem.name, session.target.name)
    found.summary = summarize_inspection(inspection)
    totals = {k.kernel: dict(k.totals) for k in inspection.kernels}
    figures = {"tool": "emulated device", "kernels": totals, "summary": found.summary.to_json()}
    session.record(build, kind="profile", variant=found.variant, problem=found.problem, status="passed", figures=figures)
    return found
