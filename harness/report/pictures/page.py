"""One self-contained page of an op's records: what ``report --html`` writes. Nothing is loaded from anywhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from harness.compare.drawn.record import DrawnRun
from harness.errors import RecordError
from harness.report.pictures import contests, selection, tables
from harness.report.pictures.charts import index_kernels
from harness.report.pictures.labels import name_sizes, shorten_problems
from harness.report.pictures.parts import (
    ComparisonPart,
    DrawnPart,
    Pens,
    Picture,
    ProblemPart,
    draw_comparisons,
    draw_drawn,
    draw_history,
    draw_rates,
    draw_sweeps,
    make_problem,
)
from harness.report.pictures.svg import Stylesheet
from harness.report.pictures.theme import DARK, LIGHT
from harness.spec import Op

_TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
# Of so many problems the samples are drawn for both widths; those of more have to be scrolled on a telephone, and the page stays small.
_NUM_WIDTHS = 32


@dataclass
class Page:
    """Everything that the template shows; an empty part is left out. ``sources`` say which devices and commits each part speaks of."""

    op: Op
    where: Mapping[str, str]
    tiles: Sequence[tables.Tile]
    sources: Mapping[str, str]
    sizes: str = ""
    best: Sequence[Mapping[str, Any]] = ()
    pictures: Sequence[Picture] = ()
    problems: Sequence[ProblemPart] = ()
    comparisons: ComparisonPart | None = None
    drawn: DrawnPart | None = None
    styles: Stylesheet = field(default_factory=Stylesheet)
    heatmaps: Sequence[Picture] = ()
    modelled: Sequence[Picture] = ()
    history: Picture | None = None
    variants: Sequence[Mapping[str, Any]] = ()
    counters: Sequence[Mapping[str, Any]] = ()
    profiles: Sequence[Mapping[str, Any]] = ()
    missing: list[str] = field(default_factory=list)


def write_page(op: Op, frame: pd.DataFrame, drawn: Sequence[DrawnRun] = ()) -> str:
    """Return the page of an op's records, from :func:`harness.records.load`, led by its runs on drawn problems.

    Raises :class:`RecordError` where they hold nothing to show.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["us"] = tables.format_time
    template = environment.get_template("report.html")
    return template.render(page=make_page(op, frame, drawn), light=LIGHT, dark=DARK)


def make_page(op: Op, frame: pd.DataFrame, drawn: Sequence[DrawnRun] = ()) -> Page:
    """Choose what is shown and draw it."""
    device = selection.find_device(frame)
    latest = selection.select_latest(frame, op, device)
    timed = selection.select_timed(latest)
    verdicts = selection.find_verdicts(frame)
    counters, profiles = selection.find_counters(frame), selection.find_profiles(frame)
    sweeps, modelled = selection.select_sweeps(frame, device), selection.select_modelled(frame)
    compared, goals = contests.select_comparisons(frame, device), contests.read_goals(frame, device)
    goal_rows = contests.select_goals(frame, device)
    if not goals and not drawn and all(rows.empty for rows in (timed, sweeps, modelled, verdicts, counters, profiles, compared)):
        raise RecordError(
            f"the records of op {op.name} hold no verdict, time or count to show; run python -m harness bench {op.name} first"
        )
    parts = {"timed": (timed,), "comparisons": (compared, goal_rows), "sweeps": (sweeps,), "modelled": (modelled,)}
    parts |= {"variants": (verdicts, latest), "counters": (counters,), "profiles": (profiles,)}
    pens = Pens()
    labels = shorten_problems([*timed.problem, *counters.problem, *profiles.problem])
    sources = {name: tables.describe_source(*frames) for name, frames in parts.items()}
    tiles = tables.make_tiles(op, timed, verdicts, compared, goals, goal_rows)
    page = Page(op, tables.describe_place(frame, latest), tiles, sources, name_sizes(next(iter(labels), "")), styles=pens.styles)
    page.drawn = draw_drawn(pens, op, drawn)
    page.variants = tables.make_variant_rows(op, latest, verdicts)
    page.counters = tables.make_counter_rows(op, counters, labels)
    page.profiles = tables.make_profile_rows(profiles, labels)
    page.heatmaps = list(draw_sweeps(pens, sweeps))
    page.modelled = [picture for target, rows in modelled.groupby("target") for picture in draw_sweeps(pens, rows, str(target))]
    page.comparisons = draw_comparisons(pens, compared, goals)
    if timed.empty:
        page.missing.append("No bench on a GPU is recorded: rates, samples and history are left out. Counts are exact, and no times.")
    else:
        history = selection.make_history(frame, device, list(dict.fromkeys(timed.problem)))
        _add_times(page, pens, latest, timed, history, labels)
    return page


def _add_times(page: Page, pens: Pens, latest: pd.DataFrame, timed: pd.DataFrame, history: pd.DataFrame, labels: Mapping[str, str]) -> None:
    """Add what is said of times on a GPU: the best, rates, every problem, and how they came to be."""
    kernels = index_kernels([k.name for k in page.op.kernels] + list(timed.kernel))
    page.best = tables.make_best_rows(selection.find_best(timed), latest, labels)
    page.pictures = list(draw_rates(pens, page.op, timed, kernels, labels, page.missing))
    page.problems = [
        make_problem(pens, p, labels[p], latest[latest.problem == p], kernels, is_slim=i >= _NUM_WIDTHS)
        for i, p in enumerate(dict.fromkeys(timed.problem))
    ]
    page.history = draw_history(pens, history, page.missing)
    if page.history is not None:
        page.sources = {**page.sources, "history": tables.describe_source(history)}
