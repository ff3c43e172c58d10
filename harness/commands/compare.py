"""Compare an op with its peers on the goals of its op.py: geometric mean, worst problem, and whether the aim is met.

Variants that are named are timed beside the op's choices, and how far these are behind the fastest of them is said.
An op without goals has its variants compared with the first of them, as --base does; that one being faster is no failure.

With --base, --against or --record: time variants in turns in one process, A B B A, and say FASTER, SLOWER, SAME or AMBIGUOUS with
effect and confidence. The incumbent competes with a copy of itself too; where those two differ, the run is void. Exits with 1 if a
candidate is SLOWER, a run is void, or a goal's own choice could not be measured.
Two records are compared without a GPU; where the database has none of the op, the published ones are read.

With --drawn: time what users get, the frozen decision, on problems drawn from the op's population, beside the libraries and the op's
own choice. Runs add up to one page. Without a GPU the decisions are shown with modelled times. --cliffs looks for neighbours whose
times jump.

\b
Examples:
  # the op beside its peers: all goals, or one, kept as page and plot
  python -m harness compare gemm_bias_act
  python -m harness compare gemm_bias_act --goal decode --publish out
  # a kernel's variants against one variant
  python -m harness compare softmax --base naive/threads64 -v warp_per_row
  # did this branch make it slower? exits with 1 if so
  python -m harness compare softmax --against main -v row_in_shared
  # problems that nobody listed, and where times jump
  python -m harness compare softmax --drawn 60 --seed 7
  python -m harness compare gemm_bias_act --drawn 20 --seed 7 --cliffs
  # two records, with no GPU; `report` lists their numbers
  python -m harness compare softmax --published --record 63 --record 65
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from device.settings import read_settings
from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, Published, TargetName, VariantNames
from harness.compare.drawn.cliff_run import run_cliffs
from harness.compare.drawn.page import summarize
from harness.compare.drawn.record import FILE, GroupResult, find_record, read_runs
from harness.compare.drawn.run import Request, run_drawn
from harness.compare.goals import Row
from harness.compare.goals_run import GoalsRequest, run_goals
from harness.compare.variants import Compared, compare_records
from harness.compare.variants_run import VariantsRequest, run_variants
from harness.discover import find_op
from harness.errors import ExitCode, RecordUseError
from harness.records.published import open_records
from harness.spec import SpecError
from harness.terminal.console import claim_output, print_json
from harness.terminal.figures import format_us
from harness.terminal.tables import print_tables
from harness.timing.verdicts import Criteria, format_p_value

BaseName = Annotated[str | None, typer.Option("--base", "-b", metavar="NAME", help="the incumbent: a variant by its exact name")]
Revision = Annotated[str | None, typer.Option("--against", metavar="REV", help="the incumbent is each variant as it was at this revision")]
RecordIds = Annotated[list[int] | None, typer.Option("--record", metavar="ID", help="compare two records: incumbent, then candidate")]
ModeName = Annotated[str, typer.Option("--mode", metavar="cold|hot", help="what is in the caches when a launch starts")]
Margin = Annotated[float, typer.Option("--margin", min=0.01, max=50.0, metavar="PERCENT", help="less than this is the same")]
GoalNames = Annotated[list[str] | None, typer.Option("--goal", metavar="NAME", help="only these goals of the op; may be repeated")]
Publish = Annotated[
    Path | None,
    typer.Option("--publish", metavar="FOLDER", help="write page, picture and record (goals.* or drawn.*) there", file_okay=False),
]
Drawn = Annotated[int | None, typer.Option("--drawn", min=1, metavar="N", help="judge N problems drawn from the op's population")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, metavar="S", help="with --drawn: which problems; a fresh one when left out")]
Seconds = Annotated[float, typer.Option("--seconds", min=0.0, metavar="S", help="with --drawn: begin no further problem after this")]
Regret = Annotated[bool, typer.Option("--regret", help="with --drawn: time all frozen kernels and variants too")]
Cliffs = Annotated[bool, typer.Option("--cliffs", help="with --drawn: neighbours in the sizes whose times jump, worst first")]
PeerNames = Annotated[
    list[str] | None, typer.Option("--peer", metavar="NAME", help="with --drawn: this library beside those of each group; repeatable")
]
SeedUse = Annotated[
    str, typer.Option("--use", metavar="TEXT", help="with --drawn: what else its seed is used for (tuning, ...), for the ledger of seeds")
]
Confidence = Annotated[float, typer.Option("--confidence", min=50.0, max=99.999, metavar="PERCENT", help="of a verdict, over all looks")]

# Columns of an effect.
_NUMBERS = ("change", "interval", "confidence", "p", "rounds")


def run(
    op: OpName,
    base: BaseName = None,
    variant: VariantNames = None,
    against: Revision = None,
    record: RecordIds = None,
    problem: ProblemNames = None,
    goal: GoalNames = None,
    publish: Publish = None,
    drawn: Drawn = None,
    seed: Seed = None,
    seconds: Seconds = 600.0,
    regret: Regret = False,
    cliffs: Cliffs = False,
    peer: PeerNames = None,
    use: SeedUse = "",
    mode: ModeName = "cold",
    margin: Margin = 0.5,
    confidence: Confidence = 99.0,
    device: DeviceName = None,
    target: TargetName = None,
    jobs: Jobs = None,
    published: Published = False,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    given = sum(x is not None for x in (base, against, record))
    if drawn is not None:
        if given or goal or variant or problem or mode != "cold" or published:
            raise SpecError("--drawn goes with --seed, --seconds, --regret, --cliffs, --peer, --use and --publish alone")
        seed = secrets.randbelow(1_000_000) if seed is None else seed
        command = _name_drawn(op, drawn, seed, regret, cliffs, peer or [])
        request = Request(op, drawn, seed, command, seconds, regret, tuple(peer or ()), use, publish, device, target, jobs, json)
        return run_cliffs(request) if cliffs else run_drawn(request, _draw)
    if seed is not None or seconds != 600.0 or regret or cliffs or peer or use:
        raise SpecError("--seed, --seconds, --regret, --cliffs, --peer and --use are for drawn problems: with --drawn N")
    if not given and (goal or publish or (base := _find_first_variant(op)) is None):
        _check_goals(publish, published, problem, mode)
        lead = _lead_goals(op, publish)
        return run_goals(GoalsRequest(op, goal or [], variant or [], publish, device, target, jobs, json, lead), _draw_goals)
    _check_sides(given, goal, publish, published and record is None, mode)
    criteria = Criteria(margin=margin / 100, error=1 - confidence / 100)
    if record is not None:
        return _show(op, *_compare_records(op, record, criteria, published), criteria, is_gate=True, as_json=json)
    sides = VariantsRequest(op, base, against, variant or [], problem or [], mode, criteria, device, target, jobs, json)
    # Without a word the ladder is compared with its first rung, and that one being faster is no failure.
    return _show(op, *run_variants(sides), criteria, is_gate=given > 0, as_json=json, keeps_problems=against is not None)


def _name_drawn(op: str, count: int, seed: int, regret: bool, cliffs: bool, peers: list[str]) -> str:
    """Return the command, as the run is recorded."""
    words = [f"compare {op} --drawn {count} --seed {seed}", *(["--regret"] if regret else []), *(["--cliffs"] if cliffs else [])]
    return " ".join([*words, *(f"--peer {name}" for name in peers)])


def _find_first_variant(op: str) -> str | None:
    """Return the variant that an op without goals is compared with, None for an op that has goals."""
    found = find_op(op).op
    if found.goals:
        return None
    print(
        f"{op} has no goals: its variants are compared with the first, {found.variants[0].name}; --base NAME chooses another",
        file=sys.stderr,
    )
    return found.variants[0].name


def _check_goals(publish: Path | None, published: bool, problem: list[str] | None, mode: str) -> None:
    """Raise SpecError for options that the goals do not take, or where nothing can be published."""
    if published:
        raise SpecError("--published goes with --record: the goals are measured anew")
    if problem or mode != "cold":
        raise SpecError("the goals fix problems and the cold mode: --problem and --mode go with --base or --against")
    if publish is not None:
        claim_output(publish, "--publish", is_folder=True)


def _check_sides(num_given: int, goal: list[str] | None, publish: Path | None, measures_published: bool, mode: str) -> None:
    """Raise SpecError for options that do not go together where two sides are compared."""
    if goal or publish:
        raise SpecError("--goal and --publish are for the goals: without --base, --against and --record")
    if num_given > 1:
        raise SpecError("compare needs one of --base NAME, --against REV, and --record ID twice")
    if measures_published:
        raise SpecError("--published goes with --record: variants are measured anew")
    if mode not in ("cold", "hot"):
        raise SpecError(f"--mode {mode}: must be cold or hot")


def _lead_goals(op: str, publish: Path | None) -> list[str]:
    """Return what the page of goals begins with: drawn problems, where the folder or the project has a record of them."""
    beside = publish / FILE if publish is not None else None
    return summarize(find_op(op).op, read_runs(beside if beside is not None and beside.is_file() else find_record(op)))


def _draw_goals(rows: list[Row], heading: str) -> str:
    from harness.report.pictures.forest import plot_goals  # matplotlib takes a second to import
    from harness.report.pictures.svg import Drawing
    from harness.report.pictures.theme import WIDE

    return Drawing(plot_goals(rows, heading, WIDE)).to_svg()


def _draw(results: Sequence[GroupResult], heading: str) -> str:
    from harness.report.pictures.drawn import plot_drawn  # matplotlib takes a second to import
    from harness.report.pictures.svg import Drawing
    from harness.report.pictures.theme import WIDE

    return Drawing(plot_drawn(results, heading, WIDE)).to_svg()


def _compare_records(op: str, ids: list[int], criteria: Criteria, published: bool) -> tuple[list[Compared], str]:
    if len(ids) != 2:
        raise SpecError(f"--record was given {len(ids)} times: give the incumbent's record, then the candidate's")
    records, where = open_records(op, read_settings().records_url, published=published)
    try:
        found = {r.id: r for r in records.list_results(op=find_op(op).op.name)}
    finally:
        records.close()
    if missing := [i for i in ids if i not in found]:
        raise RecordUseError(f"no record {missing[0]} of op {op} in {where}; python -m harness report {op} lists them")
    return [compare_records(found[ids[0]], found[ids[1]], criteria)], where


def _show(
    op: str, rows: list[Compared], where: str, criteria: Criteria, *, is_gate: bool, as_json: bool, keeps_problems: bool = False
) -> ExitCode:
    """Print the rows. A variant that ``keeps_problems`` has to serve what it served before: other variants may serve other problems."""
    if as_json:
        print_json({"op": op, "where": where, "criteria": vars(criteria), "rows": [r.to_json() for r in rows]})
    else:
        _print(rows, where)
    stops = any((r.is_regression and (is_gate or r.is_void)) or (r.is_given_up and keeps_problems) for r in rows)
    return ExitCode.CHECK_FAILED if stops else ExitCode.DONE


def _print(rows: list[Compared], where: str) -> None:
    styles = {"FASTER": "bold green", "SLOWER": "bold red", "SAME": "", "AMBIGUOUS": "yellow"}
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("problem", "incumbent", "us", "candidate", "us", "verdict", *_NUMBERS):
        table.add_column(name, justify="right" if name in ("us", *_NUMBERS) else "left")
    for r in rows:
        cells = [escape(r.problem), escape(r.incumbent), format_us(r.incumbent_us), escape(r.candidate), format_us(r.candidate_us)]
        if r.outcome is None:
            table.add_row(*cells, escape(r.reason))
            continue
        e, word = r.outcome.effect, r.outcome.verdict.value
        interval = f"{100 * e.low:+.2f} to {100 * e.high:+.2f} %"
        verdict = f"[{styles[word]}]{word}[/]" if styles[word] else word
        table.add_row(
            *cells,
            verdict,
            f"{100 * e.change:+.2f} %",
            interval,
            f"{100 * e.confidence:.4g} %",
            format_p_value(e.p_value),
            str(e.num_rounds),
        )
    print_tables([table])
    for r in rows:
        if r.outcome is not None and r.reason:
            print(f"{r.candidate} on {r.problem}: {r.reason}")
    print(f"confidence: of the interval, at one planned look; p: the chance of such a change where there is none. {where}")
