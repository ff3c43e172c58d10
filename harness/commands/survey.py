"""Fit the time models that choose frozen kernels for unmeasured problems, and evaluate the choices.

`measure` times all frozen kernels that serve drawn problems, on a GPU, and beside them the variants that --variant names: those that the
problems need, `promote --population` freezes. `fit` fits models to such times and evaluates the choices on held-out problems; `adopt` also
puts the models into the frozen set. `regret` times the chosen kernel against all others on problems that no model has seen; `recorded`
compares the choices with published times, without a GPU. `report` writes profiles/selection/h200.md from the records next to it.

\b
Examples:
  python -m harness survey measure gemm_bias_act --out /tmp/survey
  # what new variants would add, and times that choose among all
  python -m harness survey measure gemm_bias_act -v 'turned/*' \\
    --out /tmp/survey
  # of some problems alone
  python -m harness survey measure gemm_bias_act --where dtype=float32 \\
    --where M=12..3000 --out /tmp/survey
  python -m harness survey fit gemm_bias_act \\
    profiles/selection/h200-survey-gemm_bias_act.json
  python -m harness survey adopt gemm_bias_act /tmp/survey/*.json
  python -m harness survey regret gemm_bias_act --seed 7 --problems 60
  python -m harness survey recorded gemm_bias_act
  python -m harness survey report
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from contract.calls import Query
from contract.frozen_set import list_ops, read_op
from contract.layout import find_frozen_dir
from device import open_device
from device.runtime import RuntimeDevice
from harness.commands.options import VariantNames
from harness.compare.drawn import seeds
from harness.discover import find_op
from harness.errors import ExitCode, UseError
from harness.surveys.adoption import adopt_survey, fit_times, read_times
from harness.surveys.candidates import open_candidates
from harness.surveys.drawing import draw_unmeasured, make_filter
from harness.surveys.page import make_page
from harness.surveys.published_regret import HELD_OUT, judge_published, read_published_times
from harness.surveys.records import find_folder, make_times_document, name_gpu, write_record
from harness.surveys.regret import Summary
from harness.surveys.timing import POLICY, FrozenKernels, time_problems
from harness.timing.timer import Timer


class Action(StrEnum):
    """What ``survey`` does."""

    MEASURE = "measure"
    FIT = "fit"
    ADOPT = "adopt"
    REGRET = "regret"
    RECORDED = "recorded"
    REPORT = "report"


# What each action obeys; any other option is refused.
_TIMED = ("OP", "--seed", "--problems", "--budget", "--out")
_OPTIONS: dict[Action, tuple[str, ...]] = {
    Action.MEASURE: (*_TIMED, "--where", "--variant"),
    Action.REGRET: (*_TIMED, "--where"),
    Action.FIT: ("OP", "FILE", "--arch"),
    Action.ADOPT: ("OP", "FILE", "--arch"),
    Action.RECORDED: ("OP", "--arch", "--out"),
    Action.REPORT: (),
}
# Choices are never judged on the problems that models were fitted to.
_SEEDS = {Action.MEASURE: 1, Action.REGRET: 2}
_NUM_PROBLEMS, _BUDGET_S, _ARCH = 200, 120.0, "sm_90a"

OptionalOp = Annotated[str | None, typer.Argument(metavar="[OP]", help="an op of the frozen set; report: none", show_default=False)]
Files = Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", help="fit, adopt: files that measure wrote", show_default=False)]
Arch = Annotated[str | None, typer.Option("--arch", metavar="NAME", help=f"the architecture that was timed (default: {_ARCH})")]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, help=f"seed of the drawn problems (default: measure {_SEEDS[Action.MEASURE]}, regret 2)")
]
NumProblems = Annotated[int | None, typer.Option("--problems", min=1, help=f"how many problems are drawn (default: {_NUM_PROBLEMS})")]
Budget = Annotated[
    float | None, typer.Option("--budget", min=0.0, metavar="SECONDS", help=f"start no problem later than this (default: {_BUDGET_S:g})")
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", metavar="NAME=VALUE", help="draw such problems alone: an attribute's value, a size's, or its least..most; repeatable"
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="where the record goes (default: profiles/selection)")]


def run(
    action: Annotated[Action, typer.Argument(help="measure, fit, adopt, regret, recorded or report", show_default=False)],
    op: OptionalOp = None,
    file: Files = None,
    arch: Arch = None,
    seed: Seed = None,
    problems: NumProblems = None,
    budget: Budget = None,
    out: Out = None,
    where: Where = None,
    variant: VariantNames = None,
) -> ExitCode:
    """Run the verb."""
    given: dict[str, object] = {
        "OP": op,
        "FILE": file,
        "--arch": arch,
        "--seed": seed,
        "--problems": problems,
        "--budget": budget,
        "--out": out,
        "--where": where,
        "--variant": variant,
    }
    if stray := [name for name, value in given.items() if value is not None and name not in _OPTIONS[action]]:
        raise UseError(f"{stray[0]} is not an option of survey {action} (its options: {', '.join(_OPTIONS[action]) or 'none'})")
    folder = out or find_folder()
    if action is Action.REPORT:
        return _report(folder)
    if op is None:
        raise UseError(f"survey {action} needs an op: one of {', '.join(list_ops()) or '(none is frozen)'}")
    spec = find_op(op).op
    if action in (Action.FIT, Action.ADOPT):
        if not file:
            raise UseError(f"survey {action} needs files of times: those that `survey measure {op}` wrote")
        return _fit(op, file, arch or _ARCH, is_adopted=action is Action.ADOPT)
    if action is Action.RECORDED:
        return _judge_recorded(op, arch or _ARCH, folder)
    wanted = _NUM_PROBLEMS if problems is None else problems
    budget_s = _BUDGET_S if budget is None else budget
    draw = _Draw(_SEEDS[action] if seed is None else seed, wanted, make_filter(spec, where) if where else None)
    return _measure(action, op, draw, budget_s, folder, variant or [])


@dataclass(frozen=True)
class _Draw:
    """Which problems are drawn, and how many."""

    seed: int
    problems: int
    keeps: Callable[[Query], bool] | None


def _measure(action: Action, op: str, draw: _Draw, budget_s: float, folder: Path, variants: Sequence[str]) -> ExitCode:
    frozen = read_op(op)
    device = open_device("cuda")
    assert isinstance(device, RuntimeDevice)
    candidates = open_candidates(frozen, variants)
    kernels = FrozenKernels(device, candidates.frozen, candidates.calls)
    spec = find_op(op).op
    drawn = draw_unmeasured(spec, kernels.core, draw.problems, draw.seed, draw.keeps)
    if not drawn and draw.keeps is not None:
        raise UseError(f"--where: no problem of {op}'s population is such, that no median is known of")
    rows = time_problems(spec, kernels, Timer(device, POLICY), drawn, budget_s)
    regrets = Summary.of([row["regret"] for row in rows])
    name = "survey" if action is Action.MEASURE else "regret"
    target = folder / f"{name_gpu(device.properties.name)}-{name}-{op}.json"
    write_record(target, make_times_document(device, op, draw.seed, len(drawn), kernels.core.table.kernels, rows, candidates.code_hashes))
    if action is Action.MEASURE:
        source = seeds.NEIGHBOURS if spec.population is None else seeds.POPULATION
        seeds.note_use(seeds.find_ledger(op), seeds.SeedUse(draw.seed, source, "survey", target.name))
    print(f"{target}: {len(rows)} of {len(drawn)} problems; regret of the choices: {regrets.describe()}")
    return ExitCode.DONE


def _fit(op: str, files: list[Path], arch: str, *, is_adopted: bool) -> ExitCode:
    times = read_times(op, files)
    found = (adopt_survey if is_adopted else fit_times)(find_frozen_dir(), times, arch)
    print(f"{op}: {found.describe()}")
    return ExitCode.DONE


def _judge_recorded(op: str, arch: str, folder: Path) -> ExitCode:
    frozen = read_op(op)
    rows = judge_published(find_op(op).op, frozen, arch, read_published_times(find_folder().parent, frozen))
    target = folder / f"recorded-regret-{op}.json"
    write_record(target, {"op": op, "rows": rows})
    for key in HELD_OUT:
        regrets = Summary.of([row[key]["regret"] for row in rows])
        print(f"{key}: {regrets.problems} problems, {regrets.describe()}")
    print(target)
    return ExitCode.DONE


def _report(folder: Path) -> ExitCode:
    page = folder / "h200.md"
    page.write_text(make_page(folder))
    print(page)
    return ExitCode.DONE
