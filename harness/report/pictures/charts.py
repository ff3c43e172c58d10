"""Charts of an op's times. Each takes rows of :func:`harness.records.load` and a width in pixels, and returns a figure.

Own variants are coloured by kernel, in the order of the op's ladder; libraries (peers) are grey stars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from harness.report.pictures.labels import shorten_variants
from harness.report.pictures.theme import (
    BACKDROP,
    LIGHT,
    MARKERS,
    NARROW,
    RowSheet,
    make_figure,
    measure_text,
    pick_color,
    pick_marker,
    use_style,
)
from harness.targets import Target

PEER_MARKER = "*"
_ROW_PX = 22
# A share of the samples this small at either end may lie outside a distribution's axis; its number is written beside it.
_TAIL = 0.01
# A chart of more rows than this has its scale at the top too.
_LONG = 24


def index_kernels(names: Sequence[str]) -> dict[str, int]:
    """Return the place of each kernel in the order of its colours."""
    return {name: i for i, name in enumerate(dict.fromkeys(names))}


def plot_roofline(timed: pd.DataFrame, target: Target, units: Mapping[str, str], kernels: Mapping[str, int], width_px: int) -> Figure:
    """Return rate over arithmetic intensity, every variant on every problem, below the roofs of the GPU.

    ``units`` maps a problem to the flop unit that bounds it; a roof is drawn for each unit (Williams, Waterman & Patterson, *Roofline*,
    CACM 52(4), 2009).
    """
    narrow = width_px <= NARROW
    with use_style():
        height = width_px * (1.1 if narrow else 0.85)
        figure, axes = make_figure(width_px, height)
        rows = _drop_hidden(timed.assign(intensity=timed.flops / timed.bytes_moved), "intensity", "tflops")
        low, high = float(rows.intensity.min()) / 3, float(rows.intensity.max()) * 3
        bandwidth = target.dram_bytes_per_s * 1e-12
        roofs = {
            f"{unit.replace('_', ' ')} {target.peak_flops[unit] * 1e-12:.3g}": target.peak_flops[unit] * 1e-12 for unit in units.values()
        }
        top = max(roofs.values())
        low, high = min(low, top / bandwidth / 8), max(high, 2 * top / bandwidth)
        bottom = min(float(rows.tflops.min()) / 2, low * bandwidth)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top * 2.2))
        axes.plot([low, top / bandwidth], [low * bandwidth, top], color=LIGHT["muted"], linewidth=1.5)
        for peak in roofs.values():
            axes.plot([peak / bandwidth, high], [peak] * 2, color=LIGHT["muted"], linewidth=1.5)
        _scatter_by_kernel(axes, rows, "intensity", "tflops", kernels)
        # Left of where a roof begins nothing is drawn, as far as the slope; and about so many pixels are a decade.
        decade_px = (height - 110) / np.log10(top * 2.2 / bottom)
        last = np.inf
        for text, peak in sorted(roofs.items(), key=lambda roof: -roof[1]):
            at = min(decade_px * np.log10(peak), last - 14)
            place: dict[str, Any] = {
                "xytext": (-7, at - decade_px * np.log10(peak)),
                "textcoords": "offset points",
                "ha": "right",
                "va": "center",
            }
            axes.annotate(f"{text} TFLOP/s", (peak / bandwidth, peak), color=LIGHT["muted"], **place)
            last = at
        middle = low * (min(roofs.values()) / bandwidth / low) ** 0.5
        words = f"DRAM {bandwidth:.2g} TB/s"
        beside: dict[str, Any] = {"xytext": (8, -6), "ha": "left", "va": "top"} if narrow else {"xytext": (-6, 4), "ha": "right"}
        axes.annotate(words, (middle, middle * bandwidth), textcoords="offset points", color=LIGHT["muted"], **beside)
        axes.set_xlabel("flop per byte" if narrow else "arithmetic intensity, flop per byte of compulsory traffic")
        axes.set_ylabel("TFLOP/s")
        _format_log(axes)
        axes.grid(visible=True)
        _add_legend(figure, axes, narrow)
        return figure


def _drop_hidden(rows: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Leave out points that another of the same look covers, to within a pixel or two of a logarithmic chart."""
    places = {name: (np.log(rows[name]) / 0.02).round() for name in (x, y)}
    look = rows.kernel.where(~rows.is_peer, "")
    return rows[~pd.DataFrame({"look": look, **places}).duplicated()]


def _scatter_by_kernel(axes: Axes, rows: pd.DataFrame, x: str, y: str, kernels: Mapping[str, int]) -> None:
    peers = rows[rows.is_peer]
    if len(peers):
        style: dict[str, Any] = {"markerfacecolor": LIGHT["peer"], "markeredgecolor": LIGHT["surface"], "markeredgewidth": 0.8}
        axes.plot(peers[x], peers[y], linestyle="", marker=PEER_MARKER, markersize=12, label="libraries", zorder=4, **style)
    for kernel, group in rows[~rows.is_peer].groupby("kernel", sort=False):
        i = kernels[str(kernel)]
        style = {
            "marker": pick_marker(i),
            "markerfacecolor": pick_color(i),
            "markeredgecolor": LIGHT["surface"],
            "markeredgewidth": 0.8,
        }
        axes.plot(group[x], group[y], linestyle="", markersize=8, label=str(kernel), zorder=3, **style)


