"""Contests whose truth is known (``scripts/check_timing.py contests``): a kernel against itself, and against itself with work added."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from contract.documents import parse_json
from harness.errors import RecordError
from harness.report.pictures.forest import LOOKS
from harness.report.pictures.theme import LIGHT, make_figure, use_style
from harness.timing.verdicts import Criteria

_TRIAL_PX, _GAP = 2.5, 14


def read_trials(path: Path) -> pd.DataFrame:
    """Return a row a contest: ``kernel``, ``mode``, ``planted`` (percent), ``verdict``, ``change``, ``low``, ``high`` (shares).

    Raises :class:`RecordError` for a file that holds anything else.
    """
    try:
        rows = parse_json(path.read_text(), strict=False)["rows"]
        return pd.DataFrame([{**{k: r[k] for k in ("kernel", "mode", "planted", "verdict", "is_void")}, **r["effect"]} for r in rows])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} holds no contests: {type(error).__name__}: {error}") from error


def plot_trials(trials: pd.DataFrame, width_px: int) -> Figure:
    """Return every contest's change with its interval, sorted within each kernel and planted change; a tick is what was planted.

    Colours are those of the verdicts; the band is what counts as the same. An interval that misses its tick is an error of the method.
    """
    groups = list(trials.groupby(["kernel", "mode", "planted"], sort=True))[::-1]
    with use_style():
        figure, axes = make_figure(width_px, 92 + _TRIAL_PX * (len(trials) + _GAP * len(groups)))
        margin = 100 * Criteria.margin
        axes.axvspan(-margin, margin, facecolor=LIGHT["grid"], alpha=0.6, zorder=0)
        places, names, y = [], [], 0.0
        for (kernel, mode, planted), group in groups:
            rows = group.sort_values("change", ascending=False)
            at = y + np.arange(len(rows))
            for verdict, same in rows.assign(at=at).groupby("verdict"):
                color = LIGHT[LOOKS[str(verdict)][0]]
                axes.hlines(same["at"], 100 * same.low, 100 * same.high, color=color, linewidth=1, alpha=0.45, zorder=2)
                axes.plot(100 * same.change, same["at"], linestyle="", marker="o", markersize=2.5, color=color, zorder=3)
            axes.vlines([float(planted)], y - 3, y + len(rows) + 2, color=LIGHT["ink"], linewidth=1.5, zorder=1)
            places.append(y + len(rows) / 2)
            counts = ", ".join(f"{n} {v}" for v, n in rows.verdict.value_counts().items())
            names.append(f"{kernel}, {mode}: {planted:+d} %\n{counts}" if planted else f"{kernel}, {mode}: itself\n{counts}")
            y += len(rows) + _GAP
        axes.set_yticks(places, names)
        axes.tick_params(axis="y", length=0, labelcolor=LIGHT["ink"])
        axes.set(ylim=(-_GAP / 2, y - _GAP / 2), xlabel="measured change in time, %; black: what was planted")
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        return figure
