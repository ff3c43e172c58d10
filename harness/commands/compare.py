"""Compare an op with its peers on the goals of its op.py: geometric mean, worst problem, and whether the target is met.

Named variants are timed together with the op's choices, and the output says how far the choices are behind the fastest of them.
If an op has no goals, its variants are compared with the first one, as with --base; a faster first variant is not a failure.

With --base, --against or --record: time variants in turns in one process, A B B A, and say FASTER, SLOWER, SAME or AMBIGUOUS with
effect and confidence. The incumbent also competes with a copy of itself; if those two differ, the run is void. Exits with 1 if a
candidate is SLOWER, a run is void, or a goal's own choice could not be measured.
Two records are compared without a GPU; if the database has none for the op, the published ones are read.

With --drawn: time what users get (the frozen decision) on problems drawn from the op's population, against the libraries and the op's
own choice. Runs add up to one page. Without a GPU the decisions are shown with modelled times. --cliffs searches for neighbouring
sizes whose times jump.

\b
Examples:
  # the op against its peers: all goals, or one, saved as page and plot
  python -m harness compare gemm_bias_act
  python -m harness compare gemm_bias_act --goal decode --publish out
  # a kernel's variants against one variant
  python -m harness compare softmax --base naive/threads64 -v warp_per_row
  # did this branch make it slower? exits with 1 if so
  python -m harness compare softmax --against main -v row_in_shared
  # problems that nobody listed, and where times jump
  python -m harness compare softmax --drawn 60 --seed 7
  python -m harness compare gemm_bias_act --drawn 20 --seed 7 --cliffs
  # what two kernels would add where rows are long
  python -m harness compare softmax --drawn 20 --regret --peer none \\
    --group long_rows -v row_in_shared -v row_in_team
  # two records, with no GPU; `report` lists their numbers
  python -m harness compare softmax --published --record 63 --record 65
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from harness.commands.options import AsJson, DeviceName, Jobs, OpName, ProblemNames, Published, TargetName, VariantNames
from harness.compare.drawn.run import DrawnDone
from harness.compare.drawn.screen import print_cliffs, print_drawn
from harness.compare.goals_run import GoalsMeasured, print_goals
from harness.compare.variants import Compared
from harness.errors import ExitCode
from harness.terminal.console import print_json
from harness.terminal.figures import format_us
from harness.terminal.tables import print_tables
from harness.timing.verdicts import format_p_value
from harness.verbs.compare import Comparison, VariantsCompared, compare

BaseName = Annotated[str | None, typer.Option("--base", "-b", metavar="NAME", help="the incumbent: a variant by its exact name")]
Revision = Annotated[str | None, typer.Option("--against", metavar="REV", help="the incumbent is each variant as it was at this revision")]
RecordIds = Annotated[list[int] | None, typer.Option("--record", metavar="ID", help="compare two records: incumbent, then candidate")]
ModeName = Annotated[str, typer.Option("--mode", metavar="cold|hot", help="what is in the caches when a launch starts")]
Margin = Annotated[float, typer.Option("--margin", min=0.01, max=50.0, metavar="PERCENT", help="a smaller change counts as the same")]
GoalNames = Annotated[list[str] | None, typer.Option("--goal", metavar="NAME", help="only these goals of the op; may be repeated")]
Publish = Annotated[
    Path | None,
    typer.Option("--publish", metavar="FOLDER", help="write page, picture and record (goals.* or drawn.*) there", file_okay=False),
]
Drawn = Annotated[int | None, typer.Option("--drawn", min=1, metavar="N", help="judge N problems drawn from the op's population")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, metavar="S", help="with --drawn: selects the problems; a fresh seed by default")]
Seconds = Annotated[float, typer.Option("--seconds", min=0.0, metavar="S", help="with --drawn: start no further problem after this time")]
Regret = Annotated[
    bool, typer.Option("--regret", help="with --drawn: time all frozen kernels and variants too, or of these those that --variant names")
]
Cliffs = Annotated[bool, typer.Option("--cliffs", help="with --drawn: find neighbouring sizes whose times jump, worst first")]
PeerNames = Annotated[
    list[str] | None,
    typer.Option("--peer", metavar="NAME", help="with --drawn: this library too, in every group; repeatable; none: no library"),
]
GroupNames = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="with --drawn: draw from this group of the population; repeatable")
]
SeedUse = Annotated[
    str, typer.Option("--use", metavar="TEXT", help="with --drawn: what else the seed is used for (tuning, ...), for the ledger of seeds")
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
    group: GroupNames = None,
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
    found = compare(
        op,
        base,
        variant,
        against,
        record,
        problem,
        goal,
        publish,
        drawn,
        seed,
        seconds,
        regret,
        cliffs,
        peer,
        group,
        use,
        mode,
        margin,
        confidence,
        device,
        target,
        jobs,
        published,
        quiet=json,
    )
    if json:
        print_json(found.to_json())
    else:
        _print(found)
    return ExitCode.CHECK_FAILED if found.is_failed else ExitCode.DONE


def _print(found: Comparison) -> None:
    if isinstance(found, VariantsCompared):
        _print_variants(found.rows, found.where)
    elif isinstance(found, GoalsMeasured):
        print_goals(found)
    elif isinstance(found, DrawnDone):
        print_drawn(found)
    else:
        print_cliffs(found)


def _print_variants(rows: list[Compared], where: str) -> None:
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
    print(f"confidence: of the interval, at one planned look; p: the probability of such a change by chance. {where}")
