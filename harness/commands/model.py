"""Model the time of variants on a target from samples of their blocks on the emulated device, and rank them.

With --validate, compare modelled and measured times, held out fold by fold, and write tables and points.

\b
Examples:
  python -m harness model transpose --problem rows8192_columns8192
  python -m harness model softmax --variant row_in_registers
  python -m harness model --validate transpose.json --validate softmax.json
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from device.settings import find_project_root, read_settings
from harness.build.store import write_atomically
from harness.commands.options import AsJson, Jobs, ProblemNames, TargetName, VariantNames
from harness.discover import find_op
from harness.errors import ExitCode
from harness.model.time_model import MACHINES, Prediction, load_machine, predict
from harness.records.sweeps import load_sweep
from harness.spec import SpecError
from harness.sweep.model_validation import (
    COLUMNS,
    collect_points,
    make_csv,
    make_report,
    model_op,
    summarize_points,
    validate,
    write_parameters,
)
from harness.sweep.space import sample_space, select_sweep_problems
from harness.targets import find_target
from harness.terminal.console import claim_output, open_progress, print_json

OptionalOp = Annotated[str, typer.Argument(metavar="[OP]", help="the op whose variants are ranked", show_default=False)]
PerKernel = Annotated[int, typer.Option("--per-kernel", min=1, metavar="N", help="variants of each kernel, the listed ones among them")]
SweepFiles = Annotated[
    list[Path] | None,
    typer.Option("--validate", metavar="FILE", help="judge the model by what `sweep --save` wrote; repeatable", dir_okay=False),
]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="with --validate: where tables and points go; profiles/model", file_okay=False),
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
    settings = read_settings()
    chosen, found_op = find_target(target or settings.target), find_op(op).op
    machine = load_machine(chosen.name)
    wanted = found_op.select_variants(variants) if variants else sample_space(found_op, per_kernel)
    found: list[tuple[str, str, Prediction]] = []
    num_problems = len(select_sweep_problems(found_op, problems))
    with open_progress(f"model {op}", len(wanted) * (1 + num_problems), quiet=json) as progress:
        for _, features in model_op(op, wanted, problems, chosen, jobs or settings.jobs, progress.advance):
            found.append((features.problem, features.variant, predict(features, chosen, machine)))
    found.sort(key=lambda row: (row[0], row[2].time_us))
    if json:
        rows = [{"problem": p, "variant": v, **asdict(m)} for p, v, m in found]
        print_json({"op": op, "target": chosen.name, "record": machine.record, "rows": rows})
        return ExitCode.DONE
    for name in dict.fromkeys(row[0] for row in found):
        print(f"\n{name}: model of {chosen.name}, no time was measured\n     model us         interval   bound        variant")
        for _, variant_name, m in (row for row in found if row[0] == name):
            print(f"{m.time_us:13.2f} {m.low_us:8.2f}-{m.high_us:<9.2f} {m.bound:12s} {variant_name}")
    return ExitCode.DONE


def _validate(files: list[Path], fit: bool, out: Path | None, target: str | None, jobs: int | None) -> ExitCode:
    settings = read_settings()
    chosen = find_target(target or settings.target)
    sweeps = [load_sweep(path) for path in files]
    root = find_project_root()
    folder = out or root / "profiles" / "model"
    claim_output(folder, "--out", is_folder=True)
    num_variants = sum(len({p.variant for p in s.points if p.status == "passed"}) for s in sweeps)
    num_points = sum(p.status == "passed" for s in sweeps for p in s.points)
    with open_progress("model", num_variants + num_points) as progress:
        points = collect_points(sweeps, chosen, jobs or settings.jobs, progress.advance)
    found = validate(points)
    report = make_report(found, sweeps[0].about, chosen)
    write_atomically(folder / f"{chosen.name}.md", report)
    write_atomically(folder / f"{chosen.name}.csv", make_csv(found))
    if fit:
        write_atomically(MACHINES, write_parameters(MACHINES.read_text(), chosen.name, found, f"profiles/model/{chosen.name}.csv"))
    titled = {"held out by variant": found.by_variant, "held out by op": found.by_op, "not fitted": found.by_prior, "fitted": found.fitted}
    for title, modelled in titled.items():
        print(f"\n{title}\n{'  '.join(COLUMNS)}")
        for row in summarize_points(found, modelled):
            print("  ".join(row))
    print(f"\n{len(points)} points in {folder}")
    return ExitCode.DONE
