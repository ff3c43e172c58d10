"""Show what the compiler made of a variant, building it first if needed. Without an option: the resource report and paths.

Without a variant: the names of all variants.

\b
Examples:
  python -m harness show gemm_bias_act
  python -m harness show softmax --api
  python -m harness show gemm_bias_act naive/bm16_bn16 --ptx
  python -m harness show gemm_bias_act naive/bm16_bn16 --sass | less
"""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.options import AsJson, OpName, TargetName
from harness.discover import find_op
from harness.errors import ExitCode, SpecError
from harness.spec import Op
from harness.terminal.console import print_json
from harness.verbs.show import show, show_interface


def run(
    op: OpName,
    variant: Annotated[
        str | None,
        typer.Argument(metavar="[VARIANT]", help="one variant, e.g. naive/bm16_bn16; by default all are listed", show_default=False),
    ] = None,
    ptx: Annotated[bool, typer.Option("--ptx", help="the PTX that the emulated device runs")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="the machine code, disassembled")] = False,
    log: Annotated[bool, typer.Option("--log", help="what ptxas reported")] = False,
    api: Annotated[bool, typer.Option("--api", help="the C interface that is generated from op.py")] = False,
    target: TargetName = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    if api:
        print(show_interface(op), end="")
        return ExitCode.DONE
    if variant is None:
        if ptx or sass or log:
            raise SpecError(f"--ptx, --sass and --log show one variant: name it; `show {op}` lists those of the op")
        return _list_variants(find_op(op).op, json)
    shown = show(op, variant, ptx, sass, log, target)
    if json:
        print_json(shown.to_json())
        return ExitCode.DONE
    for text in shown.texts.values():
        print(text)
    if not shown.texts:
        r = shown.build
        print(f"library    {r.library}\ncode hash  {r.code_hash}\nresources  {r.resources}")
    return ExitCode.DONE


def _list_variants(op: Op, json: bool) -> ExitCode:
    if json:
        print_json({"op": op.name, "variants": [v.name for v in op.variants]})
        return ExitCode.DONE
    for kernel in op.kernels:
        print(f"{kernel.name}: {kernel.idea}")
        for bound in kernel.variants:
            print(f"  {kernel.bind(bound).name}")
    print(f"python -m harness show {op.name} {op.variants[0].name} shows what the compiler made of one")
    return ExitCode.DONE
