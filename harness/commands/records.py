"""Export records with all samples, or import those records of a file that the database lacks.

\b
Examples:
  python -m harness records export h200.parquet --op gemm_bias_act
  AICF_RECORDS_URL=postgresql+psycopg://user@host/aicf \\
    python -m harness records import h200.parquet
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from device.settings import read_settings
from harness.errors import ExitCode
from harness.records.database import Records
from harness.records.interchange import export_records, import_records
from harness.spec import SpecError
from harness.terminal.console import claim_output


class Action(StrEnum):
    """What to do with the file."""

    EXPORT = "export"
    IMPORT = "import"


ActionName = Annotated[Action, typer.Argument(help="export writes the file, import reads it", show_default=False)]
FilePath = Annotated[Path, typer.Argument(metavar="FILE", help="*.json, *.csv or *.parquet", show_default=False, dir_okay=False)]
OnlyOp = Annotated[str | None, typer.Option("--op", metavar="OP", help="export only this op's records")]


def run(action: ActionName, file: FilePath, op: OnlyOp = None) -> ExitCode:
    """Run the verb."""
    if action is Action.EXPORT:
        claim_output(file, "FILE")
    url = read_settings().records_url
    records = Records(url)
    try:
        if action is Action.EXPORT:
            print(f"{export_records(records, file, op)} results of {url} in {file}")
        elif op is not None:
            raise SpecError("--op selects what is exported; import takes the whole file")
        else:
            added, known = import_records(records, file)
            print(f"{added} results inserted into {url}, {known} were there")
    finally:
        records.close()
    return ExitCode.DONE
