"""For each bucket, seal a variant that is faster than its frozen kernel. Gates print pass or why they refuse; exits with 1 if all refuse.

On the emulated device, which has no times, the first variant that serves a bucket becomes its provisional entry, which any measured
entry replaces.

With --population, the variants that problems drawn from the op's population need beyond the buckets' kernels come into the set, as few as
make up for what it lacks there; calls get them where a survey (`survey adopt`) says that they are the fastest.

With --library, calls may get a library of others (cublaslt) where a record of `compare --drawn` has it faster than the frozen kernels.
The record is --recorded FILE, or the newest one here; it says which version was timed, and calls get only that version.

Without --variant, a bucket's candidates are those that the op itself chooses for its problems. With --recorded, earlier times from a
GPU fill buckets without a measured entry, provided that the machine code is still the same.

\b
Examples:
  python -m harness promote gemm_bias_act --dry-run
  python -m harness promote gemm_bias_act \\
    --recorded profiles/gemm_bias_act/goals.json
  python -m harness promote softmax --bucket sm_90a/any/any/any/middle_rows \\
    --variant row_in_registers/threads32_rows4_vectors4
  python -m harness promote gemm_bias_act --fallback \\
    --variant mma/bm64_bn64_wm32_wn32_stages4_group8
  # what drawn problems need, from times of all variants on a GPU
  python -m harness survey measure gemm_bias_act -v 'turned/*' \\
    --out /tmp/survey
  python -m harness promote gemm_bias_act \\
    --population /tmp/survey/h200-survey-gemm_bias_act.json
  # cuBLASLt where it was faster than what is frozen
  python -m harness compare gemm_bias_act --drawn 120 \\
    --publish /tmp/beside
  python -m harness promote gemm_bias_act --library cublaslt \\
    --recorded /tmp/beside/drawn.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import AsJson, DeviceName, Jobs, OpName, TargetName, VariantNames
from harness.errors import ExitCode
from harness.terminal.console import print_json
from harness.verbs.promote import promote_op

BucketNames = Annotated[
    list[str] | None,
    typer.Option("--bucket", metavar="NAME", help="only this bucket, e.g. sm_90a/bfloat16/nk_whole/smooth/outputs_beyond; repeatable"),
]
IsFallback = Annotated[bool, typer.Option("--fallback", help="freeze it as a fallback, which serves what no other kernel does")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="run the gates, measure and say what would be done; write nothing")]
ForceReason = Annotated[str, typer.Option("--force-reason", metavar="TEXT", help="promote although it is not faster; TEXT is recorded")]
Margin = Annotated[float, typer.Option("--margin", min=0.01, max=50.0, metavar="PERCENT", help="a smaller change counts as the same")]
Confidence = Annotated[float, typer.Option("--confidence", min=50.0, max=99.999, metavar="PERCENT", help="of a bucket's decision")]
RecordedFile = Annotated[
    Path | None,
    typer.Option("--recorded", metavar="FILE", help="fill buckets without a measured entry from times in FILE: records, or goals"),
]
PopulationFile = Annotated[
    Path | None,
    typer.Option(
        "--population",
        metavar="FILE",
        help="freeze what drawn problems need, by a record of `survey measure --variant` or `compare --drawn --regret`",
    ),
]
LibraryName = Annotated[
    str | None, typer.Option("--library", metavar="NAME", help="let calls get this library where a record of drawn problems has it faster")
]
Revision = Annotated[str | None, typer.Option("--at", metavar="REV", help="with --recorded: promote the op as it was at this revision")]
Budget = Annotated[float, typer.Option("--budget", min=0.1, metavar="SECONDS", help="longest contest on one problem")]


def run(
    op: OpName,
    variant: VariantNames = None,
    bucket: BucketNames = None,
    fallback: IsFallback = False,
    dry_run: DryRun = False,
    force_reason: ForceReason = "",
    margin: Margin = 1.0,
    confidence: Confidence = 99.0,
    budget: Budget = 20.0,
    recorded: RecordedFile = None,
    at: Revision = None,
    population: PopulationFile = None,
    library: LibraryName = None,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    done = promote_op(
        op,
        variant,
        bucket,
        fallback,
        dry_run,
        force_reason,
        margin,
        confidence,
        budget,
        recorded,
        at,
        population,
        library,
        device,
        target,
        jobs,
        quiet=json,
        say=(lambda text: None) if json else print,
    )
    if json:
        print_json(done.to_json())
    elif done.adoption is not None:
        outcome = "would be called" if dry_run else "is called from now on"
        print(f"{done.op}: {library} {outcome if done.changed else 'is refused'}")
    else:
        print(f"{len(done.changed)} of {len(done.decisions)} buckets {'would change' if dry_run else 'changed'}")
    return ExitCode.DONE if done.changed else ExitCode.CHECK_FAILED
