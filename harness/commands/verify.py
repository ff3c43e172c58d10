"""Check every variant against the float64 reference; on the emulated device, under the sanitizer. Exits with 1 if one fails.

\b
Examples:
  python -m harness verify gemm_bias_act
  python -m harness verify gemm_bias_act --variant naive --json
  python -m harness verify softmax --device emulated --schedules 6
"""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, TargetName, VariantNames
from harness.errors import ExitCode
from harness.terminal.console import print_json
from harness.terminal.tables import print_tables
from harness.verbs.verify import Verified, verify
from harness.verify.tables import list_fault_lines, make_verify_table


def run(
    op: OpName,
    variant: VariantNames = None,
    problem: ProblemNames = None,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
    schedules: Annotated[
        int, typer.Option(min=0, metavar="N", help="run under N orders of blocks and warps (emulated device), and compare the bits")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="draw other problems; the same number draws the same ones")] = 0,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    verified = verify(op, variant, problem, device, target, jobs, schedules, seed, quiet=json)
    if json:
        print_json(verified.to_json())
    else:
        _print(verified)
    return ExitCode.DONE if verified.ok else ExitCode.CHECK_FAILED


def _print(verified: Verified) -> None:
    op, results = verified.op, verified.results
    print_tables([make_verify_table(op, results, verified.device_name)])
    print(f"{verified.plan}. {verified.where}")
    for line in [f"op {op}: {f.describe()}" for f in verified.op_faults] + [line for r in results for line in list_fault_lines(r)]:
        print(line)
    for judged in verified.judged:
        for advice in judged.build.resources.advice if judged.build.resources else ():
            print(f"{judged.variant.name}: slow as it is compiled: {advice}")
