"""An inspection for people: tables in the terminal, and one self-contained page of HTML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.profiling.side_by_side import CodeLine, Cost, Inspection, KernelInspection

_PAGE = Path(__file__).resolve().parents[1] / "templates" / "inspect.html"
# Rows of PTX and of SASS shown beside one source line in the terminal.
_MAX_ROWS = 8
# Columns of text in a file or a pipe.
_FILE_WIDTH = 180
# Source, PTX and SASS share what the figures leave: as much as it needs to the source, up to this share, and the rest to the others.
_SOURCE_SHARE = 0.5
_MIN_CODE_WIDTH = 16
# Columns of a table's lines and the gaps beside them.
_FRAME_WIDTH = 3


def print_inspection(found: Inspection, num_lines: int, console: Console | None = None) -> None:
    """Print each kernel's figures, and its costliest source lines with the PTX and SASS that they became."""
    out = console or Console()
    if not out.is_terminal:
        out.width = max(out.width, _FILE_WIDTH)
    out.print(Text(f"{found.op} {found.variant} on {found.problem}, target {found.target}", style="bold"))
    if found.model:
        out.print("model: " + ", ".join(f"{key} {value}" for key, value in found.model.items()), highlight=False)
    for kernel in found.kernels:
        out.print(Text(f"\n{kernel.kernel}"))
        out.print("  " + ", ".join(f"{key} {value}" for key, value in kernel.figures.items()), highlight=False)
        out.print("  SASS: " + ", ".join(f"{name} {count}" for name, count in {**kernel.mix, **kernel.widths}.items()), highlight=False)
        out.print(make_hot_table(kernel, num_lines, out.width))


def make_hot_table(kernel: KernelInspection, num_lines: int, width: int) -> Table:
    """Return the costliest source lines of a kernel with their shares, conflicts, PTX and SASS, in ``width`` columns of text."""
    lines = kernel.rank_lines()[:num_lines]
    names = ("line", "instr", "sectors", "wavefr", "conflicts")
    rows = [
        (
            line.key,
            *(format_share(line.cost.shares.get(n)) for n in ("instructions", "sectors", "wavefronts")),
            str(line.cost.conflicts or ""),
        )
        for line in lines
    ]
    codes = [[_stack([c for c in listed if c.key == line.key]) for listed in (kernel.ptx, kernel.sass)] for line in lines]
    figures = sum(max(len(name), *(len(row[i]) for row in rows)) if rows else len(name) for i, name in enumerate(names))
    room = width - figures - _FRAME_WIDTH * (len(names) + 3) - 1
    source, *others = share_widths(
        room,
        max([len(line.text.strip()) for line in lines], default=0),
        [max([_measure(row[i]) for row in codes], default=0) for i in range(2)],
    )
    table = Table(title=f"hottest lines, of {kernel.totals.get('warp_instructions', 0)} warp instructions", title_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name == "line" else "right", no_wrap=True)
    for name, columns in zip(("source", "PTX", "SASS"), (source, *others), strict=True):
        table.add_column(name, no_wrap=True, overflow="ellipsis", width=columns)
    for line, cells, shown in zip(lines, rows, codes, strict=True):
        style = "red" if line.cost.conflicts else "yellow" if line.cost.hot else ""
        table.add_row(*(Text(c, style=style) for c in cells), Text(line.text.strip(), style=style), *shown, end_section=True)
    return table


def share_widths(room: int, source: int, codes: Sequence[int]) -> list[int]:
    """Return the widths of source, PTX and SASS in ``room`` columns, from those of their longest lines.

    The source has what it needs, up to a share of the room, or more where the others need less; these have equal parts of the rest.
    """
    codes = [max(needed, _MIN_CODE_WIDTH) for needed in codes]
    source = max(min(source, max(int(_SOURCE_SHARE * room), room - sum(codes))), _MIN_CODE_WIDTH)
    left = room - source
    widths = []
    for i, needed in enumerate(codes):
        # What one does not need is the other's.
        part = max(left // (len(codes) - i), left - sum(codes[i + 1 :]))
        widths.append(max(min(needed, part), _MIN_CODE_WIDTH))
        left -= widths[-1]
    return [source, *widths]


def _measure(text: Text) -> int:
    return max((len(line) for line in text.plain.splitlines()), default=0)


def format_share(share: float | None) -> str:
    """Return a share as a percentage, nothing for none."""
    return f"{100 * share:.1f} %" if share else ""


def _stack(lines: Sequence[CodeLine]) -> Text:
    shown = [line.text for line in lines[:_MAX_ROWS]]
    if len(lines) > _MAX_ROWS:
        shown.append(f"... {len(lines) - _MAX_ROWS} more")
    return Text("\n".join(shown), style="dim")


def render_page(found: Inspection) -> str:
    """Return the page: the inspection's data in the text of one file, shown by the script in it. It loads nothing."""
    data = json.dumps(_shorten(asdict(found)), separators=(",", ":"))
    # No character of a kernel's text may end the script element or start a comment in it.
    safe = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")
    return _PAGE.read_text().replace("/*DATA*/null", safe)


def _shorten(value: Any) -> Any:
    """Leave out what a line does not cost: most lines have none."""
    if isinstance(value, dict):
        empty = asdict(Cost())
        return {k: _shorten(v) for k, v in value.items() if not (k == "cost" and v == empty)}
    if isinstance(value, list | tuple):
        return [_shorten(v) for v in value]
    return round(value, 5) if isinstance(value, float) else value