def _format_log(axes: Axes) -> None:
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        # Where there are hardly two decades, they alone are too few to read a value by.
        axis.set_major_locator(LogLocator(subs=(1.0,) if high > 200 * low else (1.0, 2.0, 5.0), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axis.set_minor_formatter(NullFormatter())
        axis.set_minor_locator(NullLocator())


def _add_legend(figure: Figure, axes: Axes, narrow: bool) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = 2 if narrow else 4
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)), handletextpad=0.3, columnspacing=1.2)


def plot_distributions(timed: pd.DataFrame, kernels: Mapping[str, int], width_px: int) -> Figure:
    """Return one row per variant or peer of one problem and mode: where its samples lie, quartiles, median, in percent off the median.

    Timers count in steps, so that many samples are alike: a tick is the taller the more samples lie in its pixel. The median in
    microseconds stands at the right. Rows are sorted by it, the fastest at the top.
    """
    rows = timed.sort_values("median_us", ascending=False)
    labels = shorten_variants(rows.variant)
    medians = [f"{m:.4g} µs" for m in rows.median_us]
    deviations = [100 * (np.asarray(r.samples_us, float) / r.median_us - 1) for r in rows.itertuples()]
    everything = np.concatenate([d for d in deviations if len(d)] or [np.zeros(1)])
    low, high = (float(q) for q in np.quantile(everything, [_TAIL, 1 - _TAIL]))
    pad = 0.05 * max(high - low, 0.1)
    low, high = low - pad, high + pad
    margin = 0.09 * (high - low)  # for the counts of what lies beyond
    colors = [LIGHT["peer"] if r.is_peer else pick_color(kernels[r.kernel]) for r in rows.itertuples()]
    with use_style():
        sheet = RowSheet([labels[v] for v in rows.variant], medians, width_px, row_px=_ROW_PX, bottom_px=44)
        axes = sheet.axes
        axes.set(xlim=(low - margin, high + margin), yticks=[])
        axes.set_xlabel("% off the variant's own median")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.tick_params(length=0)
        axes.grid(visible=True, axis="x")
        pixel = (high - low + 2 * margin) / sheet.inner_px
        for color in dict.fromkeys(colors):
            chosen = [(y, off) for y, (off, c) in enumerate(zip(deviations, colors, strict=True)) if c == color and len(off)]
            _draw_samples(axes, chosen, color, (low, high), (pixel, 1 / sheet.unit_px))
        sheet.write_rows(LIGHT["ink"], LIGHT["muted"])
        return sheet.figure


def _draw_samples(
    axes: Axes, rows: Sequence[tuple[float, np.ndarray]], color: str, span: tuple[float, float], pixel: tuple[float, float]
) -> None:
    """Draw rows of one colour as three lines with gaps, whatever their number and that of their samples; ``pixel`` is the size of one."""
    ticks, bars, dots = [], [], []
    gap = np.array([[np.nan, np.nan]])
    for y, off in rows:
        places, counts = np.unique(np.round(off[(off >= span[0]) & (off <= span[1])] / pixel[0]), return_counts=True)
        reach = np.round(2 + 6 * np.sqrt(counts / counts.max(initial=1))) * pixel[1]
        heights = np.stack([y - reach, y + reach, np.full(len(reach), np.nan)], axis=1)
        ticks.append(np.stack([np.repeat(places * pixel[0], 3), heights.ravel()], axis=1))
        q1, median, q3 = np.quantile(off, [0.25, 0.5, 0.75])
        bars += [np.stack([np.clip([q1, q3], *span), [y, y]], axis=1), gap]
        dots.append([median, y])
        for count, edge, text, align in (
            (int((off < span[0]).sum()), span[0], "◂ {}", "right"),
            (int((off > span[1]).sum()), span[1], "{} ▸", "left"),
        ):
            if count:
                axes.text(edge, y, text.format(count), ha=align, va="center_baseline", fontsize=10.5, color=color)
    if rows:
        axes.plot(*np.concatenate(ticks).T, color=color, linewidth=1, alpha=0.55, zorder=2, clip_on=False)
        axes.plot(*np.concatenate(bars).T, color=color, linewidth=5, solid_capstyle="butt", zorder=3, clip_on=False)
        style: dict[str, Any] = {"color": LIGHT["surface"], "markeredgecolor": color, "markeredgewidth": 1.5, "zorder": 4}
        axes.plot(*np.array(dots).T, linestyle="", marker="o", markersize=5, clip_on=False, **style)


