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

from device import UnavailableError
from device.settings import read_settings
from harness.benchmark.session import Judged, Session
from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, Published, TargetName, VariantNames
from harness.compare.drawn.cliff_run import run_cliffs
from harness.compare.drawn.page import summarize
from harness.compare.drawn.record import FILE, GroupResult, find_record, read_runs
from harness.compare.drawn.run import Request, run_drawn
from harness.compare.goals_run import run_goals
from harness.compare.variants import Compared, Side, compare_records, compare_sides, open_other_sides
from harness.discover import find_op
from harness.errors import BuildError, ExitCode, RecordUseError
from harness.records.published import open_records
from harness.spec import SpecError
from harness.terminal.console import claim_output, open_progress, print_json
from harness.terminal.figures import format_us
from harness.terminal.tables import print_tables
from harness.timing.batches import Mode
from harness.timing.timer import Timer
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
        return _compare_drawn(op, drawn, seed, seconds, regret, cliffs, peer or [], use, publish, device, target, jobs, json)
    if seed is not None or seconds != 600.0 or regret or cliffs or peer or use:
        raise SpecError("--seed, --seconds, --regret, --cliffs, --peer and --use are for drawn problems: with --drawn N")
    is_gate = given > 0
    if not given and not (goal or publish) and (first := _find_first_variant(op)) is not None:
        # It has no goals to be measured on: the ladder is compared with its first rung.
        base, given = first, 1
    if not given:
        if published:
            raise SpecError("--published goes with --record: the goals are measured anew")
        if problem or mode != "cold":
            raise SpecError("the goals fix problems and the cold mode: --problem and --mode go with --base or --against")

        if publish is not None:
            claim_output(publish, "--publish", is_folder=True)
        return run_goals(op, goal or [], variant or [], publish, device, target, jobs, json, _lead_goals(op, publish))
    if goal or publish:
        raise SpecError("--goal and --publish are for the goals: without --base, --against and --record")
    if given != 1:
        raise SpecError("compare needs one of --base NAME, --against REV, and --record ID twice")
    if published and record is None:
        raise SpecError("--published goes with --record: variants are measured anew")
    if mode not in ("cold", "hot"):
        raise SpecError(f"--mode {mode}: must be cold or hot")
    criteria = Criteria(margin=margin / 100, error=1 - confidence / 100)
    if record is not None:
        rows, where = _compare_records(op, record, criteria, published)
    else:
        rows, where = _compare_variants(op, base, against, variant or [], problem or [], mode, criteria, device, target, jobs, json)
    if json:
        print_json({"op": op, "where": where, "criteria": vars(criteria), "rows": [r.to_json() for r in rows]})
    else:
        _print(rows, where)
    return ExitCode.CHECK_FAILED if any(r.is_regression and (is_gate or r.is_void) for r in rows) else ExitCode.DONE


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


def _lead_goals(op: str, publish: Path | None) -> list[str]:
    """Return what the page of goals begins with: drawn problems, where the folder or the project has a record of them."""
    beside = publish / FILE if publish is not None else None
    return summarize(find_op(op).op, read_runs(beside if beside is not None and beside.is_file() else find_record(op)))


def _compare_drawn(
    op: str,
    count: int,
    seed: int | None,
    seconds: float,
    regret: bool,
    cliffs: bool,
    peers: list[str],
    use: str,
    publish: Path | None,
    device: str | None,
    target: str | None,
    jobs: int | None,
    json: bool,
) -> ExitCode:
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    words = [f"compare {op} --drawn {count} --seed {chosen}", *(["--regret"] if regret else []), *(["--cliffs"] if cliffs else [])]
    command = " ".join([*words, *(f"--peer {name}" for name in peers)])
    request = Request(op, count, chosen, command, seconds, regret, tuple(peers), use, publish, device, target, jobs, json)
    return run_cliffs(request) if cliffs else run_drawn(request, _draw)


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


def _compare_variants(
    op: str,
    base: str | None,
    against: str | None,
    names: list[str],
    problem_names: list[str],
    mode: str,
    criteria: Criteria,
    device: str | None,
    target: str | None,
    jobs: int | None,
    quiet: bool,
) -> tuple[list[Compared], str]:
    loaded = find_op(op)
    incumbent = loaded.op.select_variants([base])[0] if base else None
    if incumbent is not None and incumbent.name != base:
        raise SpecError(f"--base {base}: give one variant by its exact name; `python -m harness list {op}` shows them")
    candidates = [v for v in loaded.op.select_variants(names) if v != incumbent]
    if not candidates:
        raise SpecError("there is no candidate: name one with --variant")
    problems = loaded.op.select_problems("bench", problem_names)
    command = f"compare {op} {f'--base {base}' if base else f'--against {against}'} --mode {mode}"
    with Session.start(loaded, command, device=device, target=target, jobs=jobs) as session:
        if session.device.is_emulated:
            raise UnavailableError("a comparison measures times, which need a GPU; two records are compared without one: --record ID twice")
        wanted = [*([incumbent] if incumbent else []), *candidates]
        with open_progress(f"build {op}", len(wanted), quiet=quiet) as progress:
            builds, binding = session.build(wanted, lambda b: progress.advance(b.variant.name))

        def say(judged: Judged) -> None:
            progress.advance(f"{judged.variant.name}: {'passed' if judged.ok else f'failed: {judged.reason}'}")

        with open_progress(f"verify {op}", len(wanted), quiet=quiet) as progress:
            judged = session.judge(builds, binding, reuse=True, on_judged=say)
        if failed := [j for j in judged if not j.ok]:
            raise BuildError("only what is right is timed: " + "; ".join(f"{j.variant.name}: {j.reason}" for j in failed))
        sides = [Side(b.variant.name, loaded.op, b, binding) for b in builds]
        pairs = [(sides[0], sides[1:])] if base else open_other_sides(session, against or "", sides)
        timer = Timer(session.device)
        rows: list[Compared] = []
        try:
            with open_progress(f"compare {op}", sum(len(c) for _, c in pairs) * len(problems), quiet=quiet) as progress:
                for old, new in pairs:
                    for row in compare_sides(session, timer, old, new, problems, Mode(mode), criteria):
                        rows.append(row)
                        progress.advance(f"{row.problem} {row.candidate}: {row.outcome.verdict if row.outcome else row.reason}")
        finally:
            timer.close()
        where = f"{session.device.properties.name}; {session.describe_run()}"
    return rows, where


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
