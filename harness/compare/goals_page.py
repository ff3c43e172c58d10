"""Goals as tables, for the terminal and for ``profiles/``, and as a plot of every ratio (SVG)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from harness.compare.goals import Ratio, Row

_COLOURS = {"met": "#1a7f37", "the least": "#9a6700", "missed": "#cf222e"}
_ROW_PX, _LABEL_PX, _PLOT_PX, _TOP_PX = 15, 430, 460, 26


def list_cells(row: Row) -> tuple[str, ...]:
    """Return a goal as cells: problems, peers, geometric mean, worst with its problem, aim, the least, verdict."""
    worst = row.measured[0] if row.measured else None
    return (
        row.goal.title,
        " or ".join(row.goal.peers),
        "" if row.geomean is None else f"{row.geomean:.4f}",  # 1.0997 is not 1.1
        "" if worst is None else f"{worst[0]:.3f} ({worst[1].problem})",
        f"{row.goal.aim:g}",
        f"{row.goal.least:g}" + (f", none under {row.goal.worst:g}" if row.goal.worst else ""),
        row.verdict,
    )


HEADINGS = ("problems", "peer", "geomean", "worst", "aim", "least", "verdict")


def make_page(op: str, rows: Sequence[Row], where: str, left_out: Sequence[str]) -> str:
    """Return the goals and every problem's ratio as Markdown. ``where`` says on what and when, ``left_out`` which peers were not there."""
    lines = [f"# Goals of {op}", "", f"{where}. Ratio: time of the fastest peer over the own, cold medians of one run.", ""]
    lines += [*(f"Not there: {text}." for text in left_out), *([""] if left_out else [])]
    lines += [f"| {' | '.join(HEADINGS)} |", "|---|---|--:|---|--:|--:|---|"]
    lines += [f"| {' | '.join(list_cells(r))} |" for r in rows]
    for row in rows:
        lines += [
            "",
            f"## {row.goal.title}",
            "",
            "| problem | own, us | peer, us | ratio | peer | variant | regret |",
            "|---|--:|--:|--:|---|---|---|",
        ]
        lines += [_make_line(r) for r in row.ratios]
    return "\n".join([*lines, ""])


def _make_line(r: Ratio) -> str:
    own, peer = ("" if us is None else f"{us:.2f}" for us in (r.own_us, r.peer_us))
    ratio = "" if r.ratio is None else f"{r.ratio:.3f}"
    return f"| {r.problem} | {own} | {peer} | {ratio} | {r.peer}{f' ({r.reason})' if r.reason else ''} | {r.variant} | {_say_regret(r)} |"


def _say_regret(r: Ratio) -> str:
    if r.regret is None:
        return ""
    return "none" if r.best == r.variant else f"{100 * r.regret:.1f} % behind {r.best}"


def make_plot(op: str, rows: Sequence[Row], where: str) -> str:
    """Return an SVG: a line per problem, its ratio on a logarithmic axis, the aim and the least of its goal as ticks."""
    ratios = [ratio for row in rows for ratio, _ in row.measured]
    low, high = min([0.8, *ratios]) * 0.97, max([1.25, *ratios]) * 1.03
    height = _TOP_PX + _ROW_PX * (2 * len(rows) + sum(len(r.ratios) for r in rows)) + 50

    def place(ratio: float) -> float:
        return _LABEL_PX + _PLOT_PX * math.log(ratio / low) / math.log(high / low)

    parts = [_text(8, 16, f"{op}: fastest peer's time / own. {where}", "start", bold=True)]
    ticks = [t for t in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0) if low <= t <= high]
    for tick in ticks:
        colour = "#24292f" if tick == 1.0 else "#d0d7de"
        parts.append(_line(place(tick), _TOP_PX, place(tick), height - 40, colour))
        parts.append(_text(place(tick), height - 26, f"{tick:g}", "middle"))
    y = _TOP_PX + _ROW_PX
    for row in rows:
        colour = _COLOURS.get(row.verdict, "#57606a")
        mean = "" if row.geomean is None else f": {row.geomean:.3f}"
        parts.append(_text(8, y, f"{row.goal.title}{mean}, {row.verdict}", "start", bold=True, colour=colour))
        y += _ROW_PX
        for r in row.ratios:
            parts.append(_text(_LABEL_PX - 8, y, r.problem, "end"))
            marks = [place(m) for m in (row.goal.aim, row.goal.least) if low <= m <= high]
            parts.extend(_line(x, y - 9, x, y + 1, "#8c959f") for x in marks)
            if r.ratio is not None:
                parts.append(_line(place(1.0), y - 4, place(r.ratio), y - 4, colour))
                parts.append(f'<circle cx="{place(r.ratio):.1f}" cy="{y - 4}" r="3.5" fill="{colour}"/>')
            y += _ROW_PX
        y += _ROW_PX
    width = _LABEL_PX + _PLOT_PX + 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="10">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False, colour: str = "#24292f") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'
