"""The arena over time as a picture: steps from left to right, bytes from bottom to top."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicf.plan.data import Slot, Step

_WIDTH, _HEIGHT, _MARGIN = 900, 420, 48
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#e15759", "#9c755f", "#edc948")


def draw_arena(steps: Sequence[Step], size_bytes: int, lower_bound_bytes: int) -> str:
    """Return an SVG image; each box says op, owner and bytes where the pointer rests on it."""
    lives: dict[int, tuple[Slot, int, int]] = {}
    for i, step in enumerate(steps):
        for slot in (*step.reads, *step.writes):
            if slot.region == "arena":
                known = lives.get(slot.buffer)
                lives[slot.buffer] = (slot, i, i) if known is None else (known[0], known[1], i)
    across, up = _WIDTH / max(len(steps), 1), _HEIGHT / max(size_bytes, 1)
    boxes = []
    for k, (slot, first, last) in enumerate(lives.values()):
        maker = steps[first]
        title = f"{maker.op} {maker.owner} {slot.type}: {slot.type.size_bytes} bytes, steps {first} to {last}"
        boxes.append(
            f'<rect x="{_MARGIN + first * across:.2f}" y="{_HEIGHT + 20 - slot.end * up:.2f}" width="{(last - first + 1) * across:.2f}" '
            f'height="{slot.type.size_bytes * up:.2f}" fill="{_COLOURS[k % len(_COLOURS)]}" stroke="white" stroke-width="0.5">'
            f"<title>{escape(title)}</title></rect>"
        )
    bound = _HEIGHT + 20 - lower_bound_bytes * up
    caption = f"{len(steps)} steps, {len(lives)} buffers, {size_bytes} bytes; lower bound {lower_bound_bytes}"
    box = f"0 0 {_WIDTH + 2 * _MARGIN} {_HEIGHT + 60}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="13">'
        + "".join(boxes)
        + f'<line x1="{_MARGIN}" x2="{_MARGIN + _WIDTH}" y1="{bound:.2f}" y2="{bound:.2f}" stroke="black" stroke-dasharray="4"/>'
        + f'<text x="{_MARGIN}" y="{_HEIGHT + 45}">{escape(caption)}</text></svg>\n'
    )
