"""Build and verify an op's variants, then time them with their peers on a GPU, or count what they do on the emulated device.

Unchanged variants are not verified again. Only correct variants are measured; exits with 1 if one is wrong.
Without a GPU, only part of an op with more than 32 variants is taken for a first look: the first variant of each kernel that serves a
problem, and the op's own choice; --all takes all.
In the tables * marks the fastest variant, and ~ each variant whose interval overlaps its interval: they cannot be told apart.

\b
Examples:
  python -m harness bench gemm_bias_act
  python -m harness bench gemm_bias_act --problem 'M200_*' --all
  python -m harness bench gemm_bias_act --variant pipelined --device cuda
  python -m harness bench gemm_bias_act --all --jobs 8
  python -m harness bench softmax --json
"""

from __future__ import annotations

import sys
import textwrap
from typing import Annotated

import typer
from rich.console import Console

from harness.benchmark.screen import PLAIN_WIDTH, make_bench_screen
from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, TargetName, VariantNames
from harness.errors import ExitCode
from harness.terminal.console import print_json
from harness.verbs.bench import Benched, bench
from harness.verify.tables import list_fault_lines

Everything = Annotated[
    bool, typer.Option("--all", help="take all variants of a large op, and show all that serve a problem, not only the fastest ten")
]


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
    benched = bench(op, variant, problem, device, target, jobs, first_look=not everything, quiet=json)
    if json:
        print_json(benched.to_json())
    else:
        _print(benched, everything)
        print(f"{sum(j.ok for j in benched.judged)} of {len(benched.judged)} variants verified. {benched.where}")
        if benched.left_out:
            print(_describe_left_out(len(benched.left_out), len(benched.loaded.op.variants)))
        _print_faults(benched)
    return ExitCode.DONE if benched.ok else ExitCode.CHECK_FAILED


def _describe_left_out(count: int, num_variants: int) -> str:
    others = "further ones of the same kernels and those that serve none of these problems"
    remedy = "--all (with make: args=--all) takes every one, --variant those it names"
    words = f"A first look: {count} of the op's {num_variants} variants were left out, {others}. {remedy}."
    return textwrap.fill(words, PLAIN_WIDTH, break_on_hyphens=False)


def _print_faults(benched: Benched) -> None:
    """Say on stderr what is wrong with the op, with variants, and with what was timed."""
    op, judged = benched.loaded.op.name, benched.judged
    faults = [f"op {op}: {f.describe()}" for f in benched.op_faults]
    for line in faults + [x for j in judged if j.result for x in list_fault_lines(j.result)]:
        print(line, file=sys.stderr)
    told = {j.variant.name for j in judged if not j.ok}
    for row in benched.rows:
        if row.verified == "failed" and row.reason and row.variant not in told:
            print(f"{row.variant} on {row.problem}: {row.reason}", file=sys.stderr)


def _print(benched: Benched, everything: bool) -> None:
    console, op, rows = Console(highlight=False), benched.loaded.op, benched.rows
    width = console.width if console.is_terminal else PLAIN_WIDTH
    for line in make_bench_screen(op, rows, benched.problems, target=benched.target, everything=everything, width=width):
        console.print(line, soft_wrap=True)
    if rows and rows[0].device == "emulated":
        words = f"emulated: no GPU was used and no time was measured. ~: the interval overlaps that of the fastest (*). {benched.note}"
        print(f"\n{textwrap.fill(words, width, break_on_hyphens=False)}")
