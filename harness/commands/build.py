"""Compile an op's variants and its binding. Whatever is unchanged comes from the cache without running a compiler.

\b
Examples:
  python -m harness build gemm_bias_act
  python -m harness build gemm_bias_act --variant pipelined
  python -m harness build softmax --target a100 --json
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.commands.options import AsJson, Jobs, OpName, TargetName, VariantNames
from harness.errors import ExitCode
from harness.terminal.console import print_json
from harness.verbs.build import Built, build

FirstLook = Annotated[bool, typer.Option("--first-look", help="of a large op, only the variants that bench takes by default without a GPU")]


def run(
    op: OpName,
    variant: VariantNames = None,
    target: TargetName = None,
    jobs: Jobs = None,
    first_look: FirstLook = False,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    built = build(op, variant, target, jobs, first_look=first_look, quiet=json)
    if json:
        print_json(built.to_json())
    else:
        _print(built)
    return ExitCode.CHECK_FAILED if built.failed else ExitCode.DONE


def _print(built: Built) -> None:
    for r in built.builds:
        if r.resources:
            u = r.resources
            figures = f"{u.registers:3} registers, {u.shared_bytes:6} B static shared, {u.spill_bytes} B spilled"
            print(f"{r.variant.name:75} {figures}")
            for note in r.resources.advice:
                print(f"{'':75} ptxas: {note}")
    for r in built.failed:
        print(f"\n{r.variant.name} does not compile:\n{r.error}", file=sys.stderr)
    cached, total = sum(r.cached for r in built.builds), len(built.builds)
    print(f"{total - len(built.failed)} of {total} variants built ({cached} from the cache) for {built.target.name}")
