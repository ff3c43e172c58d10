"""Drawn problems as tables, for the terminal and for ``profiles/``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contract.libraries.adapters import describe_version
from harness.compare.drawn.cliffs import Cliff
from harness.compare.drawn.record import PEER, Contender, DrawnRow, DrawnRun, GroupResult, group_rows, merge_runs
from harness.spec import Op

HEADINGS = ("problems", "n", "geomean", "worst", "at least level", "regret")
_RATIO = "Ratio: time of the group's fastest library over that of what users get, cold medians of one run; more than 1 is faster than all"


def find_titles(op: Op) -> dict[str, str]:
    """Return the title of each group of an op's population, by name."""
    return {g.name: g.title for g in op.population.groups} if op.population else {}


def list_cells(result: GroupResult) -> tuple[str, ...]:
    """Return a group as cells under :data:`HEADINGS`."""
    worst = result.measured[0] if result.measured else None
    missing = len(result.rows) - len(result.measured)
    return (
        result.title,
        f"{len(result.measured)}" + (f" of {len(result.rows)}" if missing else ""),
        "" if result.geomean is None else f"{result.geomean:.3f}",
        "" if worst is None else f"{worst[0]:.3f} ({worst[1].problem})",
        "" if result.share_level is None else f"{100 * result.share_level:.0f} %",
        "" if result.regret is None else f"{100 * result.regret:.1f} %",
    )


def summarize(op: Op, runs: Sequence[DrawnRun]) -> list[str]:
    """Return the Markdown table with which pages lead: the groups of the newest runs, and where they are from; nothing without runs."""
    alike, rows = merge_runs(runs)
    if not rows:
        return []
    lines = ["## Drawn problems, which nobody listed", "", *_make_table(group_rows(rows, find_titles(op))), "", f"{_RATIO}.", ""]
    return [*lines, *(f"- {describe_run(r)}" for r in alike), ""]


def describe_run(run: DrawnRun) -> str:
    """Return a run's seed, whether it was fresh, how far it came, and where it was measured."""
    seed = f"seed {run.seed}, fresh" if not run.seed_note else f"seed {run.seed} is NOT fresh, it was used before: {run.seed_note}"
    return f"{seed}; {len(run.rows)} of {run.asked} problems; {run.where}: {run.command}"


def describe_facts(name: str, facts: Mapping[str, Any]) -> str:
    """Return what was found out about a library that calls may get."""
    again = "the same bits again" if facts["deterministic"] else "OTHER bits when launched again"
    graph = "right as a CUDA graph" if facts["capture_safe"] else "WRONG as a CUDA graph"
    wrong = "; ".join(f"wrong with {kind}: {why}" for kind, why in facts["kinds"].items() if why)
    kinds = f"right on all inputs with {', '.join(k for k, why in facts['kinds'].items() if not why) or 'nothing'}"
    workspace = f"up to {facts['workspace_bytes']} bytes of workspace"
    return f"{name} {describe_version(facts['version'])}: {again} and {graph}, {workspace}, {kinds}" + (f"; {wrong}" if wrong else "")


def _make_table(results: Sequence[GroupResult]) -> list[str]:
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|--:|--:|---|--:|--:|"]
    return [*lines, *(f"| {' | '.join(list_cells(r))} |" for r in results)]


