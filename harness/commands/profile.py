"""Examine one launch of each variant with Nsight Compute, compute-sanitizer and Nsight Systems, or with the emulated device's counters.

Without --variant, profiles the op's own choice for the problem. Reports for the tools' own windows go to .aicf/profiles. A tool that
is missing, or may not read counters, is reported once, and the others still run; exits with 3 if a requested tool was missing
(without --tool: ncu or sanitizer), and with 1 if a tool found an error.

\b
Examples:
  python -m harness profile softmax --variant warp_per_row/rows4
  python -m harness profile gemm_bias_act -p M4096_N4096_K4096-act=none \\
    --tool ncu
  python -m harness profile gemm_bias_act -v smem_tiled --device emulated
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, TargetName, VariantNames
from harness.errors import ExitCode
from harness.profiling.run import Profile
from harness.terminal.console import print_json
from harness.verbs.profile import profile

ToolNames = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="ncu|sanitizer|nsys", help="a tool on a GPU, repeatable; by default all that are installed"),
]
Seconds = Annotated[float, typer.Option("--timeout", min=1.0, metavar="SECONDS", help="limit for one run of a tool")]


def run(
    op: OpName,
    variant: VariantNames = None,
    problem: ProblemNames = None,
    tool: ToolNames = None,
    timeout: Seconds = 300.0,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    done = profile(op, variant, problem, tool, timeout, device, target, jobs, quiet=json)
    if json:
        print_json({"op": op, "profiles": [p.to_json() for p in done.profiles]})
    else:
        for p in done.profiles:
            _print(p)
        print(done.where)
    for name, reason in done.skipped.items():
        print(f"harness: not available here: {name}: {reason}", file=sys.stderr)
    if done.is_failed:
        return ExitCode.CHECK_FAILED
    return ExitCode.NOT_AVAILABLE if done.is_incomplete else ExitCode.DONE


def _print(p: Profile) -> None:
    print(f"\n{p.variant} on {p.problem}")
    if p.unserved:
        print(f"  not served: {p.unserved}")
    if p.summary is not None:
        print(f"  {p.summary.bound}")
        for title, lines in (
            ("", p.summary.facts),
            ("waits", p.summary.stalls),
            ("where", p.summary.lines),
            ("try", p.summary.advice),
            ("note", p.summary.notes),
        ):
            for i, line in enumerate(lines):
                print(f"  {title if i == 0 else '':6}{line}")
    for check, text in p.checks.items():
        print(f"  {check}: {text}")
    for line in p.timeline:
        print(f"  {line}")
    for name, reason in p.broken.items():
        print(f"  {name} failed: {reason}")
    if p.report:
        print(f"  for Nsight Compute's window: {p.report}")
