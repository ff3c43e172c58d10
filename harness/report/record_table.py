"""Recorded results as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from harness.model.counters import sum_counts
from harness.records.tables import Result
from harness.terminal.figures import STATUS_STYLE, format_count, format_figure, format_us


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
        style = STATUS_STYLE.get(result.status, "")
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
