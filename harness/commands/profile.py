"""Look at one launch of each variant with Nsight Compute, compute-sanitizer and Nsight Systems, or with the emulated device's counters.

Without --variant it is the op's own choice for the problem. Reports for the tools' own windows are left in .aicf/profiles. A tool that
is missing, or that may not read counters, is said once, and the others go on; exits with 3 if one that was asked for was missing
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

from device.settings import find_project_root
from harness.benchmark.session import Session
from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, TargetName, VariantNames
from harness.discover import find_op
from harness.errors import ExitCode
from harness.profiling.run import Profile, Tool, profile_on_emulator, profile_variant
from harness.profiling.tools import Tools
from harness.spec import Op, Problem, SpecError, Variant
from harness.terminal.console import open_progress, print_json

ToolNames = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="ncu|sanitizer|nsys", help="a tool on a GPU, repeatable; all that are there when left out"),
]
Seconds = Annotated[float, typer.Option("--timeout", min=1.0, metavar="SECONDS", help="for one run of a tool")]


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
    if unknown := [t for t in tool or [] if t not in list(Tool)]:
        raise SpecError(f"--tool {unknown[0]}: must be one of {', '.join(Tool)}")
    loaded = find_op(op)
    wanted = [Tool(t) for t in dict.fromkeys(tool)] if tool else list(Tool)
    needed = set(wanted) if tool else {Tool.NCU, Tool.SANITIZER}
    folder = find_project_root() / ".aicf" / "profiles"
    found: list[Profile] = []
    with Session.start(loaded, f"profile {op}", device=device, target=target, jobs=jobs) as session:
        emulated = session.device.is_emulated
        if emulated and tool:
            raise SpecError("--tool chooses among tools of a GPU; the emulated device counts by itself")
        pairs = _choose(loaded.op, variant or [], problem or [], "emulated" if emulated else "bench")
        variants = list(dict.fromkeys(v for v, _ in pairs))
        with open_progress(f"build {op}", len(variants), quiet=json) as progress:
            builds = {b.variant: b for b in session.build(variants, lambda b: progress.advance(b.variant.name))[0]}
        tools = Tools(timeout)
        with open_progress(f"profile {op}", len(pairs), quiet=json) as progress:
            for chosen, on in pairs:
                build = builds[chosen]
                if build.library is None:
                    found.append(Profile(chosen.name, on.name, broken={"build": build.error or "it does not compile"}))
                elif emulated:
                    found.append(profile_on_emulator(session, build, on))
                else:
                    found.append(profile_variant(session, tools, build, on, wanted, folder))
                progress.advance(f"{chosen.name} on {on.name}")
        where = session.describe_run()
    if json:
        print_json({"op": op, "profiles": [p.to_json() for p in found]})
    else:
        for p in found:
            _print(p)
        print(where)
    for name, reason in {n: r for p in found for n, r in p.skipped.items()}.items():
        print(f"harness: not available here: {name}: {reason}", file=sys.stderr)
    if any(p.num_errors or p.broken for p in found):
        return ExitCode.CHECK_FAILED
    return ExitCode.NOT_AVAILABLE if any(needed & {Tool(n) for n in p.skipped} for p in found) else ExitCode.DONE


def _choose(op: Op, variants: list[str], problems: list[str], suite: str) -> list[tuple[Variant, Problem]]:
    """Return what to profile: the named variants on the named problems, else on the suite's first; without a name the op's own choice."""
    on = op.select_problems(suite, problems)
    on = on if problems else on[:1]
    if variants:
        return [(v, p) for p in on for v in op.select_variants(variants)]
    if op.choose is not None:
        return [(op.choose(p).variant, p) for p in on]
    return [(op.variants[-1], p) for p in on]


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
