"""Drawn problems as a picture: every problem's ratio, group by group, with the group's geometric mean."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from harness.compare.drawn.record import GroupResult
from harness.report.pictures.svg import Drawing
from harness.report.pictures.theme import BACKDROP, LIGHT, NARROW, WIDE, make_figure, use_style

_ROW_PX = 34
_TICKS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)


def plot_drawn(results: Sequence[GroupResult], heading: str, width_px: int) -> Figure:
    """Return a row per group: a dot per problem at the fastest library's time over that of what users get, a diamond at their mean.

    Right of 1 it is faster than every library (green), left of it slower (red).
    """
    shown = [r for r in results if r.measured]
    narrow = width_px <= NARROW
    steps = 1.6 if narrow else 1.0
    labels = [textwrap.shorten(r.title, 46, placeholder="…") for r in shown]
    texts = [f"{r.geomean:.3f}" for r in shown]
    with use_style():
        lines = textwrap.wrap(heading, int(width_px / 7.5))
        figure, axes = make_figure(width_px, 70 + 16 * len(lines) + _ROW_PX * steps * len(shown))
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=12)
        for place, (result, label, text) in enumerate(zip(shown, labels, texts, strict=True)):
            _draw_group(axes, result, label, text, steps * (len(shown) - 1 - place), narrow)
        low, high = (f(ratio for r in shown for ratio, _ in r.measured) for f in (min, max))
        axes.set_xscale("log")
        axes.set(xlim=(min(0.8, low * 0.93), max(1.25, high * 1.07)), ylim=(-0.6, steps * len(shown) - 0.2), yticks=[])
        axes.axvline(1, color=LIGHT["muted"], linewidth=1.2, zorder=1)
        most = 4 if narrow else 8
        axes.xaxis.set_major_locator(FixedLocator(_choose_ticks(*axes.get_xlim(), most)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axes.set_xlabel("library's time / own" if narrow else "time of the fastest library over the own; right is faster than it")
        axes.spines["left"].set_visible(False)
        return figure


def draw_results(results: Sequence[GroupResult], heading: str) -> str:
    """Return that picture as SVG, for a wide page."""
    return Drawing(plot_drawn(results, heading, WIDE)).to_svg()


def _draw_group(axes: Axes, result: GroupResult, label: str, text: str, y: float, narrow: bool) -> None:
    assert result.geomean is not None
    color = LIGHT["good" if result.geomean >= 1 else "bad"]
    place = (("axes fraction", "data"), "offset points")
    at = y + 0.65 if narrow else y
    x, gap = ((0.0, 0), (1.0, 0)) if narrow else ((0.0, -8), (1.0, 8))
    sides = ((x, label, LIGHT["ink"], "left" if narrow else "right"), (gap, text, color, "right" if narrow else "left"))
    ground = BACKDROP if narrow else None  # the line at 1 crosses the text there
    for (where, offset), words, ink, align in sides:
        axes.annotate(
            words, (where, at), (offset, 0), xycoords=place[0], textcoords=place[1], va="center", ha=align, color=ink, bbox=ground
        )
    for ratio, _ in result.measured:
        axes.plot([ratio], [y], "o", markersize=5.5, alpha=0.65, color=LIGHT["good" if ratio >= 1 else "bad"], markeredgewidth=0, zorder=2)
    axes.plot([result.geomean], [y], "D", markersize=8, color=LIGHT["ink"], markerfacecolor=color, zorder=3)


def _choose_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round ratios within an axis, 1 among them, so many that their labels do not touch."""
    inside = [t for t in _TICKS if low <= t <= high]
    while len(inside) > most:
        one = inside.index(1.0)
        inside = [t for i, t in enumerate(inside) if (i - one) % 2 == 0]
    return inside
