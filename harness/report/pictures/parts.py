"""Parts of an op's page: text and charts for one problem, for sweeps, contests, goals, drawn problems and history."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.compare.drawn.page import HEADINGS as DRAWN_HEADINGS
from harness.compare.drawn.page import describe_run, find_titles
from harness.compare.drawn.page import list_cells as list_drawn_cells
from harness.compare.drawn.record import DrawnRun, group_rows, merge_runs
from harness.compare.goals import Row
from harness.compare.goals_page import HEADINGS
from harness.report.pictures import contests, selection, tables
from harness.report.pictures.charts import plot_distributions, plot_history, plot_roofline, plot_shares
from harness.report.pictures.drawn import plot_drawn
from harness.report.pictures.forest import plot_comparisons, plot_goal
from harness.report.pictures.heatmap import choose_axes, plot_heatmap
from harness.report.pictures.labels import name_sizes, shorten_problems, shorten_variants
from harness.report.pictures.svg import Stylesheet, make_svg
from harness.report.pictures.theme import NARROW, WIDE
from harness.spec import Op
from harness.targets import find_target

# A kernel's map is shown where its best is within this of the best of all kernels.
_WORTH_A_MAP = 3.0
# Problems whose intensities are within this of each other stand at one place of a roofline.
_ONE_INTENSITY = 1.05


@dataclass(frozen=True)
class Picture:
    """A figure in the page: ``svgs`` are drawings of it for different widths, one of which is shown; one alone may have to be scrolled."""

    title: str
    note: str
    svgs: tuple[str, ...]
    scrolls: bool = False


@dataclass(frozen=True)
class ProblemPart:
    """What is said of one problem: its table, and how its samples are spread."""

    name: str
    label: str
    headline: str
    unit: str
    rows: Sequence[Mapping[str, Any]]
    unserved: Sequence[str]
    source: str
    spread: Picture


@dataclass(frozen=True)
class ComparisonPart:
    """What is said of contests, and of the op's goals beside its peers."""

    effects: Picture | None
    rows: Sequence[Mapping[str, Any]]
    goals: Sequence[Picture]
    goal_headings: Sequence[str]
    goal_rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class DrawnPart:
    """What is said of problems that nobody listed."""

    picture: Picture
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    runs: Sequence[str]


class Pens:
    """Draws figures in two widths under names that are used once in the page."""

    def __init__(self) -> None:
        self._num = 0
        self.styles = Stylesheet()

    def draw(self, title: str, note: str, plot: Callable[[int], Figure]) -> Picture:
        """Draw a figure for a wide page and for a narrow one."""
        drawn = ((WIDE, "wide"), (NARROW, "narrow"))
        return Picture(title, note, tuple(self._make(plot(width), title, note, [name]) for width, name in drawn))

    def draw_once(self, title: str, note: str, figure: Figure, *, scrolls: bool = False) -> Picture:
        """Draw a figure once, for both."""
        return Picture(title, note, (self._make(figure, title, note),), scrolls)

    def _make(self, figure: Figure, title: str, note: str, classes: Sequence[str] = ()) -> str:
        self._num += 1
        return self.styles.share(make_svg(figure, f"f{self._num}-", f"{title}. {note}", classes))


def draw_rates(
    pens: Pens, op: Op, timed: pd.DataFrame, kernels: Mapping[str, int], labels: Mapping[str, str], missing: list[str]
) -> Iterator[Picture]:
    """Draw the roofline and the shares; ``missing`` hears why there is none."""
    target = find_target(str(timed.target.iloc[-1]))
    described = timed[timed.flops > 0]
    intensity = described.flops / described.bytes_moved
    if len(described) and intensity.max() < _ONE_INTENSITY * intensity.min():
        words = f"{intensity.iloc[0]:.2g} flop per byte"
        missing.append(f"Roofline: all problems have one arithmetic intensity ({words}), so that it would say what the shares say.")
    elif len(described):
        units = {p: op.cost(op.select_problems("", [p])[0]).flop_unit for p in dict.fromkeys(described.problem)}
        plot = functools.partial(plot_roofline, described, target, units, kernels)
        note = (
            f"Every variant on every problem at its cold median. Roofs: peak rates of the {target.name.upper()}, which no kernel reaches."
        )
        yield pens.draw("Roofline", note, lambda width: plot(width_px=width))
    if timed.share_of_peer.notna().any() and timed.is_peer.any():
        note = "Best variant of each kernel; right of the line it is faster than every library."
        words = "% of the fastest library's rate"
        yield pens.draw(
            "Share of the fastest library", note, lambda width: plot_shares(timed, "share_of_peer", words, labels, kernels, width)
        )
    if timed.share_of_floor.notna().any():
        note = "Best variant of each kernel; at the line nothing is faster: arithmetic, or compulsory traffic, at peak rate."
        yield pens.draw(
            "Share of the roofline", note, lambda width: plot_shares(timed, "share_of_floor", "% of the roofline", labels, kernels, width)
        )


