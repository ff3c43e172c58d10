"""``inspect``: what each source line of a variant compiles to and costs."""

from __future__ import annotations

from pathlib import Path

from contract.files import write_atomically
from harness.profiling.inspection import inspect_variant
from harness.profiling.inspection_views import render_page
from harness.profiling.side_by_side import Inspection
from harness.terminal.console import claim_output
from harness.verbs.naming import OpLike, take_op


def inspect(op: OpLike, variant: str, problem: str = "", html: Path | None = None, target: str | None = None) -> Inspection:
    """Run a variant once on the emulated device with counters by line; ``html`` is a page that needs nothing else.

    Raises SpecError for names that there are not, or a problem that the variant does not serve; BuildError where it does not compile.
    """
    page = Path(html) if html is not None else None
    if page is not None:
        claim_output(page, "--html")
    found = inspect_variant(take_op(op), variant, problem, target)
    if page is not None:
        write_atomically(page, render_page(found))
    return found
