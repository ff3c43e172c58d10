"""List the ops, or the kernels, variants and problems of one op.

\b
Examples:
  python -m harness list
  python -m harness list gemm_bias_act
  python -m harness list gemm_bias_act --json
"""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.options import AsJson
from harness.discover import find_op, find_ops, load_op
from harness.errors import ExitCode
from harness.terminal.console import print_json


def run(
    op: Annotated[str | None, typer.Argument(metavar="[OP]", help="an op to describe; all ops by default", show_default=False)] = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    if op is None:
        loaded = [load_op(folder) for folder in find_ops().values()]
        if json:
            print_json([{"name": o.name, "summary": o.summary, "kernels": [k.name for k in o.kernels]} for o in loaded])
        else:
            for o in loaded:
                print(f"{o.name:20} {len(o.kernels)} kernels, {len(o.variants)} variants   {o.summary}")
        return ExitCode.DONE
    spec = find_op(op).op
    if json:
        print_json(
            {
                "name": spec.name,
                "summary": spec.summary,
                "kernels": [{"name": k.name, "idea": k.idea, "variants": [k.bind(v).name for v in k.variants]} for k in spec.kernels],
                "problems": [{"name": p.name, "suites": sorted(p.suites)} for p in spec.problems],
            }
        )
        return ExitCode.DONE
    print(f"{spec.name}: {spec.summary}\n\nkernels")
    for kernel in spec.kernels:
        print(f"  {kernel.name:16} {kernel.idea}")
        for tunable in kernel.tunables:
            print(f"  {'':16}   {tunable.name} in {list(tunable.values)}: {tunable.meaning}")
        for bound in kernel.variants:
            print(f"  {'':16} - {kernel.bind(bound).name}")
    print("\nproblems")
    for problem in spec.problems:
        print(f"  {problem.name:60} {', '.join(sorted(problem.suites))}")
    return ExitCode.DONE
