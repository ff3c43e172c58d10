"""Model the time of variants on a target by running samples of their blocks on the emulated device, and rank them.

With --validate, compare modelled with measured times, held out fold by fold, and write tables and points.

\b
Examples:
  python -m harness model transpose --problem rows8192_columns8192
  python -m harness model softmax --variant row_in_registers
  python -m harness model --validate transpose.json --validate softmax.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import AsJson, Jobs, ProblemNames, TargetName, VariantNames
from harness.errors import ExitCode
from harness.spec import SpecError
from harness.sweep.model_validation import COLUMNS, summarize_points
from harness.terminal.console import print_json
from harness.verbs.model import model, validate_model

OptionalOp = Annotated[str, typer.Argument(metavar="[OP]", help="the op whose variants are ranked", show_default=False)]
PerKernel = Annotated[int, typer.Option("--per-kernel", min=1, metavar="N", help="variants of each kernel, including the listed ones")]
SweepFiles = Annotated[
    list[Path] | None,
    typer.Option("--validate", metavar="FILE", help="evaluate the model on what `sweep --save` wrote; repeatable", dir_okay=False),
]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="with --validate: where tables and points go (default: profiles/model)", file_okay=False),
]
Fit = Annotated[bool, typer.Option("--fit", help="with --validate: write the fitted parameters to harness/model/machines.toml")]


def run(
    op: OptionalOp = "",
    variant: VariantNames = None,
    problem: ProblemNames = None,
    per_kernel: PerKernel = 24,
    validate: SweepFiles = None,
    fit: Fit = False,
    out: OutFolder = None,
    target: TargetName = None,
    jobs: Jobs = None,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    if bool(op) == bool(validate):
        raise SpecError("model needs an OP to rank, or --validate FILE")
    if (fit or out) and not validate:
        raise SpecError(f"{'--fit' if fit else '--out'} goes with --validate: a ranking is not written")
    if validate and (variant or problem or json):
        raise SpecError("--variant, --problem and --json are for ranking an op: --validate takes what its files hold")
    if validate:
        return _validate(validate, fit, out, target, jobs)
    return _rank(op, variant or [], problem or [], per_kernel, target, jobs, json)


def _rank(op: str, variants: list[str], problems: list[str], per_kernel: int, target: str | None, jobs: int | None, json: bool) -> ExitCode:
    ranked = model(op, variants, problems, per_kernel, target, jobs, quiet=json)
    if json:
        print_json(ranked.to_json())
        return ExitCode.DONE
    for name in dict.fromkeys(row[0] for row in ranked.rows):
        print(f"\n{name}: model of {ranked.target}, no time was measured\n     model us         interval   bound        variant")
        for _, variant_name, m in (row for row in ranked.rows if row[0] == name):
            print(f"{m.time_us:13.2f} {m.low_us:8.2f}-{m.high_us:<9.2f} {m.bound:12s} {variant_name}")
    return ExitCode.DONE


def _validate(files: list[Path], fit: bool, out: Path | None, target: str | None, jobs: int | None) -> ExitCode:
    found, num_points, folder = validate_model(files, fit, out, target, jobs)
    titled = {"held out by variant": found.by_variant, "held out by op": found.by_op, "not fitted": found.by_prior, "fitted": found.fitted}
    for title, modelled in titled.items():
        print(f"\n{title}\n{'  '.join(COLUMNS)}")
        for row in summarize_points(found, modelled):
            print("  ".join(row))
    print(f"\n{num_points} points in {folder}")
    return ExitCode.DONE
