"""Verdicts on variants as a table and as lines for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from harness.terminal.figures import STATUS_STYLE, format_figure
from harness.verify.findings import Status, VerifyResult


def make_verify_table(op: str, results: Sequence[VerifyResult], device: str) -> Table:
    """Return one row per variant: how many problems passed, the worst error, and the reason of a refusal."""
    table = Table(title=escape(f"{op}: verify on {device}"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("variant", "status"):
        table.add_column(name, no_wrap=True)
    for name in ("passed", "unsupported", "error/bound", "mean/bound", "ulp", "launches", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("reason")
    for result in results:
        status = "passed" if result.ok else "failed"
        unsupported = sum(p.status is Status.UNSUPPORTED for p in result.problems)
        table.add_row(
            escape(result.variant),
            f"[{STATUS_STYLE[status]}]{status}[/]",
            f"{result.num_passed}/{len(result.problems)}",
            str(unsupported) if unsupported else "",
            format_figure(result.max_error_ratio),
            f"{result.bias.mean:+.3f}" if result.ok else "",
            format_figure(result.max_ulp),
            str(sum(p.num_launches for p in result.problems)),
            f"{result.seconds:.1f}",
            result.reason,
        )
    return table


def list_fault_lines(result: VerifyResult, max_faults: int = 3) -> list[str]:
    """Return what is wrong with a variant, the most telling first, each with the problem it showed on."""
    lines = [f"{result.variant}: {fault.describe()}" for fault in result.faults]
    found = [(fault, p) for p in result.problems for fault in p.faults]
    ranked = {fault: rank for rank, fault in enumerate(result.all_faults)}
    seen: set[str] = set()
    for fault, problem in sorted(found, key=lambda pair: ranked[pair[0]]):
        if fault.kind in seen:
            continue
        seen.add(fault.kind)
        hidden = ", a size that the op does not list" if problem.hidden else ""
        lines.append(
            f"{result.variant}: {fault.kind} on {problem.problem}{hidden} ({fault.check}, {fault.inputs} inputs):\n  {fault.detail}"
        )
    if len(lines) > max_faults:
        lines = [*lines[:max_faults], f"{result.variant}: {len(lines) - max_faults} more kinds of fault (--json has them all)"]
    return lines