def plot_shares(
    timed: pd.DataFrame, share: str, xlabel: str, labels: Mapping[str, str], kernels: Mapping[str, int], width_px: int
) -> Figure:
    """Return each kernel's best variant on each problem by one of the columns of shares, in percent; a line stands at 100."""
    own = timed[~timed.is_peer & timed[share].notna()]
    best = own.loc[own.groupby(["problem", "kernel"], sort=False).median_us.idxmin()]
    problems = list(dict.fromkeys(best.problem))[::-1]
    narrow = width_px <= NARROW
    num_lines = -(-best.kernel.nunique() // (2 if narrow else 4))
    with use_style():
        is_long = len(problems) > _LONG
        margins = {"bottom_px": 48 + 18 * num_lines, "top_px": 20 if is_long else 3}
        sheet = RowSheet([labels[p] for p in problems], [], width_px, row_px=19 if narrow else 24, **margins)
        axes = sheet.axes
        axes.tick_params(labeltop=is_long)
        place = {name: i for i, name in enumerate(problems)}
        rows = best.assign(y=best.problem.map(place), percent=100 * best[share])
        most = rows.groupby("y").percent.max()
        axes.set(xlim=(0, max(115.0, float(most.max()) * 1.16)), yticks=[], xlabel=xlabel)
        axes.axvline(100, color=LIGHT["muted"], linewidth=1.5)
        ends = np.stack([[0.0, right, np.nan] for right in most])
        axes.plot(ends.ravel(), np.repeat(most.index, 3), color=LIGHT["grid"], linewidth=2, solid_capstyle="butt", zorder=1)
        offset = 9 * axes.get_xlim()[1] / sheet.inner_px
        for y, right in most.items():
            axes.text(right + offset, y, f"{right:.0f} %", va="center_baseline", fontweight="bold", bbox=BACKDROP)
        _scatter_by_kernel(axes, rows, "percent", "y", kernels)
        sheet.write_rows(LIGHT["ink"], LIGHT["muted"])
        sheet.add_legend(2 if narrow else 4)
        return sheet.figure


def plot_history(history: pd.DataFrame, labels: Mapping[str, str], width_px: int) -> Figure:
    """Return the fastest own time of each problem over the runs, as a share of its first: lower is faster; bars span the quartiles.

    A few percent are always in view, so that noise does not look like a trend.
    """
    runs = history.drop_duplicates("run_uid").sort_values("started_at")
    place = {uid: i for i, uid in enumerate(runs.run_uid)}
    narrow = width_px <= NARROW
    problems = list(dict.fromkeys(history.problem))
    with use_style():
        columns = max(1, min(4, int(width_px / (measure_text(labels[p] for p in problems) + 60))))
        figure, axes = make_figure(width_px, (350 if narrow else 390) + 20 * np.ceil(len(problems) / columns))
        axes.axhline(100, color=LIGHT["muted"], linewidth=1.2, zorder=1)
        for i, problem in enumerate(problems):
            group = history[history.problem == problem]
            shares = 100 * group[["median_us", "q1_us", "q3_us"]] / group.median_us.iloc[0]
            # Side by side, so that bars of problems do not cover each other.
            x = group.run_uid.map(place) + 0.25 * ((i + 0.5) / len(problems) - 0.5)
            look: dict[str, Any] = {"color": pick_color(i), "markeredgecolor": LIGHT["surface"], "markeredgewidth": 0.8}
            axes.vlines(x, shares.q1_us, shares.q3_us, color=pick_color(i), linewidth=3, alpha=0.5, zorder=2)
            axes.plot(x, shares.median_us, marker=MARKERS[i // 8 % 4], markersize=8, linewidth=1.5, label=labels[problem], zorder=3, **look)
        ticks = [f"{r.commit[:7] or 'no commit'}\n{r.started_at:%Y-%m-%d}\n{r.started_at:%H:%M}" for r in runs.itertuples()]
        shown = range(0, len(runs), max(1, int(np.ceil(len(runs) / (3 if narrow else 7)))))
        axes.set_xticks(list(shown), [ticks[i] for i in shown])
        low, high = axes.get_ylim()
        axes.set(xlim=(-0.4, len(runs) - 0.6), ylim=(min(low, 94.0), max(high, 104.0)))
        axes.set_ylabel("time, % of the first run's; lower is faster")
        axes.grid(visible=True, axis="y")
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=columns, columnspacing=1.2)
        return figure


def plot_predictions(points: pd.DataFrame, kernels: Mapping[str, int], width_px: int) -> Figure:
    """Return modelled over measured times in microseconds (columns ``model_us``, ``measured_us``, ``kernel``); dotted: a factor of two."""
    with use_style():
        figure, axes = make_figure(width_px, width_px * 0.8)
        low = float(points[["model_us", "measured_us"]].min(axis=None)) / 1.5
        high = float(points[["model_us", "measured_us"]].max(axis=None)) * 1.5
        for factor, style in ((1.0, "-"), (2.0, ":"), (0.5, ":")):
            axes.plot([low, high], [low * factor, high * factor], color=LIGHT["muted"], linewidth=1.2, linestyle=style)
        _scatter_by_kernel(axes, points.assign(is_peer=False), "measured_us", "model_us", kernels)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), xlabel="measured, µs", ylabel="model, µs")
        _format_log(axes)
        axes.grid(visible=True)
        _add_legend(figure, axes, narrow=False)
        return figure
