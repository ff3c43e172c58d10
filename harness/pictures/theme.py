"""How pictures look: type, colours, and SVG whose colours a page may change.

Every colour has a name and a value for light and for dark pages. Charts are drawn with the light values; :func:`make_svg` replaces them by
``var(--name)``, so that one drawing serves both. Lines of text are 12 units high and a unit is a CSS pixel at the width that the figure was
made for; a page shows one of several widths rather than scale its type. Series colours follow M. Okabe and K. Ito, *Color Universal Design*
(2008), darkened or lightened to at least 3:1 against the page; a second round of series has other markers.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

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
_DIGITS = re.compile(r"\d+\.\d{3,}")
_PIXELS_PER_INCH = 72  # SVG's points are then pixels

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 12,
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
    "figure.dpi": _PIXELS_PER_INCH,
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
    figure = Figure(figsize=(width_px / _PIXELS_PER_INCH, height_px / _PIXELS_PER_INCH), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def make_svg(figure: Figure, name: str, description: str, classes: Sequence[str] = ()) -> str:
    """Return a figure as an SVG element for a page: colours by name, the page's type, ids that begin with ``name``."""
    out = io.StringIO()
    with use_style():
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    width, height = (float(x) * _PIXELS_PER_INCH for x in figure.get_size_inches())
    head = (
        f'<svg class="{" ".join(("chart", *classes))}" role="img" aria-label="{_escape(description)}" '
        f'viewBox="0 0 {width:g} {height:g}" style="max-width: {width:g}px" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    text = re.sub(r"<svg\b[^>]*>", head, text, count=1)
    text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r">\s+<", "><", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
    used = set(re.findall(r'(?:url\(#|href="#)([^")]*)', text))
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\1{name}-", text)
    text = re.sub(r"font: ([\w ]*?)(\d+(?:\.\d+)?)px [^;\"]*", r"font: \1\2px var(--sans)", text)
    text = re.sub(r"<[^>]*>", lambda m: _DIGITS.sub(_round, m[0]), text)  # what stands between tags is read, not drawn
    names = {value: key for key, value in LIGHT.items()}
    return re.sub(r"#[0-9a-f]{6}\b", lambda m: f"var(--{names[m[0]]})" if m[0] in names else m[0], text)


def _round(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


class Drawing:
    """A figure that a notebook shows as SVG, on a light ground whatever the notebook's own colours are."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def _repr_svg_(self) -> str:
        out = io.StringIO()
        with use_style():
            self.figure.savefig(out, format="svg", facecolor=LIGHT["surface"], metadata={"Date": None})
        return out.getvalue()
