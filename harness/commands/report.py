"""``report``: show what was recorded."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.options import AsJson, OpName, Published
from harness.errors import ExitCode

RunIds = Annotated[
    list[int] | None, typer.Option("--run", "-r", metavar="ID", help="a run to show, repeatable; the op's latest bench when left out")
]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="print the timings as a Markdown page")]


def run(op: OpName, run_id: RunIds = None, json: AsJson = False, markdown: AsMarkdown = False, published: Published = False) -> ExitCode:
    """Show the recorded results of an op's latest bench, or of the runs named; where the database has none, the published ones.

    \b
    Examples:
      python -m harness report gemm_bias_act
      python -m harness report gemm_bias_act --run 12 --json
      python -m harness report gemm_bias_act --run 3 --run 4 --markdown > profiles/gemm_bias_act/h200.md
    """
    from device.settings import read_settings
    from harness.console import print_json
    from harness.discover import find_op
    from harness.errors import RecordError
    from harness.publish import make_markdown
    from harness.published import open_records
    from harness.report import make_record_table, print_tables

    loaded = find_op(op)
    records, place = open_records(loaded.op.name, read_settings().records_url, published=published)
    try:
        latest = records.find_latest_run(loaded.op.name, ["bench", "counters", "verify"])
        chosen = run_id or ([] if latest is None else [latest])
        runs = [records.list_results(op=loaded.op.name, run_id=each) for each in chosen]
    finally:
        records.close()
    if not runs or not all(runs):
        where = f"of run {', '.join(map(str, run_id))}" if run_id else "yet"
        raise RecordError(f"no results of op {op} {where} in {place}; python -m harness bench {op} makes some")
    if json:
        print_json([r.to_json() for results in runs for r in results])
    elif markdown:
        print(make_markdown(loaded.op, [r for results in runs for r in results]))
    else:
        print_tables([make_record_table(results) for results in runs])
        print(f"from {place}")
    return ExitCode.DONE
