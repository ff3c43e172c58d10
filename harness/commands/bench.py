"""Build and verify an op's variants, then time them beside their peers on a GPU, or count what they do on the emulated device.

What was verified before, unchanged, is not verified again. Only variants that are right are measured; exits with 1 if one is not.
In the tables * is the fastest variant, and ~ one whose interval overlaps its interval: they cannot be told apart.

\b
Examples:
  python -m harness bench gemm_bias_act
  python -m harness bench gemm_bias_act --problem 'M200_*' --all
  python -m harness bench gemm_bias_act --variant pipelined --device cuda
  python -m harness bench softmax --json
"""

from __future__ import annotations

import functools
import sys
import textwrap
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from harness.benchmark.rows import BenchRow
from harness.benchmark.run import count_on_emulator, find_note, open_peers, time_on_gpu
from harness.benchmark.screen import PLAIN_WIDTH, make_bench_screen
from harness.benchmark.session import Judged, Session
from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, TargetName, VariantNames
from harness.discover import find_op, load_peers
from harness.errors import ExitCode
from harness.spec import Op, Problem, Variant
from harness.terminal.console import open_stages, print_json
from harness.verify.findings import Fault
from harness.verify.tables import list_fault_lines

Everything = Annotated[bool, typer.Option("--all", help="show every variant that serves a problem, not only the fastest ten")]


def run(
    op: OpName,
    variant: VariantNames = None,
    problem: ProblemNames = None,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
    everything: Everything = False,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    loaded = find_op(op)
    variants = loaded.op.select_variants(variant or [])
    with Session.start(loaded, f"bench {op}", device=device, target=target, jobs=jobs) as session:
        problems = loaded.op.select_problems("emulated" if session.device.is_emulated else "bench", problem or [])
        judged, rows = _work(session, variants, problems, quiet=json)
        faults = session.check_op()
        if json:
            print_json(
                {
                    "op": op,
                    "device": session.device_kind,
                    "device_name": session.device.properties.name,
                    "target": session.target.name,
                    "run": session.recorded_run,
                    "note": find_note(rows),
                    "op_faults": [f.describe() for f in faults],
                    "rows": [r.to_json() for r in rows],
                }
            )
        else:
            _print(loaded.op, rows, problems, session.target.name, everything)
            print(f"{sum(j.ok for j in judged)} of {len(judged)} variants verified. {session.describe_run()}")
            _print_faults(op, judged, faults, rows)
    is_wrong = faults or not all(j.ok for j in judged) or any(r.verified == "failed" for r in rows)
    return ExitCode.CHECK_FAILED if is_wrong else ExitCode.DONE


def _work(
    session: Session, variants: Sequence[Variant], problems: Sequence[Problem], *, quiet: bool
) -> tuple[list[Judged], list[BenchRow]]:
    """Build, verify, and count or time, with the progress of all of it in one line."""
    emulated = session.device.is_emulated
    peers = () if emulated else load_peers(session.loaded.folder)
    last, num_last = ("count", len(variants)) if emulated else ("time", (len(variants) + len(peers)) * len(problems))
    totals = {"build": len(variants), "verify": len(variants), last: num_last}
    with open_stages(f"bench {session.loaded.op.name}", totals, quiet=quiet) as stages:
        builds, binding = session.build(variants, lambda b: stages.advance("build", b.variant.name, known=b.cached))

        def say(judged: Judged) -> None:
            stages.advance("verify", judged.variant.name, known=judged.earlier is not None)
            if not judged.ok:
                stages.say(f"{judged.variant.name} failed: {judged.reason}")

        judged = session.judge(builds, binding, reuse=True, on_judged=say)
        passed = sum(j.ok for j in judged)
        if emulated:
            stages.set_total("count", passed)
            return judged, count_on_emulator(session, judged, binding, problems, lambda v, known: stages.advance("count", v, known=known))
        opened = open_peers(peers, stages.say)
        stages.set_total("time", (passed + len(opened)) * len(problems))
        timed = time_on_gpu(session, judged, binding, problems, opened, functools.partial(stages.advance, "time"))
        return judged, [row for group in timed for row in group]


def _print_faults(op: str, judged: Sequence[Judged], faults: Sequence[Fault], rows: Sequence[BenchRow]) -> None:
    """Say on stderr what is wrong with the op, with variants, and with what was timed."""
    for line in [f"op {op}: {f.describe()}" for f in faults] + [x for j in judged if j.result for x in list_fault_lines(j.result)]:
        print(line, file=sys.stderr)
    told = {j.variant.name for j in judged if not j.ok}
    for row in rows:
        if row.verified == "failed" and row.reason and row.variant not in told:
            print(f"{row.variant} on {row.problem}: {row.reason}", file=sys.stderr)


def _print(op: Op, rows: list[BenchRow], problems: tuple[Problem, ...], target: str, everything: bool) -> None:
    console = Console(highlight=False)
    width = console.width if console.is_terminal else PLAIN_WIDTH
    for line in make_bench_screen(op, rows, problems, target=target, everything=everything, width=width):
        console.print(line, soft_wrap=True)
    if rows and rows[0].device == "emulated":
        words = f"emulated: no GPU was used and no time was measured. ~: the interval overlaps that of the fastest (*). {find_note(rows)}"
        print(f"\n{textwrap.fill(words, width, break_on_hyphens=False)}")
