"""A loss over steps as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP = 860, 360, 64, 20
_NUM_TICKS = 5
# The line through the points follows them over about this share of the run.
_SMOOTHED_SHARE = 0.05


def draw_curve(steps: Sequence[int], losses: Sequence[float], title: str) -> str:
    """Return an SVG image: each loss as a thin line, and their running mean as a thick one; what is not finite is left out."""
    points = [(s, v) for s, v in zip(steps, losses, strict=True) if math.isfinite(v)]
    low, high = min((v for _, v in points), default=0.0), max((v for _, v in points), default=1.0)
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    last = max(max(steps, default=1), 1)

    def place(step: float, value: float) -> str:
        return f"{_LEFT + _WIDTH * step / last:.2f},{_TOP + _HEIGHT * (high - value) / (high - low):.2f}"

    parts = []
    for i in range(_NUM_TICKS):
        share = i / (_NUM_TICKS - 1)
        value, y, x = low + share * (high - low), _TOP + _HEIGHT * (1.0 - share), _LEFT + _WIDTH * share
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.2f}" y2="{y:.2f}" stroke="#ccc" stroke-width="0.5"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.2f}" text-anchor="end">{value:.4g}</text>')
        parts.append(f'<text x="{x:.2f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{last * share:.0f}</text>')
    for line, style in ((points, 'stroke="#9ecae1" stroke-width="1"'), (_smooth(points), 'stroke="#1f77b4" stroke-width="2"')):
        parts.append(f'<polyline fill="none" {style} points="{" ".join(place(s, v) for s, v in line)}"/>')
    left_out = len(losses) - len(points)
    caption = title + (f"; {left_out} losses that are not finite are left out" if left_out else "")
    box = f"0 0 {_WIDTH + 2 * _LEFT} {_HEIGHT + _TOP + 50}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="12">'
        + "".join(parts)
        + f'<text x="{_LEFT}" y="{_TOP + _HEIGHT + 42}">{escape(caption)}</text></svg>\n'
    )


def _smooth(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the exponential running mean, corrected for its beginning."""
    rate = 1.0 / max(1.0, _SMOOTHED_SHARE * len(points))
    mean, weight, found = 0.0, 0.0, []
    for step, value in points:
        mean, weight = mean + rate * (value - mean), weight + rate * (1.0 - weight)
        found.append((step, mean / weight))
    return found
