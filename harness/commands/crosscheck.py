"""Run every variant on seeded inputs, and record the outputs or compare them bit for bit with another device's.

\b
Examples:
  python -m harness crosscheck gemm_bias_act -d cuda --save h200.npz
  python -m harness crosscheck gemm_bias_act -d emulated --against h200.npz
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from device import open_device
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.builder import build_binding, build_op, open_variant
from harness.commands.options import AsJson, DeviceName, OpName, TargetName, VariantNames
from harness.discover import find_op
from harness.errors import BuildError, ExitCode
from harness.spec import SpecError
from harness.targets import find_target
from harness.terminal.console import claim_output, open_progress, print_json
from harness.verify.crosscheck import compare_outputs, load_outputs, record_outputs, save_outputs

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
    if (save is None) == (against is None):
        raise SpecError("crosscheck needs one of --save FILE and --against FILE")
    loaded = find_op(op)
    if save is not None:
        claim_output(save, "--save")
    toolchain = find_toolchain()
    opened = open_device(device)
    variants = loaded.op.select_variants(variant or [])
    results = build_op(loaded, variants, toolchain=toolchain, target=find_target(target or read_settings().target))
    if failed := [r.variant.name for r in results if r.library is None]:
        raise BuildError(f"does not compile: {', '.join(failed)}; python -m harness build {op} shows why")
    binding = build_binding(loaded, toolchain)
    launchables = {r.variant: open_variant(loaded.op, binding, r.library, r.variant) for r in results if r.library is not None}
    problems = loaded.op.select_problems("verify")
    outputs: dict[str, Any] = {}
    with open_progress(f"crosscheck {op}", len(problems), quiet=json) as progress:
        for problem in problems:
            outputs.update(record_outputs(opened, loaded.op, launchables, [problem], ("normal",)))
            progress.advance(problem.name)
    p = opened.properties
    about = f"{p.name}, driver {p.driver_version}, runtime {p.runtime_version}, nvcc {toolchain.nvcc_version}"
    if save is not None:
        save_outputs(save, outputs, about)
        print(f"{len(outputs)} outputs of {about} in {save}")
        return ExitCode.DONE
    assert against is not None
    recorded, other = load_outputs(against)
    rows = compare_outputs(loaded.op, outputs, {k: v for k, v in recorded.items() if k in outputs})
    if json:
        print_json({"left": about, "right": other, "rows": [asdict(r) for r in rows]})
    else:
        print(f"left:  {about}\nright: {other}\n")
        print("| variant | attributes | outputs | elements | same bits | largest distance, ulp |")
        print("|---|---|--:|--:|--:|--:|")
        for r in rows:
            share = "all" if r.bit_exact else f"{100 * r.num_equal / r.num_elems:.2f} %"
            print(f"| {r.variant} | {r.attributes} | {r.num_outputs} | {r.num_elems} | {share} | {r.max_ulp} |")
    return ExitCode.DONE
