"""Run every variant on seeded inputs, and record the outputs or compare them bit for bit with those of another device.

\b
Examples:
  python -m harness crosscheck gemm_bias_act -d cuda --save h200.npz
  python -m harness crosscheck gemm_bias_act -d emulated --against h200.npz
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import AsJson, DeviceName, OpName, TargetName, VariantNames
from harness.errors import ExitCode
from harness.terminal.console import print_json
from harness.verbs.crosscheck import crosscheck

SavePath = Annotated[Path | None, typer.Option("--save", metavar="FILE", help="record this device's outputs in an .npz", dir_okay=False)]
AgainstPath = Annotated[
    Path | None,
    typer.Option("--against", metavar="FILE", help="compare this device's outputs with a recording", exists=True, dir_okay=False),
]


def run(
    op: OpName,
    save: SavePath = None,
    against: AgainstPath = None,
    variant: VariantNames = None,
    device: DeviceName = None,
    target: TargetName = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    done = crosscheck(op, save, against, variant, device, target, quiet=json)
    if save is not None:
        print(f"{done.num_outputs} outputs of {done.left} in {save}")
    elif json:
        print_json({"left": done.left, "right": done.right, "rows": [asdict(r) for r in done.rows]})
    else:
        print(f"left:  {done.left}\nright: {done.right}\n")
        print("| variant | attributes | outputs | elements | same bits | largest distance, ulp |")
        print("|---|---|--:|--:|--:|--:|")
        for r in done.rows:
            share = "all" if r.bit_exact else f"{100 * r.num_equal / r.num_elems:.2f} %"
            print(f"| {r.variant} | {r.attributes} | {r.num_outputs} | {r.num_elems} | {share} | {r.max_ulp} |")
    return ExitCode.DONE