def make_page(op: Op, runs: Sequence[DrawnRun]) -> str:
    """Return all runs of an op as Markdown: what stands together by group and by library, each problem, and earlier frozen sets."""
    alike, rows = merge_runs(runs)
    results = group_rows(rows, find_titles(op))
    lines = [f"# {op.name} on drawn problems", "", *summarize(op, runs)[2:]]
    lines += [f"Not there: {text}." for text in dict.fromkeys(t for r in alike for t in r.left_out)]
    lines += [f"{describe_facts(name, facts)}." for r in alike[-1:] for name, facts in r.libraries.items()]
    lines += ["", "## By library", "", *_list_libraries(rows), ""]
    for result in results[:-1]:
        lines += [f"## {result.title}", "", *_list_rows(result), ""]
    earlier = [r for r in runs if r not in alike]
    if earlier:
        lines += ["## Earlier frozen sets, or other GPUs", ""]
        lines += [f"- geomean {_format(group_rows(r.rows, {})[-1].geomean)}: {describe_run(r)}" for r in earlier]
    return "\n".join(lines).rstrip() + "\n"


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _list_libraries(rows: Sequence[DrawnRow]) -> Iterator[str]:
    """Each library by itself: where it was timed, not only where it was the fastest."""
    yield "| library | n | geomean of its time over that of what users get | at least level | refused |"
    yield "|---|--:|--:|--:|--:|"
    for name in dict.fromkeys(c.name for r in rows for c in r.contenders if c.role == PEER):
        kept = [_keep_peer(r, name) for r in rows]
        result = GroupResult(name, tuple(r for r in kept if r is not None))
        refused = sum(c.name == name and c.us is not None and not c.counts for r in rows for c in r.contenders)
        level = "" if result.share_level is None else f"{100 * result.share_level:.0f} %"
        yield f"| {name} | {len(result.measured)} | {_format(result.geomean)} | {level} | {refused or ''} |"


def _keep_peer(row: DrawnRow, name: str) -> DrawnRow | None:
    kept = tuple(c for c in row.contenders if c.role != PEER or c.name == name)
    return None if len(kept) == len([c for c in row.contenders if c.role != PEER]) else DrawnRow(**{**vars(row), "contenders": kept})


def _list_rows(result: GroupResult) -> Iterator[str]:
    yield "| problem | what users get | us (error) | libraries, us (error) | ratio | others of its own, us (error) | regret |"
    yield "|---|---|--:|---|--:|---|--:|"
    for row in sorted(result.rows, key=lambda r: (r.ratio is None, r.ratio or 0.0)):
        mine = row.find(row.judged)
        peers = ", ".join(f"{c.name} {say_time(c)}" for c in row.contenders if c.role == PEER)
        others = ", ".join(f"{c.name} {say_time(c)}" for c in row.contenders if c.role != PEER and c.name != row.judged)
        ratio = f"{row.ratio:.3f}" if row.ratio is not None else ""
        ratio += f" ({row.reason})" if row.reason else ""
        regret = "" if row.regret is None else f"{100 * row.regret:.1f} %"
        how = f" ({row.how})" if row.how else f" ({row.judged_as})"
        yield f"| {row.problem} | {row.judged}{how} | {say_time(mine) if mine else ''} | {peers} | {ratio} | {others} | {regret} |"


def say_time(contender: Contender) -> str:
    """Return a contender's time, with its error as a share of the op's bound."""
    if contender.us is None:
        return "not served" if contender.status == "unsupported" else contender.status
    error = "" if contender.error is None else f" ({contender.error:.2g})"
    return f"{contender.us:.2f}{error}" + ("" if contender.counts or contender.is_behind else " refused")


def make_cliffs_page(op: str, cliffs: Sequence[Cliff], where: str, num_pairs: int, num_looked: int) -> str:
    """Return the cliffs as Markdown; ``where`` says whether times are measured or modelled."""
    lines = [f"# Cliffs of {op}", "", f"{where}. {num_looked} of {num_pairs} pairs of neighbours were looked at, the likeliest first.", ""]
    lines += [
        "Jump: how much longer the slower of two neighbours takes than the other, beyond what it has more to do.",
        "",
        "| step | of | us | jump | slower | why |",
        "|---|---|--:|--:|---|---|",
    ]
    lines += [f"| {c.step} | {c.low} | {c.low_us:.2f} to {c.high_us:.2f} | {c.jump:.2f} | {c.slower} | {c.cause} |" for c in cliffs]
    return "\n".join([*lines, ""])
