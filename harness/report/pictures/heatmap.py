"""Heat maps of a sweep: two tunables against each other, each cell the best time over all the others."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from harness.records.frames import spread_tunables
from harness.report.pictures.theme import LIGHT, make_figure, use_style

# cividis: even in lightness, and the same to colour-blind eyes (J. R. Nunez et al., PLoS ONE 13(7), 2018).
_COLORS = "cividis_r"
_CELL_PX = 42
_SLOWEST = 4.0
_FEW_CELLS = 6


def choose_axes(sweep: pd.DataFrame) -> tuple[str, str] | None:
    """Return the first two tunables of one kernel's sweep that make a table worth a look; None where fewer than two vary.

    An op names its tile's sizes first. Where these make fewer than :data:`_FEW_CELLS` cells, the pair with the most cells is taken.
    """
    values = spread_tunables(sweep)[list(dict.fromkeys(k for t in sweep.tunables for k in t))]
    varied = [name for name in values if values[name].nunique() > 1]
    pairs = list(itertools.combinations(varied, 2))
    if not pairs:
        return None
    known = {pair: len(values.dropna(subset=list(pair)).drop_duplicates(list(pair))) for pair in pairs}
    return pairs[0] if known[pairs[0]] >= _FEW_CELLS else max(pairs, key=known.__getitem__)


def make_table(sweep: pd.DataFrame, rows: str, columns: str) -> pd.DataFrame:
    """Return the least median in microseconds by two tunables, ascending; NaN where nothing was timed."""
    values = spread_tunables(sweep, [rows, columns])
    return values.pivot_table(index=rows, columns=columns, values="median_us", aggfunc="min").sort_index().sort_index(axis=1)


def plot_heatmap(sweep: pd.DataFrame, rows: str, columns: str) -> Figure:
    """Return the map of one kernel on one problem; colours are times over the best of the map, which is framed."""
    table = make_table(sweep, rows, columns)
    best = float(table.min(axis=None))
    norm = mpl.colors.LogNorm(1.0, _SLOWEST, clip=True)
    colors = mpl.colormaps[_COLORS]
    num_rows, num_columns = table.shape
    with use_style():
        figure, axes = make_figure(72 + _CELL_PX * max(num_columns, 3), 88 + 0.75 * _CELL_PX * num_rows)
        for y, x in itertools.product(range(num_rows), range(num_columns)):
            time_us = float(table.iloc[y, x])
            if time_us != time_us:
                axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor="none", edgecolor=LIGHT["grid"], linewidth=1))
                continue
            fill = colors(norm(time_us / best))
            is_best = time_us == best
            edge = {"edgecolor": LIGHT["ink"], "linewidth": 2.5} if is_best else {"edgecolor": "none"}
            axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=fill, **edge))
            ink = "#000000" if sum(w * c for w, c in zip((0.299, 0.587, 0.114), fill[:3], strict=True)) > 0.5 else "#ffffff"
            axes.text(
                x, y, _format_cell(time_us), ha="center", va="center", color=ink, fontsize=10.5, fontweight="bold" if is_best else "normal"
            )
        axes.set(xlim=(-0.55, max(num_columns, 3) - 0.45), ylim=(-0.55, num_rows - 0.45), xlabel=columns, ylabel=rows)
        axes.set_xticks(range(num_columns), [f"{int(v)}" for v in table.columns])
        axes.set_yticks(range(num_rows), [f"{int(v)}" for v in table.index])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        steps = {1.0: "best", 2.0: "2×", _SLOWEST: f"{_SLOWEST:g}× and more"}
        handles = [Rectangle((0, 0), 1, 1, facecolor=colors(norm(factor)), label=text) for factor, text in steps.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=1, handletextpad=0.4, columnspacing=1.0)
        return figure


def _format_cell(time_us: float) -> str:
    if time_us >= 10_000:
        return f"{time_us / 1000:.0f}k"
    return f"{time_us / 1000:.1f}k" if time_us >= 1000 else f"{time_us:.3g}"
