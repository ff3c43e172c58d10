"""The share of the roof that each op reaches on its drawn problems, as a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes

from harness.report.overview import LARGE_BYTES, OpStanding
from harness.report.pictures.svg import Drawing
from harness.report.pictures.theme import LIGHT, WIDE, make_figure, use_style

_ROW_PX = 30


def draw_overview(found: Sequence[OpStanding], heading: str) -> str:
    """Return an SVG with a row per op: a dot per problem, filled where it moves much, and a diamond at the median of these."""
    shown = [each for each in found if each.list_shares()]
    with use_style():
        figure, axes = make_figure(WIDE, 90 + _ROW_PX * len(shown))
        figure.suptitle(heading, x=0.01, ha="left", fontsize=12)
        for y, each in enumerate(reversed(shown)):
            _draw_op(axes, each, y)
        axes.axvline(1, color=LIGHT["muted"], linewidth=1.2, zorder=1)
        most = max((each.list_shares()[-1] for each in shown), default=1.0)
        axes.set(xlim=(0, max(1.05, 1.03 * most)), ylim=(-0.6, len(shown) - 0.4), yticks=range(len(shown)))
        axes.set_yticklabels([each.op.name for each in reversed(shown)])
        axes.set_xlabel(f"share of the roof; filled: {LARGE_BYTES / 1e6:.0f} MB or more move, diamond: their median")
        axes.spines["left"].set_visible(False)
    return Drawing(figure).to_svg()


def _draw_op(axes: Axes, each: OpStanding, y: int) -> None:
    for one in each.standings:
        if one.share is None:
            continue
        color = LIGHT["good" if one.row.ratio is not None and one.row.ratio >= 1 else "bad"]
        face = color if one.moved_bytes >= LARGE_BYTES else "none"
        axes.plot([one.share], [y], "o", markersize=5.5, alpha=0.65, color=color, markerfacecolor=face, zorder=2)
    large = each.list_shares(LARGE_BYTES)
    if large:
        axes.plot([statistics.median(large)], [y], "D", markersize=8, color=LIGHT["ink"], markerfacecolor=LIGHT["surface"], zorder=3)
