"""A picture of a run (SVG): loss with every rewrite marked, and below it memory and the time of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from aicf.rewrite.log import Log, Observation, Rewritten, RolledBack, Shapes, Statistics

_WIDTH, _LEFT, _RIGHT = 960, 70, 20
_PANELS = ((40, 280), (360, 60), (460, 60))  # tops and heights: loss, memory, time
_HEIGHT = 550
_COLOURS = {"line": "#1f5fa8", "gone": "#b9c2cc", "rewritten": "#b3541e", "back": "#a01b3c", "text": "#333333"}
_MAX_POINTS = 2000
Point = tuple[float, float]


def draw_timeline(log: Log, path: Path | str) -> None:
    """Write the picture of a log. Along the axis are steps as they were made; those that were rolled back are grey."""
    lines, at = _follow(log)
    end = max(at.values(), default=1)
    body = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="11">']
    body.append(f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>')
    losses = [y for _, points in lines for _, y in points]
    low, high = (min(losses), max(losses)) if losses else (0.0, 1.0)
    in_logarithms = low > 0.0 and high / low > 5.0
    shown = [(is_kept, [(x, math.log10(y) if in_logarithms else y) for x, y in points]) for is_kept, points in lines]
    body += _draw_panel("loss" + (", logarithmic" if in_logarithms else ""), 0, end, shown, 10.0 if in_logarithms else None)
    entries = log.entries
    memory = [(at[i], entry.num_bytes / 2**20) for i, entry in enumerate(entries) if isinstance(entry, Shapes)]
    steps = [point for (x, y), nxt in zip(memory, [*memory[1:], (end, 0.0)], strict=True) for point in ((x, y), (nxt[0], y))]
    body += _draw_panel("MiB", 1, end, [(True, steps)])
    times = [(at[i], entry.seconds_per_step * 1e3) for i, entry in enumerate(entries) if isinstance(entry, Statistics)]
    body += _draw_panel("ms per step", 2, end, [(True, times)])
    body += _mark(log, at, end)
    body.append("</svg>")
    Path(path).write_text("\n".join(body) + "\n")


def _follow(log: Log) -> tuple[list[tuple[bool, list[Point]]], dict[int, float]]:
    """Return pieces of the loss, each with whether it led to where the run is, and how many steps were made when each entry was written."""
    kept = {id(entry) for entry in log.present}
    at: dict[int, float] = {}
    pieces: list[tuple[bool, list[Point]]] = []
    made = 0
    for i, entry in enumerate(log.entries):
        made += isinstance(entry, Observation)
        at[i] = float(made)
        if isinstance(entry, Observation) and math.isfinite(entry.loss):
            is_kept = id(entry) in kept
            if not pieces or pieces[-1][0] is not is_kept:
                pieces.append((is_kept, []))
            pieces[-1][1].append((float(made), entry.loss))
    return pieces, at


def _draw_panel(title: str, panel: int, end: float, lines: Sequence[tuple[bool, list[Point]]], base: float | None = None) -> list[str]:
    top, height = _PANELS[panel]
    values = [y for _, points in lines for _, y in points]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if panel:
        low = 0.0
    high = high if high > low else low + 1.0
    made = [f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH - _LEFT - _RIGHT}" height="{height}" fill="none" stroke="#999999"/>']
    made.append(f'<text x="{_LEFT}" y="{top - 6}" fill="{_COLOURS["text"]}">{escape(title)}</text>')
    for value in (low, high):
        label, y = (value if base is None else base**value), top + height * (high - value) / (high - low)
        made.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{_COLOURS["text"]}">{label:.3g}</text>')
    for is_kept, points in lines:
        every = max(len(points) // _MAX_POINTS, 1)
        places = " ".join(f"{_x(x, end):.1f},{top + height * (high - y) / (high - low):.1f}" for x, y in points[::every])
        colour = _COLOURS["line" if is_kept else "gone"]
        made.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
    if panel == len(_PANELS) - 1:
        made += [
            f'<text x="{_x(x, end):.1f}" y="{top + height + 16}" text-anchor="middle" fill="{_COLOURS["text"]}">{x:.0f}</text>'
            for x in (0.0, end / 2, end)
        ]
        made.append(f'<text x="{_WIDTH / 2}" y="{top + height + 28}" text-anchor="middle" fill="{_COLOURS["text"]}">steps made</text>')
    return made


def _mark(log: Log, at: dict[int, float], end: float) -> list[str]:
    """Return a line through all panels for every rewrite and rollback, named at alternating heights."""
    by_place: dict[tuple[float, str], list[str]] = {}
    for i, entry in enumerate(log.entries):
        if isinstance(entry, Rewritten):
            data = entry.rule
            detail = " ".join(str(data[key]) for key in ("owner", "to", "rank", "rows", "factor") if key in data)
            by_place.setdefault((at[i], "rewritten"), []).append(f"{data['rule']} {detail}".strip())
        elif isinstance(entry, RolledBack):
            by_place.setdefault((at[i], "back"), []).append(f"rolled back to {entry.to}")
    made, bottom = [], _PANELS[-1][0] + _PANELS[-1][1]
    for number, ((step, kind), names) in enumerate(by_place.items()):
        x, top = _x(step, end), _PANELS[0][0]
        made.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{_COLOURS[kind]}" stroke-dasharray="4 3"/>')
        y = top + 14 + 15 * (number % 6)
        side = ("end", x - 4) if x > _WIDTH * 0.7 else ("start", x + 4)
        text = escape(", ".join(names))
        made.append(f'<text x="{side[1]:.1f}" y="{y}" text-anchor="{side[0]}" fill="{_COLOURS[kind]}">{text}</text>')
    return made


def _x(step: float, end: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / max(end, 1.0)
