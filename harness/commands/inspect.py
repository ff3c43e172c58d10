"""Run a variant once on the emulated device with counters per line, and show what each source line compiles to and costs.

\b
Examples:
  python -m harness inspect transpose -v tiled/bm32_bn32_threads256_pad0
  python -m harness inspect gemm_bias_act --html page.html \\
    --variant warp_tiled/bm128_bn128_bk16_wm64_wn32_tm8_tn8
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import AsJson, OpName, TargetName
from harness.errors import ExitCode
from harness.profiling.inspection_views import print_inspection
from harness.terminal.console import print_json
from harness.verbs.inspect import inspect

VariantName = Annotated[str, typer.Option("--variant", "-v", metavar="NAME", help="one variant, e.g. tiled/bm32_bn32_threads256_pad1")]
ProblemName = Annotated[str, typer.Option("--problem", "-p", metavar="NAME", help="a problem by its exact name (the first emulated one)")]
HtmlPath = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="write a self-contained page", dir_okay=False)]
NumLines = Annotated[int, typer.Option("--lines", "-n", min=1, metavar="N", help="source lines to show in the terminal")]


def run(
    op: OpName,
    variant: VariantName,
    problem: ProblemName = "",
    html: HtmlPath = None,
    lines: NumLines = 12,
    target: TargetName = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    found = inspect(op, variant, problem, html, target)
    if json:
        print_json(asdict(found))
    else:
        print_inspection(found, lines)
        if html is not None:
            print(f"page: {html}")
    return ExitCode.DONE
