"""Tables for the terminal and plain values for ``--json``, of verdicts and of records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from harness.records.tables import Result
from harness.verify.findings import Status, VerifyResult

_STATUS_STYLE = {"passed": "green", "failed": "bold red", "unsupported": "yellow", "not_run": "yellow"}


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
            f"[{_STATUS_STYLE[status]}]{status}[/]",
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


def make_record_table(results: Sequence[Result]) -> Table:
    """Return one row per recorded result; a time appears only where one was measured on a GPU."""
    run = results[0].run
    dirty = " with changes" if run.dirty else ""
    where = f"{run.environment.device_name}, {run.started_at[:19]} UTC, commit {run.commit[:12] or 'none'}{dirty}"
    runs = sorted({r.run_id for r in results})
    title = f"{results[0].op}: run {run.id} ({run.command}) on {where}"
    if len(runs) > 1:
        commits = sorted({r.run.commit[:12] or "none" for r in results})
        title = (
            f"{results[0].op}: the newest of each variant on {run.environment.device_name}, "
            f"from runs {', '.join(map(str, runs))} at commit {', '.join(commits)}"
        )
    table = Table(
        title=escape(title),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name in ("record", "kind", "variant", "problem", "status"):
        table.add_column(name, no_wrap=name != "problem")
    table.add_column("figures")
    for result in results:
        style = _STATUS_STYLE.get(result.status, "")
        status = f"[{style}]{result.status}[/]" if style else result.status
        cells = (str(result.id), result.kind, escape(result.variant), escape(result.problem))
        table.add_row(*cells, status, escape(_describe_figures(result)))
    return table


def _describe_figures(result: Result) -> str:
    f = result.figures
    if result.reason:
        return result.reason
    if result.kind == "profile":
        return f"{f['tool']}: {f['summary']['bound']}"
    if result.kind == "goal":
        return f"{f['title']}: {f['ratio']:.3f} of {f['peer']}"
    if result.kind == "drawn":
        return f"{f['group']} of seed {f['seed']}: {format_us(f.get('median_us'))} us"
    if result.kind == "sanitizer":
        return ", ".join(f"{check}: {count} errors" for check, count in f["errors"].items())
    if result.kind == "sweep_use":
        return f"GPU busy {100 * f['busy_share']:.0f} % of {f['gpu_s']:.1f} s, {f['variants']} variants, {f['samples']} samples"
    if result.kind == "compare" and "effect" in f:
        verdict = "void" if f["is_void"] else f["verdict"]
        return f"{f['mode']} {format_us(f['median_us'])} us, {verdict} {100 * f['effect']['change']:+.2f} % against {f['incumbent']}"
    if result.kind in ("compare", "sweep", "sweep_model"):
        return f"{f['mode']} {format_us(f['median_us'])} us"
    if result.kind == "bench":
        return (
            f"{f['mode']} {format_us(f['median_us'])} us ({format_us(f['q1_us'])} to {format_us(f['q3_us'])}, {f['num_samples']} samples)"
        )
    if result.kind == "counters":
        counts = sum_counts([launch["counts"] for launch in f["launches"]])
        return f"emulated: {format_count(counts.get('warp_instructions', 0))} warp instructions"
    problems = f["problems"]
    worst = max((p["max_error_ratio"] for p in problems if isinstance(p["max_error_ratio"], float)), default=0.0)
    return f"{sum(p['status'] == 'passed' for p in problems)} of {len(problems)} problems, error/bound {format_figure(worst)}"


def find_sectors_per_request(counts: Mapping[str, int]) -> float:
    """Return 32-byte sectors per warp-level global access: 4 where 32 threads read 32 neighbouring floats."""
    requests = counts.get("global_loads", 0) + counts.get("global_stores", 0)
    sectors = counts.get("global_load_sectors", 0) + counts.get("global_store_sectors", 0)
    return sectors / requests if requests else 0.0


def sum_counts(launches: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Add up counters by name."""
    total: dict[str, int] = {}
    for counts in launches:
        for name, value in counts.items():
            total[name] = total.get(name, 0) + value
    return total


def format_us(value: float | None) -> str:
    """Format microseconds with four significant digits, or two decimals from 100 up."""
    if value is None:
        return ""
    return f"{value:.4g}" if value < 100 else f"{value:.2f}"


def format_count(value: int) -> str:
    """Format a count: whole below ten thousand, then with k, M or G."""
    if value < 10_000:
        return str(value)
    for unit, scale in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if value < 1000 * scale or unit == "G":
            return f"{value / scale:.4g} {unit}"
    raise AssertionError("unreachable")


def format_figure(value: float) -> str:
    """Format a ratio with three significant digits."""
    return f"{value:.3g}"


def clean_json(value: Any) -> Any:
    """Replace what JSON cannot say (NaN and the infinities) by its name, in nested plain values."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): clean_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(v) for v in value]
    return value
