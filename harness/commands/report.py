"""``report``: show what was recorded."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.options import AsJson, OpName
from harness.errors import ExitCode

RunId = Annotated[int | None, typer.Option("--run", "-r", metavar="ID", help="the run to show; the op's latest bench when left out")]


def run(op: OpName, run_id: RunId = None, json: AsJson = False) -> ExitCode:
    """Show the recorded results of an op's latest bench, or of one run.

    \b
    Examples:
      python -m harness report gemm_bias_act
      python -m harness report gemm_bias_act --run 12 --json
    """
    from device.settings import read_settings
    from harness.console import print_json
    from harness.discover import find_op
    from harness.errors import RecordError
    from harness.records import Records
    from harness.report import make_record_table, print_tables

    loaded = find_op(op)
    records = Records(read_settings().records_url)
    try:
        chosen = run_id if run_id is not None else records.find_latest_run(loaded.op.name, ["bench", "counters", "verify"])
        results = records.list_results(op=loaded.op.name, run_id=chosen) if chosen is not None else []
    finally:
        records.close()
    if not results:
        where = f"of run {run_id}" if run_id is not None else "yet"
        raise RecordError(f"no results of op {op} {where} in {read_settings().records_url}; python -m harness bench {op} makes some")
    if json:
        print_json([r.to_json() for r in results])
    else:
        print_tables([make_record_table(results)])
    return ExitCode.DONE
