"""How pictures look: type, colours, and SVG whose colours a page may change.

Every colour has a name and a value for light and for dark pages. Charts are drawn with the light values; :mod:`harness.report.pictures.svg`
replaces them by ``var(--name)``, so that one drawing serves both. Lines of text are 12 units high and a unit is a CSS pixel at the width
that the figure was made for; a page shows one of several widths rather than scale its type. Series colours follow M. Okabe and K. Ito,
*Color Universal Design* (2008), darkened or lightened to at least 3:1 against the page; a second round of series has other markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

LIGHT: Mapping[str, str] = {
    "ink": "#1b1f24",
    "muted": "#5b6570",
    "grid": "#dfe3e8",
    "surface": "#fffffe",
    "peer": "#6e7781",
    "good": "#1a7f37",
    "bad": "#c11f2d",
    "series-1": "#0067a8",
    "series-2": "#c05500",
    "series-3": "#007f5c",
    "series-4": "#b0478a",
    "series-5": "#7a6200",
    "series-6": "#2f8fc4",
    "series-7": "#6a48b3",
    "series-8": "#8c5a3c",
}
DARK: Mapping[str, str] = {
    "ink": "#e6e9ed",
    "muted": "#9aa5b1",
    "grid": "#30363d",
    "surface": "#161b21",
    "peer": "#aab4bf",
    "good": "#3fb950",
    "bad": "#ff7b72",
    "series-1": "#58b0f0",
    "series-2": "#f0883e",
    "series-3": "#2fc79a",
    "series-4": "#e58ac3",
    "series-5": "#d9b93b",
    "series-6": "#8fd0f5",
    "series-7": "#b79df2",
    "series-8": "#d6a07c",
}
# Behind text that lines would cross.
BACKDROP: Mapping[str, Any] = {"facecolor": LIGHT["surface"], "edgecolor": "none", "pad": 1.0}
NUM_SERIES = 8
MARKERS = ("o", "D", "^", "s")
# Widths in pixels that figures are made for: a telephone, and a column of a wide page.
NARROW, WIDE = 340, 700
PIXELS_PER_INCH = 72  # SVG's points are then pixels
_FONT_PX = 12.0

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": _FONT_PX,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 12,
    "axes.edgecolor": LIGHT["grid"],
    "axes.labelcolor": LIGHT["muted"],
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "figure.dpi": PIXELS_PER_INCH,
    "savefig.facecolor": "none",
    "grid.color": LIGHT["grid"],
    "grid.linewidth": 1.0,
    "legend.frameon": False,
    "legend.fontsize": 12,
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["grid"],
    "ytick.color": LIGHT["grid"],
    "xtick.labelcolor": LIGHT["muted"],
    "ytick.labelcolor": LIGHT["muted"],
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "svg.fonttype": "none",
    "svg.hashsalt": "aicf",
}


def pick_color(index: int) -> str:
    """Return the colour of a series; they repeat after :data:`NUM_SERIES`, with other markers."""
    return LIGHT[f"series-{index % NUM_SERIES + 1}"]


def pick_marker(index: int) -> str:
    """Return the marker of a series."""
    return MARKERS[index // NUM_SERIES % len(MARKERS)]


@contextmanager
def use_style() -> Iterator[None]:
    """Draw in the project's style for the length of the block."""
    with mpl.rc_context(_STYLE):
        yield


def make_figure(width_px: float, height_px: float) -> tuple[Figure, Axes]:
    """Return an empty figure of this size with one set of axes, laid out so that nothing is cut off."""
    figure = Figure(figsize=(width_px / PIXELS_PER_INCH, height_px / PIXELS_PER_INCH), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def measure_text(texts: Iterable[str]) -> float:
    """Return the width in pixels of the longest text at the charts' size."""
    return max((sum(map(_find_advance, text)) for text in texts), default=0.0)


@cache
def _find_advance(letter: str) -> float:
    font = get_font(findfont("DejaVu Sans"))
    font.set_size(_FONT_PX, PIXELS_PER_INCH)
    return float(font.load_char(ord(letter)).linearHoriAdvance) / 65536


class RowSheet:
    """A figure of many rows, one a unit of y from the bottom: a label at the left of each, a text at the right, or both above it if narrow.

    Its margins follow from the texts' widths, which takes a fraction of the time of a layout that draws everything first.
    """

    def __init__(
        self, labels: Sequence[str], texts: Sequence[str], width_px: int, *, row_px: float, bottom_px: float, top_px: float = 3
    ) -> None:
        self.labels, self.texts = labels, texts
        self.narrow = width_px <= NARROW
        self.unit_px = 2 * row_px if self.narrow else row_px
        left, right = (4.0, 4.0) if self.narrow else (measure_text(labels) + 14, measure_text(texts) + 12)
        self.inner_px = width_px - left - right
        inner_height = self.unit_px * (len(labels) + 0.2)
        height = inner_height + bottom_px + top_px
        self.figure = Figure(figsize=(width_px / PIXELS_PER_INCH, height / PIXELS_PER_INCH))
        FigureCanvasSVG(self.figure)
        self.axes = self.figure.add_axes((left / width_px, bottom_px / height, self.inner_px / width_px, inner_height / height))
        self.axes.set_ylim(-0.35 if self.narrow else -0.6, len(labels) - (0.15 if self.narrow else 0.4))
        self.axes.spines["left"].set_visible(False)

    def write_rows(self, label_color: str, text_color: str) -> None:
        """Write labels and texts beside their rows, or above them."""
        pixel = 1 / self.inner_px
        if self.narrow:
            sides = (self.labels, 2 * pixel, label_color, "left"), (self.texts, 1.0, text_color, "right")
        else:
            sides = (self.labels, -8 * pixel, label_color, "right"), (self.texts, 1 + 8 * pixel, text_color, "left")
        place = self.axes.get_yaxis_transform()
        ground = BACKDROP if self.narrow else None
        for texts, x, color, align in sides:
            for y, text in enumerate(texts):
                at = y + 0.5 if self.narrow else y
                self.axes.text(x, at, text, color=color, ha=align, va="center_baseline", transform=place, bbox=ground)

    def add_legend(self, columns: int) -> None:
        """Add a legend of all that has a name at the bottom."""
        handles, labels = self.axes.get_legend_handles_labels()
        self.figure.legend(handles, labels, loc="lower center", ncols=min(columns, len(labels)), handletextpad=0.3, columnspacing=1.2)
