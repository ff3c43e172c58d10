"""The page on what public programs did on the emulated device: counts, and each that did not pass with its reason, from one JSON file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a run ended in, and what that means.
OUTCOMES = {
    "pass": "no findings, and the program reports success",
    "ran": "no findings, and the program says nothing about its result",
    "finding": "the sanitizer reports a finding, or the program's own check fails; the reason is below",
    "refused": "it uses something that the emulated device rejects by name",
    "time-out": "it did not finish within the time limit; the reason is below",
    "without": "it needs a file, memory, a second device or something else that is missing",
}
NOT_BUILT = "not built"
_SILENT = ("pass", "ran")  # need no reason
_MARKERS = re.compile(r"(<!-- generated:programs -->\n).*?(<!-- /generated:programs -->)", re.DOTALL)
_SHORT_COMMIT = 12


@dataclass(frozen=True)
class Source:
    """A public collection at one commit; ``how`` says what was taken of it."""

    name: str
    commit: str
    how: str


@dataclass(frozen=True)
class Run:
    """One program: ``outcome`` is one of :data:`OUTCOMES` or :data:`NOT_BUILT`, ``why`` its reason where it did not pass.

    ``smaller`` says that ``arguments`` ask for smaller sizes than its collection's; ``seconds`` is the run's time.
    """

    source: str
    program: str
    category: str
    outcome: str
    seconds: float
    arguments: tuple[str, ...] = ()
    smaller: bool = False
    why: str = ""


def read_runs(path: Path) -> tuple[list[Source], list[Run]]:
    """Read the recorded runs; raises ValueError that names a run without a known source, a known outcome, or the reason it needs."""
    document: dict[str, Any] = json.loads(path.read_text())
    sources = [Source(**fields) for fields in document["sources"]]
    runs = [Run(**{**fields, "arguments": tuple(fields.get("arguments", ()))}) for fields in document["runs"]]
    names = {source.name for source in sources}
    seen: set[tuple[str, str]] = set()
    for run in runs:
        name = f"{path.name}: {run.program} of {run.source}"
        if run.source not in names:
            raise ValueError(f"{name}: the source is not one of {', '.join(sorted(names))}")
        if run.outcome not in (*OUTCOMES, NOT_BUILT):
            raise ValueError(f"{name}: outcome {run.outcome!r} is not one of {', '.join((*OUTCOMES, NOT_BUILT))}")
        if run.outcome not in _SILENT and not run.why:
            raise ValueError(f"{name}: {run.outcome} without a reason; say why")
        if (run.source, run.program) in seen:
            raise ValueError(f"{name}: recorded twice; keep one")
        seen.add((run.source, run.program))
    return sources, runs


def render_page(sources: Sequence[Source], runs: Sequence[Run]) -> str:
    """Return the Markdown: the sources, the counts by source and category, and the reasons."""
    ran = [run for run in runs if run.outcome != NOT_BUILT]
    counts = ", ".join(f"{number} {name}" for name in OUTCOMES if (number := _count(ran, name)))
    lines = [f"{len(ran)} programs ran: {counts}. {len(runs) - len(ran)} others were drawn but could not be built."]
    lines += ["", "| collection | commit | what was taken |", "|---|---|---|"]
    lines += [f"| {source.name} | `{source.commit[:_SHORT_COMMIT]}` | {source.how} |" for source in sources]
    lines += ["", *_render_counts(sources, runs), ""]
    lines += [f"- {name}: {meaning}." for name, meaning in OUTCOMES.items()]
    smaller = sum(run.smaller for run in ran)
    if smaller:
        lines += ["", f"{smaller} ran with smaller sizes than in their collection, set by their own arguments: ≤ in the lists below."]
    for outcome in (*(name for name in OUTCOMES if name not in _SILENT), NOT_BUILT):
        rows = [run for run in runs if run.outcome == outcome]
        if rows:
            lines += ["", f"**{outcome.capitalize()}** ({len(rows)})", "", *(_render_reason(run) for run in sorted(rows, key=_by_name))]
    silent = [run for run in ran if run.outcome in _SILENT]
    if silent:
        names = ", ".join(f"{run.program}{' ≤' if run.smaller else ''}" for run in sorted(silent, key=_by_name))
        lines += ["", f"**Pass or ran** ({len(silent)})", "", names + "."]
    return "\n".join(lines) + "\n"


def fill_page(text: str, rendered: str) -> str:
    """Return a page with ``rendered`` between its ``generated:programs`` markers; raises ValueError where it has none."""
    if not _MARKERS.search(text):
        raise ValueError("the page has no generated:programs markers")
    return _MARKERS.sub(lambda match: f"{match[1]}{rendered}{match[2]}", text)


def _render_counts(sources: Sequence[Source], runs: Sequence[Run]) -> list[str]:
    columns = (*OUTCOMES, NOT_BUILT)
    lines = [f"| collection | category | ran | {' | '.join(columns)} |", "|---|---|" + "--:|" * (1 + len(columns))]
    for source in sources:
        own = [run for run in runs if run.source == source.name]
        categories = sorted({run.category for run in own})
        lines += [_render_row(source.name, category, [run for run in own if run.category == category]) for category in categories]
    return [*lines, _render_row("all", "", runs)]


def _render_row(name: str, category: str, runs: Sequence[Run]) -> str:
    numbers = [sum(run.outcome != NOT_BUILT for run in runs), *(_count(runs, outcome) for outcome in (*OUTCOMES, NOT_BUILT))]
    return f"| {name} | {category} | {' | '.join(map(str, numbers))} |"


def _render_reason(run: Run) -> str:
    arguments = f" `{' '.join(run.arguments)}`" if run.arguments and run.outcome != NOT_BUILT else ""
    return f"- {run.program}{arguments}{' ≤' if run.smaller else ''}: {run.why.rstrip('.')}."


def _count(runs: Iterable[Run], outcome: str) -> int:
    return sum(run.outcome == outcome for run in runs)


def _by_name(run: Run) -> tuple[str, str]:
    return run.source, run.program
