"""``bench``: build, verify and compare an op's variants."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, TargetName, VariantNames
from harness.errors import ExitCode

if TYPE_CHECKING:
    from harness.report.rows import BenchRow
    from harness.spec import Op, Problem

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
    from harness.bench import count_on_emulator, find_note, open_peers, time_on_gpu
    from harness.console import open_stages, print_json
    from harness.discover import find_op, load_peers
    from harness.report.terminal import list_fault_lines
    from harness.session import Judged, Session

    loaded = find_op(op)
    variants = loaded.op.select_variants(variant or [])
    with Session.start(loaded, f"bench {op}", device=device, target=target, jobs=jobs) as session:
        emulated = session.device.is_emulated
        problems = loaded.op.select_problems("emulated" if emulated else "bench", problem or [])
        peers = () if emulated else load_peers(loaded.folder)
        last = "count" if emulated else "time"
        num_last = len(variants) if emulated else (len(variants) + len(peers)) * len(problems)
        totals = {"build": len(variants), "verify": len(variants), last: num_last}
        with open_stages(f"bench {op}", totals, quiet=json) as stages:
            builds, binding = session.build(variants, lambda b: stages.advance("build", b.variant.name, known=b.cached))

            def say(judged: Judged) -> None:
                stages.advance("verify", judged.variant.name, known=judged.earlier is not None)
                if not judged.ok:
                    stages.say(f"{judged.variant.name} failed: {judged.reason}")

            judged = session.judge(builds, binding, reuse=True, on_judged=say)
            faults = session.check_op()
            passed = sum(j.ok for j in judged)
            if emulated:
                stages.set_total("count", passed)
                rows = count_on_emulator(session, judged, binding, problems, lambda v, known: stages.advance("count", v, known=known))
            else:
                opened = open_peers(peers, stages.say)
                stages.set_total("time", (passed + len(opened)) * len(problems))
                timed = time_on_gpu(session, judged, binding, problems, opened, functools.partial(stages.advance, "time"))
                rows = [row for group in timed for row in group]
        wrong = [r for r in rows if r.verified == "failed"]
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
            print(f"{passed} of {len(judged)} variants verified. {session.describe_run()}")
            for line in [f"op {op}: {f.describe()}" for f in faults] + [x for j in judged if j.result for x in list_fault_lines(j.result)]:
                print(line, file=sys.stderr)
            for row in wrong:
                if row.reason and not any(j.variant.name == row.variant and not j.ok for j in judged):
                    print(f"{row.variant} on {row.problem}: {row.reason}", file=sys.stderr)
    return ExitCode.CHECK_FAILED if wrong or faults or passed < len(judged) else ExitCode.DONE


def _print(op: Op, rows: list[BenchRow], problems: tuple[Problem, ...], target: str, everything: bool) -> None:
    import textwrap

    from rich.console import Console

    from harness.bench import find_note
    from harness.report.bench_screen import PLAIN_WIDTH, make_bench_screen

    console = Console(highlight=False)
    width = console.width if console.is_terminal else PLAIN_WIDTH
    for line in make_bench_screen(op, rows, problems, target=target, everything=everything, width=width):
        console.print(line, soft_wrap=True)
    if rows and rows[0].device == "emulated":
        words = f"emulated: no GPU was used and no time was measured. ~: the interval overlaps that of the fastest (*). {find_note(rows)}"
        print(f"\n{textwrap.fill(words, width, break_on_hyphens=False)}")
