"""``report``: one page with charts of all records of an op."""

from __future__ import annotations

from pathlib import Path

from contract.files import write_atomically
from device.settings import find_project_root
from harness.compare.drawn.record import find_record, read_runs
from harness.records import load
from harness.terminal.console import claim_output
from harness.verbs.naming import OpLike, take_op


def write_report(op: OpLike, html: Path | None = None, source: str = "auto") -> Path:
    """Write the page and return where it is: ``html``, or ``.aicf/reports/OP.html``; ``source`` as for :func:`harness.records.load`.

    Raises RecordError where nothing is recorded.
    """
    from harness.report.pictures.page import write_page  # matplotlib takes a second to import

    loaded = take_op(op)
    name = loaded.op.name
    path = Path(html) if html is not None else find_project_root() / ".aicf" / "reports" / f"{name}.html"
    claim_output(path, "--html")
    drawn = read_runs(find_record(name, published=source == "published"))
    write_atomically(path, write_page(loaded.op, load(name, source), drawn))
    return path
