"""Show the newest recorded figures of each variant, or the runs named, and write a page with charts of all records.

The page is one self-contained file. If the database has no times from a GPU, the published ones are shown.

\b
Examples:
  # the newest bench here, and everything in .aicf/reports/softmax.html
  python -m harness report softmax
  # without a GPU: the page of what profiles/ holds
  python -m harness report gemm_bias_act --published --html report.html
  # one run, for another program
  python -m harness report softmax --run 12 --json
  # two runs as the page that profiles/ keeps
  python -m harness report softmax -r 3 -r 4 --markdown > h200.md
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from device.settings import read_settings
from harness.commands.options import AsJson, OpName, Published
from harness.compare.drawn.page import describe_run, find_titles, list_cells
from harness.compare.drawn.record import find_record, group_rows, merge_runs, read_runs
from harness.discover import LoadedOp, find_op
from harness.errors import ExitCode, RecordError, RecordUseError
from harness.records.published import list_goals, list_published, open_records
from harness.records.tables import Result
from harness.report.latest import list_missing, select_latest
from harness.report.markdown import make_markdown
from harness.report.record_table import make_record_table
from harness.spec import Op, SpecError
from harness.terminal.console import claim_output, print_json
from harness.terminal.tables import print_tables
from harness.verbs.report import write_report

RunIds = Annotated[
    list[int] | None, typer.Option("--run", "-r", metavar="ID", help="a run to show, repeatable; by default the newest of each variant")
]
# Results by which a run is the newest; what compares or sweeps is shown where it is asked for.
_SHOWN = ("bench", "counters", "verify", "profile")
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="print the timings as a Markdown page")]
PagePath = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="where the page goes (default: .aicf/reports/OP.html)", dir_okay=False)
]


def run(
    op: OpName,
    run_id: RunIds = None,
    json: AsJson = False,
    markdown: AsMarkdown = False,
    html: PagePath = None,
    published: Published = False,
) -> ExitCode:
    """Run the verb."""
    if html is not None and (json or markdown or run_id):
        raise SpecError("--html shows all records of the op: it goes with none of --run, --json, --markdown")
    loaded = find_op(op)
    if html is not None:
        claim_output(html, "--html")
    with_page = not (json or markdown or run_id)
    if published and with_page and not list_published(loaded.op.name) and list_goals(loaded.op.name):
        _lead(loaded, published)
        print(f"page: {write_report(loaded, html, 'published')}")  # goals are published, and no records
        return ExitCode.DONE
    shown = _choose(loaded, run_id or [], markdown, published, may_be_empty=with_page)
    if json:
        print_json([r.to_json() for results in shown.runs for r in results])
    elif markdown:
        print(make_markdown(loaded.op, [r for results in shown.runs for r in results]))
    else:
        if with_page:
            _lead(loaded, published)
        if shown.runs:
            _print(loaded.op, shown, is_newest=not run_id)
    if with_page:
        print(f"page: {write_report(loaded, html, 'published' if published else 'auto')}")
    return ExitCode.DONE


@dataclass(frozen=True)
class _Shown:
    """Results by run (the newest of each variant count as one), the runs' numbers, and where they come from.

    ``timed`` is the newest run with times of a GPU, None where there is none.
    """

    runs: list[list[Result]]
    chosen: list[int]
    place: str
    timed: int | None


def _choose(loaded: LoadedOp, run_ids: list[int], markdown: bool, published: bool, *, may_be_empty: bool) -> _Shown:
    """Return the results of some runs, or the newest of each variant; raises RecordError where there are none."""
    name = loaded.op.name
    records, place = open_records(name, read_settings().records_url, published=published)
    try:
        latest = records.find_latest_run(name, _SHOWN)
        timed = records.find_latest_run(name, ["bench"])
        if run_ids or markdown:  # a page for profiles/ is of one commit
            chosen = run_ids or ([] if latest is None else [latest])
            runs = [records.list_results(op=name, run_id=each) for each in chosen]
        else:
            found = select_latest(records.list_results(op=name), [v.name for v in loaded.op.variants], _SHOWN)
            chosen, runs = sorted({r.run_id for r in found}), [found] if found else []
    finally:
        records.close()
    if (not runs and not may_be_empty) or not all(runs):
        missing = [str(each) for each, results in zip(chosen, runs, strict=True) if not results] if run_ids else []
        where = f"of run {' or '.join(missing)}" if run_ids else "yet"
        newest = "" if latest is None else f" (the newest run is {latest})"
        kind = RecordUseError if run_ids else RecordError
        raise kind(f"no results of op {name} {where} in {place}{newest}; run python -m harness bench {name} first")
    return _Shown(runs, chosen, place, timed)


def _print(op: Op, shown: _Shown, *, is_newest: bool) -> None:
    print_tables([make_record_table(results) for results in shown.runs])
    print(f"from {shown.place}")
    variants = [v.name for v in op.variants]
    if is_newest and (left := list_missing(shown.runs[0], variants)):
        print(f"{len(left)} of {len(variants)} variants have no figures there: python -m harness bench {op.name} makes them")
    if shown.timed is not None and shown.timed not in shown.chosen and is_newest:
        print(f"the newest times of a GPU are those of run {shown.timed}: --run {shown.timed}")


def _lead(loaded: LoadedOp, published: bool) -> None:
    """Print what drawn problems came to, where there is a record of them."""
    alike, rows = merge_runs(read_runs(find_record(loaded.op.name, published=published)))
    if rows:
        print("drawn problems: geometric mean of the fastest library's time over that of what users get, worst, share at least level")
        for result in group_rows(rows, find_titles(loaded.op)):
            title, count, mean, worst, level, _ = list_cells(result)
            print(f"  {mean or '-':>6} {level:>6}  {title} ({count}): worst {worst or '-'}")
        print(*(f"  {describe_run(r)}" for r in alike), sep="\n")
