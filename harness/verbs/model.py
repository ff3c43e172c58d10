"""``model``: variants ranked by their modelled time, and the model compared with measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contract.files import write_atomically
from device.settings import find_project_root, read_settings
from harness.model.time_model import MACHINES, Prediction, load_machine, predict
from harness.records.sweeps import load_sweep
from harness.spec import SpecError
from harness.sweep.model_validation import (
    Validation,
    collect_points,
    make_csv,
    make_report,
    model_op,
    validate,
    write_parameters,
)
from harness.sweep.space import sample_space, select_sweep_problems
from harness.targets import find_target
from harness.terminal.console import claim_output, open_progress
from harness.verbs.naming import Names, OpLike, list_names, take_op


@dataclass(frozen=True)
class Ranked:
    """(problem, variant, prediction), the fastest of each problem first; the target, and the record that the model was fitted to."""

    op: str
    target: str
    record: str
    rows: list[tuple[str, str, Prediction]]

    def list_rows(self) -> list[dict[str, Any]]:
        """Return plain values, one row per variant and problem."""
        return [{"problem": p, "variant": v, **asdict(m)} for p, v, m in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"op": self.op, "target": self.target, "record": self.record, "rows": self.list_rows()}


def model(
    op: OpLike,
    variant: Names = None,
    problem: Names = None,
    per_kernel: int = 24,
    target: str | None = None,
    jobs: int | None = None,
    *,
    quiet: bool = False,
) -> Ranked:
    """Model variants (a sample of each kernel's space where none is named) on the problems of a sweep; no GPU is used.

    Raises SpecError for names that there are not, UnavailableError where the target has no model.
    """
    loaded, problems, names = take_op(op), list_names(problem), list_names(variant)
    settings = read_settings()
    chosen = find_target(target or settings.target)
    machine = load_machine(chosen.name)
    wanted = loaded.op.select_variants(names) if names else sample_space(loaded.op, per_kernel)
    found: list[tuple[str, str, Prediction]] = []
    total = len(wanted) * (1 + len(select_sweep_problems(loaded.op, problems)))
    with open_progress(f"model {loaded.op.name}", total, quiet=quiet) as progress:
        for _, features in model_op(loaded, wanted, problems, chosen, jobs or settings.jobs, progress.advance):
            found.append((features.problem, features.variant, predict(features, chosen, machine)))
    found.sort(key=lambda row: (row[0], row[2].time_us))
    return Ranked(loaded.op.name, chosen.name, machine.record, found)


def validate_model(
    files: Sequence[Path], fit: bool = False, out: Path | None = None, target: str | None = None, jobs: int | None = None
) -> tuple[Validation, int, Path]:
    """Judge the model by measured sweeps; return what was found, of how many points, and the folder with tables and points.

    Raises SpecError where nothing can be written to ``out``, RecordError for a file that holds no sweep.
    """
    if not files:
        raise SpecError("--validate needs files that `sweep --save` wrote")
    settings = read_settings()
    chosen = find_target(target or settings.target)
    sweeps = [load_sweep(Path(path)) for path in files]
    folder = Path(out) if out is not None else find_project_root() / "profiles" / "model"
    claim_output(folder, "--out", is_folder=True)
    num_variants = sum(len({p.variant for p in s.points if p.status == "passed"}) for s in sweeps)
    num_points = sum(p.status == "passed" for s in sweeps for p in s.points)
    with open_progress("model", num_variants + num_points) as progress:
        points = collect_points(sweeps, chosen, jobs or settings.jobs, progress.advance)
    found = validate(points)
    write_atomically(folder / f"{chosen.name}.md", make_report(found, sweeps[0].about, chosen))
    write_atomically(folder / f"{chosen.name}.csv", make_csv(found))
    if fit:
        write_atomically(MACHINES, write_parameters(MACHINES.read_text(), chosen.name, found, f"profiles/model/{chosen.name}.csv"))
    return found, len(points), folder
