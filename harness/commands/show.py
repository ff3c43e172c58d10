"""Show what the compiler made of a variant; building it first where needed. Without an option: the resource report and paths.

Without a variant: the names of those that there are.

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

from device.cubin import read_ptx
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.builder import build_op, describe_result
from harness.build.disassemble import disassemble
from harness.build.generate import generate_sources
from harness.commands.options import AsJson, OpName, TargetName
from harness.discover import LoadedOp, find_op
from harness.errors import BuildError, ExitCode, SpecError
from harness.spec import Op
from harness.targets import find_target
from harness.terminal.console import print_json


def run(
    op: OpName,
    variant: Annotated[
        str | None,
        typer.Argument(metavar="[VARIANT]", help="one variant, e.g. naive/bm16_bn16; all are listed when left out", show_default=False),
    ] = None,
    ptx: Annotated[bool, typer.Option("--ptx", help="the PTX that the emulated device runs")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="the machine code, disassembled")] = False,
    log: Annotated[bool, typer.Option("--log", help="what ptxas reported")] = False,
    api: Annotated[bool, typer.Option("--api", help="the C interface that is generated from op.py")] = False,
    target: TargetName = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    loaded = find_op(op)
    if api:
        return _show_interface(loaded)
    if variant is None:
        if ptx or sass or log:
            raise SpecError(f"--ptx, --sass and --log show one variant: name it; `show {op}` lists those of the op")
        return _list_variants(loaded.op, json)
    variants = loaded.op.select_variants([variant])
    if len(variants) != 1:
        raise SpecError(f"{variant!r} names {len(variants)} variants; show takes one of: {', '.join(v.name for v in variants)}")
    toolchain, chosen = find_toolchain(), find_target(target or read_settings().target)
    result = build_op(loaded, variants, toolchain=toolchain, target=chosen)[0]
    if result.library is None:
        raise BuildError(f"{variant} does not compile:\n{result.error}")
    texts: dict[str, str] = {}
    if ptx:
        texts["ptx"] = read_ptx(result.library)
    if sass:
        texts["sass"] = disassemble(result.library, toolchain)
    if log:
        texts["log"] = (result.library.parent / "ptxas.txt").read_text()
    if json:
        print_json({"op": op, "target": chosen.name, **describe_result(result), **texts})
        return ExitCode.DONE
    for text in texts.values():
        print(text)
    if not texts:
        print(f"library    {result.library}\ncode hash  {result.code_hash}\nresources  {result.resources}")
    return ExitCode.DONE


def _show_interface(loaded: LoadedOp) -> ExitCode:
    header = f"{loaded.op.name}/params.h"
    texts = generate_sources(loaded)
    if header not in texts:
        raise SpecError(f"op {loaded.op.name} writes its C interface by hand, or holds the generated one: read {loaded.folder}/api.hpp")
    print(texts[header], end="")
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
