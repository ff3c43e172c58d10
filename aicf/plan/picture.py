"""The arena over time as a picture: steps from left to right, bytes from bottom to top."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT, _MARGIN = 900, 420, 48
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#e15759", "#9c755f", "#edc948")


class Lifetime(NamedTuple):
    """A buffer's bytes in the arena, and the first and the last step that uses them."""

    title: str
    offset_bytes: int
    size_bytes: int
    first: int
    last: int


def draw_arena(lifetimes: Sequence[Lifetime], num_steps: int, size_bytes: int, lower_bound_bytes: int) -> str:
    """Return an SVG image; each box says its title, bytes and steps where the pointer rests on it."""
    across, up = _WIDTH / max(num_steps, 1), _HEIGHT / max(size_bytes, 1)
    boxes = []
    for k, (title, offset, size, first, last) in enumerate(lifetimes):
        top = _HEIGHT + 20 - (offset + size) * up
        text = f"{title}: {size} bytes, steps {first} to {last}"
        boxes.append(
            f'<rect x="{_MARGIN + first * across:.2f}" y="{top:.2f}" width="{(last - first + 1) * across:.2f}" '
            f'height="{size * up:.2f}" fill="{_COLOURS[k % len(_COLOURS)]}" stroke="white" stroke-width="0.5">'
            f"<title>{escape(text)}</title></rect>"
        )
    bound = _HEIGHT + 20 - lower_bound_bytes * up
    caption = f"{num_steps} steps, {len(lifetimes)} buffers, {size_bytes} bytes; lower bound {lower_bound_bytes}"
    box = f"0 0 {_WIDTH + 2 * _MARGIN} {_HEIGHT + 60}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="13">'
        + "".join(boxes)
        + f'<line x1="{_MARGIN}" x2="{_MARGIN + _WIDTH}" y1="{bound:.2f}" y2="{bound:.2f}" stroke="black" stroke-dasharray="4"/>'
        + f'<text x="{_MARGIN}" y="{_HEIGHT + 45}">{escape(caption)}</text></svg>\n'
    )
