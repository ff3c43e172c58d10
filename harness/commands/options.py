"""Parameters shared by several verbs, with the same names and wording everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

OpName = Annotated[str, typer.Argument(metavar="OP", help="the op: a folder below ops/", show_default=False)]
VariantNames = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        "-v",
        metavar="NAME",
        help="a kernel (all its variants), one variant, e.g. smem_tiled/bm32_bn32_bk32, or a pattern, e.g. '*/bm32_*'; repeatable",
    ),
]
ProblemNames = Annotated[
    list[str] | None, typer.Option("--problem", "-p", metavar="NAME", help="a problem by its name, or a pattern, e.g. 'M1_*'; repeatable")
]
DeviceName = Annotated[str | None, typer.Option("--device", "-d", metavar="auto|cuda|emulated", help="overrides AICF_DEVICE")]
TargetName = Annotated[
    str | None,
    typer.Option("--target", "-t", metavar="NAME", help="GPU to build for and to model: h200, h100 or a100; overrides AICF_TARGET"),
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="how many compilers run at once; overrides AICF_JOBS")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document instead of tables")]
Published = Annotated[bool, typer.Option("--published", help="read the records in profiles/, not the database")]