def make_problem(pens: Pens, name: str, label: str, rows: pd.DataFrame, kernels: Mapping[str, int], *, is_slim: bool) -> ProblemPart:
    """Return what is said of one problem; ``is_slim`` draws its samples once, to be scrolled."""
    cold = selection.select_timed(rows)
    note = "Ticks: all samples, taller where more lie; bar: quartiles; dot: median. Numbers at an edge count samples beyond it."
    title = f"Samples, {label}"
    if is_slim:
        spread = pens.draw_once(title, note, plot_distributions(cold, kernels, WIDE), scrolls=True)
    else:
        spread = pens.draw(title, note, lambda width: plot_distributions(cold, kernels, width))
    own = cold[~cold.is_peer]
    headline = "libraries only"
    if len(own):
        fastest = own.loc[own.median_us.idxmin()]
        headline = f"{tables.format_time(fastest.median_us)} µs · {shorten_variants(rows.variant)[fastest.variant]}"
    unit = "TFLOP/s" if (rows.bound == "compute").any() else "GB/s"
    return ProblemPart(
        name, label, headline, unit, tables.make_time_rows(rows), tables.list_unserved(rows), tables.describe_source(rows), spread
    )


def draw_sweeps(pens: Pens, sweeps: pd.DataFrame, model_of: str = "") -> Iterator[Picture]:
    """Draw each kernel that is worth it on each problem; ``model_of`` names the GPU whose times are modelled."""
    labels = shorten_problems(sweeps.problem)
    for problem, rows in sweeps.groupby("problem", sort=False):
        best = rows.median_us.min()
        by_kernel = sorted(rows.groupby("kernel", sort=False), key=lambda pair: float(pair[1].median_us.min()))
        for kernel, group in by_kernel:
            axes = choose_axes(group)
            if axes is None or group.median_us.min() > _WORTH_A_MAP * best:
                continue
            what = f"modelled µs of the {model_of.upper()}" if model_of else "µs"
            note = f"{len(group)} variants; {what}, the best over the other tunables. Best: {tables.format_time(group.median_us.min())} µs."
            yield pens.draw_once(f"{kernel} · {labels[str(problem)]}", note, plot_heatmap(group, *axes))


def draw_comparisons(pens: Pens, compared: pd.DataFrame, goals: Sequence[Row]) -> ComparisonPart | None:
    """Draw contests and goals, None where there are none."""
    if compared.empty and not goals:
        return None
    effects, rows = None, []
    if len(compared):
        labels = shorten_problems(compared.problem)
        confidence = " and ".join(f"{100 * c:.4g} %" for c in sorted(set(compared.confidence)))
        note = f"Bar: the interval at {confidence} confidence; band: what counts as the same; A/A: the incumbent against its copy."
        effects = pens.draw(f"{len(compared)} comparisons", note, lambda width: plot_comparisons(compared, labels, width))
        rows = contests.make_comparison_rows(compared, labels)
    labels_of_goals = [shorten_problems(r.problem for r in goal.ratios) for goal in goals]
    pictures = []
    for goal, names in zip(goals, labels_of_goals, strict=True):
        note = f"Beside {' or '.join(goal.goal.peers)}: {goal.verdict}. {name_sizes(goal.ratios[0].problem)}."
        pictures.append(pens.draw(goal.goal.title, note, functools.partial(plot_goal, goal, names)))
    return ComparisonPart(effects, rows, pictures, HEADINGS, contests.make_goal_rows(goals, labels_of_goals))


def draw_drawn(pens: Pens, op: Op, runs: Sequence[DrawnRun]) -> DrawnPart | None:
    """Draw the runs on drawn problems, None where nothing was measured."""
    alike, rows = merge_runs(runs)
    results = group_rows(rows, find_titles(op))
    if not results[-1].measured:
        return None
    plot = functools.partial(plot_drawn, results, "")
    note = "A dot per problem, a diamond for the geometric mean; right of 1 what users get is faster than every library of the group."
    picture = pens.draw("Drawn problems", note, lambda width: plot(width_px=width))
    return DrawnPart(picture, DRAWN_HEADINGS, [list_drawn_cells(r) for r in results], [describe_run(r) for r in alike])


def draw_history(pens: Pens, history: pd.DataFrame, missing: list[str]) -> Picture | None:
    """Draw the fastest times run by run; ``missing`` hears why there are none."""
    if history.empty or history.run_uid.nunique() < 2:
        missing.append("History: one run of these problems is recorded; a second one makes a line.")
        return None
    # Lines of one point are none, and more than eight are a tangle.
    counts = history.groupby("problem", sort=False).run_uid.nunique()
    shown = history[history.problem.isin(list(counts[counts > 1].index[:8]))]
    devices = shown.device_uuid.replace("", np.nan).nunique()
    labels = shorten_problems(shown.problem)
    note = "Fastest own variant, cold, relative to the first run; bars: its quartiles" + (
        f"; the runs were made on {devices} GPUs of this kind." if devices > 1 else "."
    )
    return pens.draw("History", note, lambda width: plot_history(shown, labels, width))
