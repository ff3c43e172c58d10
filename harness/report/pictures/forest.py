"""Forest plots: the effect of every comparison with its interval, and an op's times against its peers', problem by problem."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from harness.compare.goals import Ratio, Row
from harness.report.pictures.contests import FAILED, VOID, find_reach, format_change, name_contenders
from harness.report.pictures.labels import shorten_problems
from harness.report.pictures.svg import Drawing
from harness.report.pictures.theme import BACKDROP, LIGHT, NARROW, WIDE, make_figure, use_style

# Word, colour and shape say the same, so that none is needed.
LOOKS: Mapping[str, tuple[str, str]] = {
    "FASTER": ("good", "<"),
    "SLOWER": ("bad", ">"),
    "SAME": ("ink", "s"),
    "AMBIGUOUS": ("series-5", "o"),
    VOID: ("peer", "x"),
    FAILED: ("bad", "x"),
}
_ROW_PX = 24
# An axis is linear as long as the band of what counts as the same is not lost on it.
_LINEAR_MARGINS = 8.0
_STEPS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
_RATIO_TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)


@dataclass(frozen=True)
class _Line:
    """A row of the plot; ``change``, ``low`` and ``high`` in percent, none in a heading and where there is no verdict."""

    label: str
    text: str = ""
    verdict: str = ""
    change: float | None = None
    low: float = 0.0
    high: float = 0.0
    margin: float = 0.0


def plot_comparisons(comparisons: pd.DataFrame, labels: Mapping[str, str], width_px: int) -> Figure:
    """Return every candidate's change in time against its incumbent with its interval, by contest, with the contest's own control.

    ``comparisons`` are of :func:`harness.report.pictures.contests.select_comparisons`, ``labels`` name the problems. The band is what
    counts as the same. Where changes are many times wider than the band, the axis is linear within twice it and logarithmic beyond.
    """
    lines = list(_list_lines(comparisons, labels))
    narrow = width_px <= NARROW
    steps = [2 if narrow and line.verdict else 1 for line in lines]
    places = np.cumsum(steps)[-1] - np.cumsum(steps) + 0.5
    with use_style():
        figure, axes = make_figure(width_px, 64 + _ROW_PX * sum(steps))
        for line, y in zip(lines, places, strict=True):
            _draw_line(axes, line, float(y), narrow)
        below, above = (100 * reach for reach in find_reach(comparisons))
        _set_changes(axes, below, above, 100 * float(comparisons.margin.max()), narrow)
        axes.set(ylim=(0, sum(steps)), xlabel="change in time, %" if narrow else "change in time against the incumbent, %; left is faster")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        return figure


def _list_lines(comparisons: pd.DataFrame, labels: Mapping[str, str]) -> Iterator[_Line]:
    names = name_contenders(comparisons)
    for (problem, mode, _), group in comparisons.groupby(["problem", "mode", "contest"], sort=False):
        r = group.iloc[0]
        yield _Line(f"{labels[str(problem)]}{'' if mode == 'cold' else f', {mode}'}")
        scaled = {name: 100 * float(r[f"control_{name}"]) for name in ("change", "low", "high")}
        margin = 100 * float(r.margin)
        yield _Line(f"{names[r.incumbent]} (A/A)", format_change(r.control_change), "control", **scaled, margin=margin)
        for c in group.itertuples():
            if c.verdict == FAILED:
                yield _Line(names[c.candidate], "FAILED", FAILED)
                continue
            text = f"{format_change(c.change)} {c.verdict}"
            yield _Line(names[c.candidate], text, c.verdict, 100 * c.change, 100 * c.low, 100 * c.high, margin)


def _draw_line(axes: Axes, line: _Line, y: float, narrow: bool) -> None:
    key, marker = LOOKS.get(line.verdict, ("peer", "D"))
    color = LIGHT[key]
    inside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    if not line.verdict:
        axes.annotate(line.label, (0, y), (0, 0), fontweight="bold", **inside)
        return
    is_control = line.verdict == "control"
    ink = LIGHT["muted"] if is_control else LIGHT["ink"]
    weight = "normal" if is_control or line.verdict in ("SAME", "AMBIGUOUS") else "bold"
    if narrow:
        axes.annotate(line.label, (0, y + 0.95), (0, 0), color=ink, **inside)
        axes.annotate(line.text, (1, y + 0.95), (0, 0), color=color, fontweight=weight, ha="right", **inside)
    else:
        axes.annotate(line.label, (0, y), (-8, 0), color=ink, ha="right", **inside)
        axes.annotate(line.text, (1, y), (8, 0), color=color, fontweight=weight, **inside)
    if line.change is None:
        return
    axes.plot([0, 0], [y - 0.5, y + 0.5], color=LIGHT["muted"], linewidth=1.2, zorder=1)
    axes.add_patch(Rectangle((-line.margin, y - 0.5), 2 * line.margin, 1, facecolor=LIGHT["grid"], alpha=0.6, edgecolor="none", zorder=0))
    dashes = (0, (2, 1.5)) if line.verdict == VOID else "-"
    axes.plot([line.low, line.high], [y, y], color=color, linewidth=1.5 if is_control else 2.5, linestyle=dashes, zorder=2)
    face = LIGHT["surface"] if is_control or line.verdict == "AMBIGUOUS" else color
    axes.plot([line.change], [y], marker=marker, markersize=7, color=color, markerfacecolor=face, markeredgewidth=1.5, zorder=3)


def _set_changes(axes: Axes, below: float, above: float, margin: float, narrow: bool) -> None:
    """Set an axis of changes in percent that shows as far as ``below`` and ``above`` no change."""
    below, above = (1.15 * max(reach, 1.5 * margin) for reach in (below, above))
    if max(below, above) > _LINEAR_MARGINS * margin:
        # Neighbouring decades need room for their labels, and the band no more than to be seen.
        axes.set_xscale("symlog", linthresh=2 * margin, linscale=0.5)
        axes.xaxis.set_minor_locator(NullLocator())
        steps = [s for s in _STEPS[:: 2 if narrow else 1] if s >= 1.9 * margin]
        axes.xaxis.set_major_locator(FixedLocator([0.0, *(s for s in steps if s <= above), *(-s for s in steps if s <= below)]))
    axes.set_xlim(-min(below, 99.9), above)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:+g}".replace("-", "\N{MINUS SIGN}") if v else "0"))


def plot_goal(goal: Row, labels: Mapping[str, str], width_px: int) -> Figure:
    """Return each problem's ratio with its interval: the fastest peer's time over the own, more than 1 is faster than every peer.

    An interval above 1 is green, one below it red, and one that holds 1 leaves it open. Dashed: what is aimed at on (geometric) average;
    dotted: the least that counts; the diamond is the mean itself.
    """
    narrow = width_px <= NARROW
    with use_style():
        figure, axes = make_figure(width_px, 92 + _ROW_PX * ((2 if narrow else 1) * len(goal.ratios) + 1))
        _draw_goal(axes, goal, labels, narrow)
        handles = [h for h in axes.get_legend_handles_labels()[0] if isinstance(h, Line2D)]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, handletextpad=0.4, columnspacing=1.4)
        return figure


def plot_goals(goals: Sequence[Row], heading: str, width_px: int) -> Figure:
    """Return all goals below each other, each as :func:`plot_goal` draws it, in a figure that stands for itself."""
    heights = [100 + _ROW_PX * (len(goal.ratios) + 1) for goal in goals]
    with use_style():
        figure, first = make_figure(width_px, 40 + sum(heights))
        first.remove()
        figure.suptitle(textwrap.fill(heading, width_px // 9), x=0.01, ha="left", fontsize=12)
        grid = figure.add_gridspec(len(goals), 1, height_ratios=heights)
        for i, goal in enumerate(goals):
            axes = figure.add_subplot(grid[i])
            _draw_goal(axes, goal, shorten_problems(r.problem for r in goal.ratios), narrow=False)
            mean = "" if goal.geomean is None else f"mean {goal.geomean:.4f}, "
            place: dict[str, Any] = {"xycoords": ("figure fraction", "axes fraction"), "textcoords": "offset points"}
            axes.annotate(goal.goal.title, (0.01, 1), (0, 20), fontweight="bold", **place)
            said = f"{mean}aim {goal.goal.aim:g}, least {goal.goal.least:g}: {goal.verdict}"
            axes.annotate(said, (0.01, 1), (0, 5), color=LIGHT["muted"], **place)
        return figure


def draw_goals(goals: Sequence[Row], heading: str) -> str:
    """Return that picture as SVG, for a wide page."""
    return Drawing(plot_goals(goals, heading, WIDE)).to_svg()


def _draw_goal(axes: Axes, goal: Row, labels: Mapping[str, str], narrow: bool) -> None:
    steps = 2 if narrow else 1
    top = steps * len(goal.ratios)
    found = [x for ratio, r in goal.measured for x in (ratio, r.low or ratio, r.high or ratio)]
    low, high = min([0.9, goal.goal.least, *found]) * 0.97, max([1.1, goal.goal.aim, *found]) * 1.03
    axes.set_xscale("log")
    axes.set(xlim=(low, high), ylim=(-1, top), yticks=[])
    axes.axvline(1, color=LIGHT["muted"], linewidth=1.2, zorder=1)
    for at, dashes, name in ((goal.goal.aim, "--", "aim"), (goal.goal.least, ":", "least")):
        axes.axvline(at, color=LIGHT["muted"], linewidth=1.2, linestyle=dashes, zorder=1, label=f"{name} {at:g}")
    for i, ratio in enumerate(goal.ratios):
        _draw_ratio(axes, ratio, labels[ratio.problem], top - steps * (i + 1), narrow)
    if goal.geomean is not None:
        axes.plot([goal.geomean], [-0.55], marker="D", markersize=8, color=LIGHT["ink"], linestyle="", label=f"mean {goal.geomean:.4f}")
    axes.xaxis.set_major_locator(FixedLocator(_choose_ticks(low, high, 5 if narrow else 9)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.set_xlabel("peer's time / own" if narrow else "time of the fastest peer over the own; right is faster than it")
    axes.spines["left"].set_visible(False)


def _draw_ratio(axes: Axes, r: Ratio, label: str, bottom: float, narrow: bool) -> None:
    y = bottom + 0.35
    inside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    text = "not measured" if r.ratio is None else f"{r.ratio:.3f}"
    low, high = r.low or r.ratio or 1.0, r.high or r.ratio or 1.0
    color = LIGHT["good" if low > 1 else "bad" if high < 1 else "ink"]
    if narrow:
        axes.annotate(label, (0, bottom + 1.3), (0, 0), bbox=BACKDROP, **inside)
        axes.annotate(text, (1, bottom + 1.3), (0, 0), ha="right", color=LIGHT["muted"] if r.ratio is None else color, **inside)
    else:
        axes.annotate(label, (0, y), (-8, 0), ha="right", **inside)
        axes.annotate(text, (1, y), (8, 0), color=LIGHT["muted"] if r.ratio is None else color, **inside)
    if r.ratio is not None:
        axes.plot([1, r.ratio], [y, y], color=LIGHT["grid"], linewidth=2, solid_capstyle="butt", zorder=1)
        axes.plot([low, high], [y, y], color=color, linewidth=3, zorder=2)
        axes.plot([r.ratio], [y], marker="o", markersize=6.5, color=color, zorder=3)


def _choose_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round ratios within an axis, 1 among them, so many that their labels do not touch."""
    inside = [t for t in _RATIO_TICKS if low <= t <= high]
    gap = np.log(high / low) / most
    kept = [1.0]
    for tick in sorted(inside, key=lambda t: abs(np.log(t))):
        if all(abs(np.log(tick / other)) >= gap for other in kept):
            kept.append(tick)
    return sorted(kept)
